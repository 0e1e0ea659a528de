"""Which rivals to try first against a class: the nearest, of those known to be argmaxable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.geometry.certificates import CertificateParts
from unarg_callback.geometry.leaders import LeadEvaluator
from unarg_callback.search.frame import Frame

_SMALLEST = 120

_CHUNK = 256
_SAMPLE = 256
_NEAR = 0.1
"""Rows of a sample are near up to this share of the distance that they have in the mean square."""
_ROWS = 4096


def working_set_size(dim: int, count: int) -> int:
    """How many rivals to start with: three vertices' worth, as measured on layers of 16 to 120."""
    return min(max(_SMALLEST, 3 * (dim + 1)), max(count - 1, 0))


def exact_cost(dim: int, count: int) -> float:
    """What the exact stage costs a class, in units of one reflection.

    A reflection tries a point on all classes, in ``2 A d`` operations. The interior point takes
    some 20 steps of ``2 m d^2`` and what goes with them, at a slower rate: as measured, about 70
    times ``m d^2 + 10^5`` for ``A d``, on layers of 16 to 120 dimensions.
    """
    rivals = working_set_size(dim, count)
    return 70 * (rivals * (dim + 1) ** 2 + 1e5) / max(count * dim, 1)


class Neighbours:
    """Nearest rows in the whitened frame.

    An unargmaxable class is seldom needed as a rival, so classes known to be argmaxable come first,
    then the rest, each by distance. A seed that is missing only costs time.

    Args:
        evaluator: holds the rows.
        frame: whitens.
    """

    def __init__(self, evaluator: LeadEvaluator, frame: Frame) -> None:
        self.evaluator = evaluator
        self.whitened = torch.empty(evaluator.count, evaluator.layer.dim, device=evaluator.device)
        for at in range(0, evaluator.count, _ROWS):
            rows = evaluator.rows(slice(at, at + _ROWS))
            self.whitened[at : at + _ROWS] = (rows - frame.mean) @ frame.root
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

    def densest(self, targets: Tensor, count: int) -> Tensor:
        """(count,) int64 of the targets, from where most of them lie, and none near another.

        A certificate of one class in the middle of many may settle them all, and does it once. Of
        an evenly spaced sample the class goes first that has most of the sample within a short
        distance; those don't count any more then, and so on.
        """
        if count >= len(targets):
            return targets
        spaced = torch.linspace(0, len(targets) - 1, min(max(_SAMPLE, count), len(targets)))
        sample = targets[spaced.long()]
        rows = self.whitened[sample.to(self.whitened.device)]
        distance = torch.cdist(rows, rows)
        near = distance <= _NEAR * distance.square().mean().sqrt()
        free = torch.ones(len(sample), dtype=torch.bool, device=rows.device)
        chosen: list[int] = []
        while len(chosen) < count:
            covers = (near & free).sum(1)
            covers[chosen] = -1
            best = int(covers.argmax())
            if covers[best] <= 1:
                break
            chosen.append(best)
            free &= ~near[best]
        rest = torch.ones(len(sample), dtype=torch.bool)
        rest[chosen] = False
        # Then those that stand alone, in an order that is no order.
        others = rest.nonzero().squeeze(1)[: count - len(chosen)]
        return sample[torch.cat([torch.tensor(chosen, dtype=torch.int64), others])].sort().values

    def _of(self, targets: Tensor, penalty: Tensor, count: int) -> Tensor:
        score = torch.addmm(penalty, self.whitened[targets], self.whitened.T, alpha=-2)
        score[torch.arange(len(targets), device=score.device), targets] = torch.inf
        return score.topk(count, largest=False).indices


@dataclass(eq=False)
class Seeds:
    """Rivals to start with: of a class's earlier certificate, the strongest, and the nearest.

    Strongest at two points: where the search begins and where it ended. The two lists have little
    in common, and half of each leaves fewer rivals to be found missing than all of either: on 66
    classes of a layer of 18,385 x 120 25 iterations of interior point instead of 30 and 37.

    Args:
        neighbours: finds the nearest.
        known: (A,) bool on the CPU, classes known to be argmaxable.
        count: how many rivals a class.
        supports: earlier certificates by class.
        points: (A, d) in the evaluator's dtype, where each class was tried last, or None.
        begin: takes (n,) targets and returns (n, d), where the search for them begins; or None.
    """

    neighbours: Neighbours
    known: Tensor
    count: int
    supports: CertificateParts
    points: Tensor | None = None
    begin: Callable[[Tensor], Tensor] | None = None

    def of(self, targets: Tensor) -> Tensor:
        """(n, count) int64 rivals for (n,) targets on the CPU."""
        places = []
        if self.begin is not None:
            places.append(self.begin(targets))
        if self.points is not None:
            places.append(self.points[targets.to(self.points.device)])
        ahead = [
            self.neighbours.evaluator.strongest(targets, place, self.count // len(places))[0]
            for place in places
        ]
        nearest = self.neighbours.of(targets, self.known, self.count)
        rivals = torch.cat([*ahead, nearest], dim=1)
        unknown = ~self.known.to(rivals.device)[rivals]
        earlier = self._supports(targets).to(rivals.device)
        later = torch.cat([torch.zeros_like(earlier, dtype=torch.bool), unknown], dim=1)
        return _first_distinct(torch.cat([earlier, rivals], dim=1), later, self.count)

    def _supports(self, targets: Tensor) -> Tensor:
        """(n, k) int64, the heaviest rivals of earlier certificates, -1 where there is none."""
        parts = [self.supports.get(target) for target in targets.tolist()]
        widest = max((len(part[0]) for part in parts if part is not None), default=0)
        found = torch.full((len(targets), min(widest, self.count // 2)), -1, dtype=torch.int64)
        for row, part in enumerate(parts):
            if part is not None:
                heaviest = part[0][(-part[1]).argsort(kind="stable")][: found.shape[1]]
                found[row, : len(heaviest)] = torch.from_numpy(heaviest)
        return found


def _first_distinct(ids: Tensor, later: Tensor, count: int) -> Tensor:
    """(n, count) int64, the first numbers of each row that are not -1, each once.

    Args:
        ids: (n, m) int64, with ``count`` distinct numbers from 0 in each row.
        later: (n, m) bool, numbers that come after all others.
        count: how many.
    """
    width = ids.shape[1]
    value, order = ids.sort(dim=1, stable=True)
    again = value < 0
    again[:, 1:] |= value[:, 1:] == value[:, :-1]
    # Places in order: first come first, then what comes later, then what is left out.
    place = order + width * later.gather(1, order) + 2 * width * again
    return ids.gather(1, place.sort(dim=1).values[:, :count] % width)
