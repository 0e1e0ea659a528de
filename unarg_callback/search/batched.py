"""The first exact way: interior point, many classes at once, with rivals added as they matter."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.search.certify import Certifier
from unarg_callback.search.exact import DEADLINE, LIMIT, NUMERICAL, Outcome, Window
from unarg_callback.search.interior_point import InteriorPoint
from unarg_callback.search.limits import Limits

_ITERATIONS = {torch.float32: 60, torch.float64: 120}
_FEWEST_CUTS = 32
_TRY_EVERY = 2
_ELEMENTS = 5 * 2**18
_LARGEST_BATCH = 256
_TRIMS = (1e-1, 1e-2, 1e-3, 1e-5, 1e-8, 0.0)
_SMALLEST_GAP = {torch.float32: 1e-7, torch.float64: 1e-13}


class BatchedInteriorPoint:
    """Settles classes over a box by :class:`InteriorPoint` on working sets of fixed size.

    A class leaves as soon as its weights bound every lead by ``min_lead`` or its point leads over
    all classes. Rivals that beat it at a promising point take the place of the slackest ones.

    All are tried in float32, and what that leaves, in float64, from the working sets that there are
    by then. What is found is judged by the checker in float64 either way.

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
        first = _Queue(self, targets, working.clone(), limits, torch.float32)
        outcomes = first.run()
        left = torch.tensor([at for at, o in enumerate(outcomes) if not o.settled])
        if len(left) and not limits.reached():
            again = first.working[left.to(working.device)]
            exact = _Queue(self, targets[left], again, limits, torch.float64).run()
            for at, outcome in zip(left.tolist(), exact, strict=True):
                outcomes[at] = outcome
        return outcomes


class _Queue:
    """The state of n classes, some of them in the batch; others enter as those leave.

    ``alive`` are the positions of the classes in the batch, one for each of its problems.
    """

    def __init__(
        self,
        way: BatchedInteriorPoint,
        targets: Tensor,
        working: Tensor,
        limits: Limits,
        dtype: torch.dtype,
    ) -> None:
        self.checker, self.window, self.limits = way.checker, way.window, limits
        self.certifier = way.certifier
        self.targets, self.working, self.dtype = targets, working, dtype
        self.most = _ITERATIONS[dtype]
        size = max(1, working.shape[1] * (self.checker.layer.dim + 1))
        self.room = min(_LARGEST_BATCH, max(1, _ELEMENTS // size))
        self.own = targets.to(working.device)
        self.outcomes: dict[int, Outcome] = {}
        self.waiting = 0
        """The first position that has not entered yet."""
        self.alive = torch.zeros(0, dtype=torch.int64, device=working.device)
        self.scale = torch.ones(len(targets), dtype=torch.float64, device=working.device)
        self.threshold = torch.zeros_like(self.scale)
        self.tested_gap = torch.full_like(self.scale, torch.inf)
        self.offered = torch.full_like(self.scale, torch.inf)
        self.steps = torch.zeros_like(self.own)
        self.problem: InteriorPoint | None = None

    def run(self) -> list[Outcome]:
        """Iterate until every class has left; return an outcome for each target."""
        iteration = 0
        while not self.limits.reached():
            problem = self._admit()
            if problem is None:
                break
            iteration += 1
            leaves = self._iterate(problem, iteration)
            if bool(leaves.any()):
                keep = (~leaves).nonzero().squeeze(1)
                self.problem, self.alive = problem.keep(keep), self.alive[keep]
        left = set(self.alive.tolist()) | set(range(self.waiting, len(self.targets)))
        left.update((self.steps >= self.most).nonzero().squeeze(1).tolist())
        unfinished = DEADLINE if self.limits.cut_short else LIMIT
        return [
            self.outcomes.get(at)
            or Outcome(int(target), reason=unfinished if at in left else NUMERICAL)
            for at, target in enumerate(self.targets)
        ]

    def _admit(self) -> InteriorPoint | None:
        """Let others in where half the room is free; return what is to be solved now."""
        free = self.room - len(self.alive)
        if 2 * free < self.room or self.waiting == len(self.targets):
            return self.problem if len(self.alive) else None
        end = min(self.waiting + free, len(self.targets))
        new = torch.arange(self.waiting, end, device=self.alive.device)
        self.waiting = end
        rows, offset = self.window.constraints(self.own[new], self.working[new])
        size = rows.abs().sum(2).mean(1) + offset.abs().mean(1)
        scale = size.clamp_min(torch.finfo(torch.float64).tiny)
        self.scale[new] = scale
        self.threshold[new] = self.checker.min_lead / self.checker.sweep.unit / scale
        rows, offset = rows / scale[:, None, None], offset / scale[:, None]
        fresh = InteriorPoint.start(rows.to(self.dtype), offset.to(self.dtype))
        if self.problem is None or not len(self.alive):
            self.problem, self.alive = fresh, new
        else:
            self.problem = self.problem.joined(fresh)
            self.alive = torch.cat([self.alive, new])
        return self.problem

    def _iterate(self, problem: InteriorPoint, iteration: int) -> Tensor:
        """One step of all in the batch; return who leaves."""
        moved = problem.step()
        self.steps[self.alive] += 1
        threshold = self.threshold[self.alive]
        bound, lead = problem.bound().double(), problem.lead.double()
        gap = bound - lead
        # Below this gap neither side can change what the other says about min_lead.
        ended = ~moved | (gap <= (0.1 * threshold).clamp_min(_SMALLEST_GAP[self.dtype]))
        # A bound of 0 or less says that it never leads at all; only ties can't have one.
        enough = torch.where(ended, threshold, 0.0) + self.certifier.slack
        leaves = self._certify(problem, bound, enough, ended)
        tested = self.tested_gap[self.alive]
        # Beaten points teach most where they are near the optimum.
        close = ended | (gap <= torch.minimum(2 * lead, 0.3 * tested))
        promising = (lead > threshold) & close & ~leaves
        # A few points cost as much to try as many.
        now = promising if iteration % _TRY_EVERY == 0 else promising & ended
        accepted, extended = self._try_points(problem, now, gap, ended)
        leaves |= accepted | (ended & ~extended)
        return leaves | (self.steps[self.alive] >= self.most)

    def _certify(
        self, problem: InteriorPoint, bound: Tensor, threshold: Tensor, ended: Tensor
    ) -> Tensor:
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
        weight = problem.weight[at]
        if spares:
            # A rival whose bias is taken for a higher one bounds less than it seems, and the best
            # weights need none.
            weight = weight.masked_fill(self.checker.sweep.raised(self.working[position]), 0.0)
            weight = _trimmed(problem, at, weight, threshold[at])
        weight = weight.double() / weight.sum(1, keepdim=True)
        weight, order = weight.topk(int((weight > 0).sum(1).amax()), dim=1)
        support = self.working[position].gather(1, order)
        offers = self.certifier.offer(self.own[position], support, weight)
        for row, outcome in enumerate(offers):
            if outcome is not None:
                self._settled(int(position[row]), outcome)
                leaves[at[row]] = True
        return leaves

    def _try_points(
        self, problem: InteriorPoint, candidate: Tensor, gap: Tensor, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Offer the points of candidates to the checker.

        Those of classes that have ended are tried in float64; before, the sweep's dtype will do.

        Returns:
            Who was accepted, and who was beaten by rivals outside its working set, which it then
            got into it.
        """
        accepted, extended = torch.zeros_like(candidate), torch.zeros_like(candidate)
        cuts = max(_FEWEST_CUTS, self.checker.layer.dim)
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
            points = self.window.points(problem.point[at].double())
            if evaluator.dtype != points.dtype:
                points = self.checker.fit(points)
            ids, above = evaluator.strongest(targets, points, cuts)
            ahead = above.amax(1) < 0 if above.shape[1] else torch.ones_like(at, dtype=torch.bool)
            won = ahead.nonzero().squeeze(1)
            if len(won):
                won = won[self._offer(position[won], targets[won.cpu()], points[won])]
                accepted[at[won]] = True
            lost = (~accepted[at]).nonzero().squeeze(1)
            matters = above[lost] >= -self.checker.min_lead
            extended[at[lost]] = self._extend(problem, at[lost], ids[lost], matters)
        return accepted, extended

    def _offer(self, position: Tensor, targets: Tensor, points: Tensor) -> Tensor:
        """Offer points (k, d) as witnesses; return (k,) bool, which were accepted."""
        found = self.checker.witnesses(targets, points)
        for row in found.accepted.nonzero().squeeze(1).tolist():
            lead = float(found.lead[row])
            self._settled(
                int(position[row]), Outcome(int(targets[row]), points[row].double(), lead)
            )
        return found.accepted

    def _settled(self, position: int, outcome: Outcome) -> None:
        self.outcomes[position] = outcome
        self.limits.advance(1)

    def _extend(
        self, problem: InteriorPoint, at: Tensor, rivals: Tensor, matters: Tensor
    ) -> Tensor:
        """Bring rivals into working sets; return (k,) bool, False where all are in it already.

        Args:
            problem: the batch.
            at: (k,) positions in it.
            rivals: (k, c) int64, the strongest first.
            matters: (k, c) bool, which of them are wanted.
        """
        position = self.alive[at]
        working = self.working[position]
        new = matters & ~(rivals[:, :, None] == working[:, None]).any(2)
        new &= new.cumsum(1) <= working.shape[1] // 2
        extended = new.any(1)
        if not bool(extended.any()):
            return extended
        at, position, rivals, new = (
            at[extended],
            position[extended],
            rivals[extended],
            new[extended],
        )
        owner, which = new.nonzero(as_tuple=True)
        # The slackest give way, as many as there are new ones.
        places = problem.weight[at].topk(int(new.sum(1).amax()), largest=False).indices
        columns = places[owner, new.cumsum(1)[owner, which] - 1]
        chosen, own = rivals[owner, which], position[owner]
        rows, offset = self.window.constraints(self.own[own], chosen[:, None])
        rows, offset = rows[:, 0] / self.scale[own, None], offset[:, 0] / self.scale[own]
        problem.exchange(at, owner, columns, rows.to(self.dtype), offset.to(self.dtype))
        self.working[own, columns] = chosen
        self.tested_gap[position] = torch.inf
        return extended


def _trimmed(problem: InteriorPoint, at: Tensor, full: Tensor, threshold: Tensor) -> Tensor:
    """(k, m) weights for the problems at ``at`` with all left out that the bound can spare."""
    best = full.clone()
    todo = torch.ones(len(at), dtype=torch.bool, device=at.device)
    for trim in _TRIMS:
        weight = torch.where(full >= trim * full.amax(1, keepdim=True), full, 0.0)
        holds = todo & (problem.trimmed_bound(weight, at) <= threshold)
        best = torch.where(holds[:, None], weight, best)
        todo &= ~holds
        if not bool(todo.any()):
            break
    return best
