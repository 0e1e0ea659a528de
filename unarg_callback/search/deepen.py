"""Deeper witnesses for argmaxable classes: how far are they from unargmaxable?

For an argmaxable class t the best lead in a box is the optimum of the linear programme

    max m   subject to   (w_t - w_i) . x + b_t - b_i >= m   (i != t),   x in the box

A witness of a small lead is soon lost when the layer changes, and a small best lead warns that the
class may become unargmaxable. So this looks for an x whose lead is near the optimum, and bounds the
optimum from above by weights over rivals, its dual (``interior_point.py``): whatever the rivals,
that bounds every lead over all classes. Neither is driven to the end, since a tenth of the optimum
is of no interest.

In the free domain a lead is unbounded or has no scale to compare it with, so nothing is looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.compact import fit_to_domain
from unarg_callback.search.exact import Window
from unarg_callback.search.frame import Frame
from unarg_callback.search.interior_point import InteriorPoint
from unarg_callback.search.limits import Limits
from unarg_callback.search.working_set import Neighbours

_CLEARLY_LARGER = 1.05
_GAPS = (0.3, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1)
"""Relative gap at which each round ends: rough points show as well which rivals are missing.

Most classes are content after three or four rounds.
"""
_ENOUGH = 0.8
"""Share of the bound with which a class is content."""
_ITERATIONS = 60
_FEWEST_CUTS = 16
_SMALLEST = 80
_ELEMENTS = 2**20
_LARGEST_BATCH = 256
_BEYOND_ANY_BOX = 1e6
_LEAST_WEIGHT = 1e-100
"""Smaller ones add nothing to a bound, and the checker refuses the smallest."""


@dataclass(frozen=True, eq=False)
class Deepened:
    """Witnesses with clearly larger leads, and how large leads could be at all.

    Args:
        targets: (k,) int64 on the CPU, classes for which one was found, in the order given.
        points: (k, d) in the sweep's dtype, each accepted by the checker as it stands here.
        lead: (k,) float64 on the CPU, proven lower bound on the lead at the point.
        bound: (n,) float64 on the CPU, one for each class asked about: proven upper bound on every
            lead it has in the box, +inf where none was found.
    """

    targets: Tensor
    points: Tensor
    lead: Tensor
    bound: Tensor


def deepen(
    checker: Checker,
    frame: Frame,
    neighbours: Neighbours,
    targets: Tensor,
    leads: Tensor,
    known: Tensor,
    *,
    limits: Limits | None = None,
) -> Deepened:
    """Look for witnesses with clearly larger leads than those at hand.

    Args:
        checker: decides. In the free domain nothing is found.
        frame: whitened.
        neighbours: of the checker's classes.
        targets: (n,) int64 on the CPU, argmaxable classes.
        leads: (n,) float64, their proven leads so far.
        known: (A,) bool on the CPU, classes known to be argmaxable: the first choice as rivals.
        limits: when to stop; what has been found by then is returned.
    """
    limits = limits or Limits()
    dim, count = checker.layer.dim, checker.sweep.count
    leads = leads.cpu()
    lead = torch.full((len(targets),), -torch.inf, dtype=torch.float64)
    bound = torch.full_like(lead, torch.inf)
    points = torch.zeros(len(targets), dim, dtype=checker.sweep.dtype, device=checker.layer.device)
    if not checker.domain.is_free and count > 1:
        window = Window.of(checker, frame)
        # As measured on layers of 16 to 120: with more of the nearest it takes longer.
        rivals = min(max(_SMALLEST, 2 * (dim + 1)), count - 1)
        size = min(_LARGEST_BATCH, max(1, _ELEMENTS // (rivals * (dim + 1))))
        for at in range(0, len(targets), size):
            if limits.reached():
                break
            span = slice(at, at + size)
            working = neighbours.of(targets[span], known, rivals)
            wanted = _CLEARLY_LARGER * leads[span].to(working.device)
            batch = _Batch(checker, window, targets[span], wanted, working)
            batch.run(frame, limits)
            points[span] = batch.best_point
            lead[span], bound[span] = batch.proven_lead().cpu(), batch.proven_bound().cpu()
    found = (lead > _CLEARLY_LARGER * leads).nonzero().squeeze(1)
    return Deepened(targets[found], points[found.to(points.device)], lead[found], bound)


@dataclass(frozen=True, eq=False)
class _Solution:
    """Points and weights of n problems, with what they show, in units of the logits.

    Args:
        point: (n, d) u in the window.
        lead: (n,) lead over the working set there.
        weight: (n, m) over the working set.
        bound: (n,) on every lead, as computed.
    """

    point: Tensor
    lead: Tensor
    weight: Tensor
    bound: Tensor


class _Batch:
    """The best points and weights of n classes, by rounds of interior point and cuts.

    In each round all problems begin afresh: to so rough an optimum that takes a few steps, and no
    class needs handling of its own.

    Args:
        checker: decides.
        window: the box.
        targets: (n,) int64 on the CPU.
        wanted: (n,) float64, leads below are of no use.
        working: (n, m) int64, rivals, the least important last.
    """

    def __init__(
        self, checker: Checker, window: Window, targets: Tensor, wanted: Tensor, working: Tensor
    ) -> None:
        self.checker, self.window = checker, window
        self.targets, self.wanted, self.working = targets, wanted, working
        self.own = targets.to(working.device)
        # The rivals of greatest weight stay.
        self.cuts = min(max(_FEWEST_CUTS, checker.layer.dim), (working.shape[1] + 1) // 2)
        dtype, shape = checker.sweep.dtype, (len(targets), checker.layer.dim)
        self.best_point = torch.zeros(shape, dtype=dtype, device=working.device)
        self.best_lead = torch.full_like(wanted, -torch.inf)
        self.best_weight = torch.zeros(working.shape, dtype=wanted.dtype, device=working.device)
        self.best_support = working.clone()
        self.best_bound = torch.full_like(wanted, torch.inf)

    def run(self, frame: Frame, limits: Limits) -> None:
        """Solve over the working sets, bring in who is strongest at the points found, and again."""
        left = torch.arange(len(self.own), device=self.own.device)
        # The row itself is nearly always a witness, so its rivals there are likely to matter.
        start = frame.start(self.checker.sweep.rows(self.own)) * _BEYOND_ANY_BOX
        ids, leads = self._try(left, start)
        unimportant = -torch.arange(self.working.shape[1], device=self.own.device)
        self._exchange(left, ids, leads < torch.inf, unimportant.expand_as(self.working))
        for gap in _GAPS:
            solution = self._solve(left, gap, limits)
            self._keep_weights(left, solution)
            ids, leads = self._try(left, self.window.points(solution.point))
            if limits.reached():
                return
            self._exchange(left, ids, leads < solution.lead[:, None], solution.weight)
            bound = self.best_bound[left]
            left = left[(bound > self.wanted[left]) & (self.best_lead[left] < _ENOUGH * bound)]
            if not len(left):
                return

    def proven_lead(self) -> Tensor:
        """(n,) float64 lower bounds on the leads at the best points, -inf where of no use."""
        lead = torch.full_like(self.best_lead, -torch.inf)
        at = (self.best_lead > self.wanted).nonzero().squeeze(1)
        if len(at):
            # The same point in float64: the error bound of float32 can exceed a shallow lead.
            found = self.checker.witnesses(self.targets[at.cpu()], self.best_point[at].double())
            lead[at] = torch.where(found.accepted, found.lead, -torch.inf)
        return lead

    def proven_bound(self) -> Tensor:
        """(n,) float64 upper bounds on every lead, +inf where there is none."""
        _, bound = self.checker.certificates(self.own, self.best_support, self.best_weight)
        return torch.where(torch.isfinite(bound), bound, torch.inf)

    def _solve(self, at: Tensor, gap: float, limits: Limits) -> _Solution:
        """Problems of the classes at (k,) positions, to a relative gap or the limit."""
        rows, offset = self.window.constraints(self.own[at], self.working[at])
        size = rows.abs().sum(2).mean(1) + offset.abs().mean(1)
        scale = size.clamp_min(torch.finfo(torch.float64).tiny)
        problem = InteriorPoint.start(rows / scale[:, None, None], offset / scale[:, None])
        unit = scale * self.checker.sweep.unit
        wanted = self.wanted[at] / unit
        alive = torch.arange(len(at), device=at.device)
        solution = _Solution(
            torch.zeros_like(rows[:, 0]),
            torch.zeros_like(scale),
            torch.zeros_like(offset),
            torch.zeros_like(scale),
        )
        for step in range(1, _ITERATIONS + 1):
            moved = problem.step()
            lead, bound = problem.lead, problem.bound()
            ended = ~moved | (bound - lead <= gap * bound.abs()) | (bound <= wanted[alive])
            if step == _ITERATIONS or limits.reached():
                ended[:] = True
            place = alive[ended]
            solution.point[place] = problem.point[ended]
            solution.lead[place] = lead[ended] * unit[place]
            solution.weight[place] = problem.weight[ended]
            solution.bound[place] = bound[ended] * unit[place]
            keep = (~ended).nonzero().squeeze(1)
            if not len(keep):
                break
            problem, alive = problem.keep(keep), alive[keep]
        return solution

    def _keep_weights(self, at: Tensor, solution: _Solution) -> None:
        """Keep weights that bound leads better than those before."""
        lower = solution.bound < self.best_bound[at]
        place, weight = at[lower], solution.weight[lower]
        weight = weight / weight.sum(1, keepdim=True)
        self.best_bound[place] = solution.bound[lower]
        self.best_weight[place] = torch.where(weight > _LEAST_WEIGHT, weight, 0.0)
        self.best_support[place] = self.working[place]

    def _try(self, at: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """Keep points (k, d) that lead over all classes by more than those before.

        Returns:
            (k, c) the strongest rivals at each point, and (k, c) the leads over them, ascending.
        """
        # Off the grid: in a narrow region the last bits count.
        low, high = self.checker.low, self.checker.high
        points = fit_to_domain(points, low, high, self.best_point.dtype)
        ids, above = self.checker.sweep.strongest(self.targets[at.cpu()], points, self.cuts)
        leads = -above
        larger = leads[:, 0] > self.best_lead[at]
        place = at[larger]
        self.best_lead[place], self.best_point[place] = leads[larger, 0], points[larger]
        return ids, leads

    def _exchange(self, at: Tensor, ids: Tensor, matters: Tensor, weight: Tensor) -> None:
        """Put rivals (k, c) that matter in place of those of least weight (k, m)."""
        working = self.working[at]
        new = matters & ~(ids[:, :, None] == working[:, None]).any(2)
        columns = weight.topk(ids.shape[1], largest=False).indices
        working.scatter_(1, columns, torch.where(new, ids, working.gather(1, columns)))
        self.working[at] = working
