"""Which rivals to try first against a class: the nearest, of those known to be argmaxable."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.geometry.certificates import CertificateParts
from unarg_callback.geometry.leaders import LeadEvaluator
from unarg_callback.search.frame import Frame

_SMALLEST = 160

_AHEAD = 64
_CHUNK = 256


def working_set_size(dim: int, count: int) -> int:
    """How many rivals to start with: four vertices' worth, as measured on layers of 16 to 128."""
    return min(max(_SMALLEST, 4 * (dim + 1)), max(count - 1, 0))


class Neighbours:
    """Nearest rows in the whitened frame.

    An unargmaxable class is seldom needed as a rival, so classes known to be argmaxable come first,
    then the rest, each by distance. A seed that is missing only costs time.

    Args:
        evaluator: holds the rows.
        frame: whitens.
    """

    def __init__(self, evaluator: LeadEvaluator, frame: Frame) -> None:
        whitened = [
            ((evaluator.rows(slice(at, at + 4096)) - frame.mean) @ frame.root).float()
            for at in range(0, evaluator.count, 4096)
        ]
        self.evaluator = evaluator
        self.whitened = torch.cat(whitened)
        self._square = self.whitened.square().sum(1)

    def of(self, targets: Tensor, known: Tensor, count: int) -> Tensor:
        """(n, count) int64, rivals for (n,) targets on the CPU.

        Args:
            targets: (n,) int64.
            known: (A,) bool on the CPU, argmaxable.
            count: how many.
        """
        device = self.whitened.device
        largest = self._square.amax() * 4 + 1
        penalty = self._square + torch.where(known.to(device), 0.0, largest)
        found = [
            self._of(part.to(device), penalty, count) for part in targets.split(_CHUNK) if len(part)
        ]
        if not found:
            return torch.zeros(0, count, dtype=torch.int64, device=device)
        return torch.cat(found)

    def spread_out(self, targets: Tensor, count: int) -> Tensor:
        """(count,) int64 of the targets, each the farthest from those before: farthest-point.

        Near classes are seldom in one batch then, so that a certificate of one can settle others.
        """
        if count >= len(targets):
            return targets
        rows = self.whitened[targets.to(self.whitened.device)]
        chosen = torch.zeros(count, dtype=torch.int64, device=rows.device)
        # The nearest to the middle first: it depends on no order, and is most often enclosed.
        chosen[0] = rows.square().sum(1).argmin()
        distance = torch.full((len(rows),), torch.inf, device=rows.device)
        for at in range(1, count):
            latest = rows[chosen[at - 1]]
            distance = torch.minimum(distance, (rows - latest).square().sum(1))
            chosen[at] = distance.argmax()
        return targets[chosen.cpu().sort().values]

    def _of(self, targets: Tensor, penalty: Tensor, count: int) -> Tensor:
        score = torch.addmm(penalty, self.whitened[targets], self.whitened.T, alpha=-2)
        score[torch.arange(len(targets), device=score.device), targets] = torch.inf
        return score.topk(count, largest=False).indices


@dataclass(eq=False)
class Seeds:
    """Rivals to start with: the nearest, and those of a class's earlier certificate.

    Args:
        neighbours: finds the nearest.
        known: (A,) bool on the CPU, classes known to be argmaxable.
        count: how many rivals a class.
        supports: earlier certificates by class.
        points: (A, d) in the evaluator's dtype, where each class was tried last, or None.
    """

    neighbours: Neighbours
    known: Tensor
    count: int
    supports: CertificateParts
    points: Tensor | None = None

    def of(self, targets: Tensor) -> Tensor:
        """(n, count) int64 rivals for (n,) targets on the CPU."""
        rivals = self.neighbours.of(targets, self.known, self.count)
        wanted = self._strongest(targets)
        for row, target in enumerate(targets.tolist()):
            seeds = [] if wanted is None else [wanted[row]]
            if target in self.supports:
                support, weight = self.supports[target]
                heaviest = support[(-weight).argsort(kind="stable")][: self.count // 2]
                seeds.append(torch.from_numpy(heaviest).to(rivals))
            if seeds:
                new = torch.cat(seeds).unique()
                new = new[~torch.isin(new, rivals[row])][: self.count]
                # In place of the farthest.
                rivals[row, rivals.shape[1] - len(new) :] = new
        return rivals

    def _strongest(self, targets: Tensor) -> Tensor | None:
        """(n, k) int64, who was ahead where the targets were tried last."""
        if self.points is None:
            return None
        points = self.points[targets.to(self.points.device)]
        evaluator = self.neighbours.evaluator
        return evaluator.strongest(targets, points, min(_AHEAD, self.count // 2))[0]
