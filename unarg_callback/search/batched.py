"""The first exact way: interior point, many classes at once, with rivals added as they matter."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.search.certify import Certifier
from unarg_callback.search.exact import DEADLINE, LIMIT, NUMERICAL, Outcome, Window
from unarg_callback.search.interior_point import InteriorPoint
from unarg_callback.search.limits import Limits

_ITERATIONS = 120
_CUTS = 32
_TRY_EVERY = 3
_ELEMENTS = 5 * 2**18
_LARGEST_BATCH = 256
_TRIMS = (1e-1, 1e-2, 1e-3, 1e-5, 1e-8, 0.0)
_SMALLEST_GAP = 1e-13


class BatchedInteriorPoint:
    """Settles classes over a box by :class:`InteriorPoint` on working sets of fixed size.

    A class leaves as soon as its weights bound every lead by ``min_lead`` or its point leads over
    all classes. Rivals that beat it at a promising point take the place of the slackest ones.

    Args:
        checker: decides.
        window: where the LP looks.
        certifier: makes certificates of its weights.
    """

    def __init__(self, checker: Checker, window: Window, certifier: Certifier) -> None:
        self.checker = checker
        self.window = window
        self.certifier = certifier

    def settle(self, targets: Tensor, rivals: Tensor, limits: Limits) -> list[Outcome]:
        """See :class:`~unarg_callback.search.exact.ExactWay`."""
        working = rivals.to(self.checker.layer.device)
        size = max(1, working.shape[1] * (self.checker.layer.dim + 1))
        batch = min(_LARGEST_BATCH, max(1, _ELEMENTS // size))
        outcomes: list[Outcome] = []
        for at in range(0, len(targets), batch):
            span = slice(at, at + batch)
            outcomes += _Batch(self, targets[span], working[span].clone(), limits).run()
        return outcomes


class _Batch:
    """The state of one batch; ``alive`` are the positions of classes that have not left."""

    def __init__(
        self, way: BatchedInteriorPoint, targets: Tensor, working: Tensor, limits: Limits
    ) -> None:
        self.checker, self.window, self.limits = way.checker, way.window, limits
        self.certifier = way.certifier
        self.targets, self.working = targets, working
        self.own = targets.to(working.device)
        self.outcomes: dict[int, Outcome] = {}
        self.alive = torch.arange(len(targets), device=working.device)
        rows, offset = self.window.constraints(self.own, working)
        size = rows.abs().sum(2).mean(1) + offset.abs().mean(1)
        self.scale = size.clamp_min(torch.finfo(torch.float64).tiny)
        self.threshold = self.checker.min_lead / self.checker.sweep.unit / self.scale
        self.tested_gap = torch.full_like(self.scale, torch.inf)
        self.offered = torch.full_like(self.scale, torch.inf)
        self.problem = InteriorPoint.start(
            rows / self.scale[:, None, None], offset / self.scale[:, None]
        )

    def run(self) -> list[Outcome]:
        """Iterate until every class has left; return an outcome for each target."""
        for iteration in range(1, _ITERATIONS + 1):
            if not len(self.alive) or self.limits.reached():
                break
            moved = self.problem.step()
            threshold = self.threshold[self.alive]
            bound = self.problem.bound()
            gap = bound - self.problem.lead
            # Below this gap neither side can change what the other says about min_lead.
            ended = ~moved | (gap <= (0.1 * threshold).clamp_min(_SMALLEST_GAP))
            leaves = self._certify(bound, threshold + self.certifier.slack, ended)
            tested = self.tested_gap[self.alive]
            # Beaten points teach most where they are near the optimum.
            close = ended | (gap <= torch.minimum(self.problem.lead, 0.3 * tested))
            promising = (self.problem.lead > threshold) & close & ~leaves
            # A few points cost as much to try as many.
            now = promising if iteration % _TRY_EVERY == 0 else promising & ended
            accepted, extended = self._try_points(now, gap, ended)
            leaves |= accepted | (ended & ~extended)
            if bool(leaves.any()):
                keep = (~leaves).nonzero().squeeze(1)
                self.problem, self.alive = self.problem.keep(keep), self.alive[keep]
        left = set(self.alive.tolist())
        unfinished = DEADLINE if self.limits.cut_short else LIMIT
        return [
            self.outcomes.get(at)
            or Outcome(int(target), reason=unfinished if at in left else NUMERICAL)
            for at, target in enumerate(self.targets)
        ]

    def _certify(self, bound: Tensor, threshold: Tensor, ended: Tensor) -> Tensor:
        """Offer the weights behind low bounds to the checker; return who was accepted."""
        offered = self.offered[self.alive]
        # A refusal needs clearly better weights before it is worth asking again.
        fresh = ended | torch.isinf(offered) | (bound < offered - 0.5 * offered.abs())
        leaves = torch.zeros_like(ended)
        at = ((bound <= threshold) & fresh).nonzero().squeeze(1)
        if not len(at):
            return leaves
        position = self.alive[at]
        self.offered[position] = bound[at]
        spares = self.certifier.spares
        weight = self._trimmed(at, threshold[at]) if spares else self.problem.weight[at]
        weight = weight / weight.sum(1, keepdim=True)
        weight, order = weight.topk(int((weight > 0).sum(1).amax()), dim=1)
        support = self.working[position].gather(1, order)
        offers = self.certifier.offer(self.own[position], support, weight)
        for row, outcome in enumerate(offers):
            if outcome is not None:
                self.outcomes[int(position[row])] = outcome
                leaves[at[row]] = True
        return leaves

    def _trimmed(self, at: Tensor, threshold: Tensor) -> Tensor:
        """(k, m) weights of the problems at ``at`` with all left out that the bound can spare."""
        full = self.problem.weight[at]
        best = full.clone()
        todo = torch.ones(len(at), dtype=torch.bool, device=at.device)
        for trim in _TRIMS:
            weight = torch.where(full >= trim * full.amax(1, keepdim=True), full, 0.0)
            holds = todo & (self.problem.trimmed_bound(weight, at) <= threshold)
            best = torch.where(holds[:, None], weight, best)
            todo &= ~holds
            if not bool(todo.any()):
                break
        return best

    def _try_points(self, candidate: Tensor, gap: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
        """Offer the points of candidates to the checker.

        Those of classes that have ended are tried in float64; before, the sweep's dtype will do.

        Returns:
            Who was accepted, and who was beaten by rivals outside its working set, which it then
            got into it.
        """
        accepted, extended = torch.zeros_like(candidate), torch.zeros_like(candidate)
        for part, evaluator in (
            (candidate & ~ended, self.checker.sweep),
            (candidate & ended, self.checker.double),
        ):
            at = part.nonzero().squeeze(1)
            if not len(at):
                continue
            position = self.alive[at]
            self.tested_gap[position] = gap[at]
            targets = self.targets[position.cpu()]
            points = self.window.points(self.problem.point[at])
            if evaluator.dtype != points.dtype:
                points = self.checker.fit(points)
            found = self.checker.witnesses(targets, points)
            for row in found.accepted.nonzero().squeeze(1).tolist():
                self.outcomes[int(position[row])] = Outcome(
                    int(targets[row]), points[row].double(), float(found.lead[row])
                )
            accepted[at[found.accepted]] = True
            lost = (~found.accepted).nonzero().squeeze(1)
            if len(lost):
                ids, above = evaluator.strongest(targets[lost.cpu()], points[lost], _CUTS)
                matters = above >= -self.checker.min_lead
                for row, rivals, beats in zip(lost.tolist(), ids, matters, strict=True):
                    extended[at[row]] = self._extend(int(at[row]), rivals[beats])
        return accepted, extended

    def _extend(self, at: int, rivals: Tensor) -> bool:
        """Bring rivals into one working set; return False where all are in it already."""
        position = self.alive[at]
        new = rivals[~torch.isin(rivals, self.working[position])]
        new = new[: self.working.shape[1] // 2]
        if not len(new):
            return False
        columns = self.problem.weight[at].topk(len(new), largest=False).indices
        rows, offset = self.window.constraints(self.own[position][None], new[None])
        scale = self.scale[position]
        self.problem.exchange(at, columns, rows[0] / scale, offset[0] / scale)
        self.working[position, columns] = new
        self.tested_gap[position] = torch.inf
        return True
