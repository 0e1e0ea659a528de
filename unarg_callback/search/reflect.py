"""Braid Reflect (Grivas et al. 2022, algorithm 1), many classes at once.

One step moves each class's point x to the other side of the hyperplane on which the class ties with
the current winner i, by reflection: with ``delta = w_t - w_i`` and metric P,

    x <- x - 2 (delta.x + b_t - b_i) / (delta' P delta) P delta

With P = I that is the paper's step; with the inverse covariance of the rows it is the same step on
whitened rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unarg_callback.geometry.checker import Checker, WitnessCheck
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.search.frame import Frame, raw_frame
from unarg_callback.search.limits import Limits

_BEYOND_ANY_BOX = 1e6
_SWEEP = 8192
"""Classes between two looks at the clock."""


@dataclass(eq=False)
class SearchState:
    """What the search knows of each of A active classes.

    Args:
        proven: (A,) bool on the CPU, a witness was accepted.
        point: (A, d) in the sweep's dtype: the witness, or the last point tried.
        lead: (A,) float64 on the CPU: proven lower bound on the witness's lead, or the best lead
            seen so far.
        rival: (A,) int64 on the CPU: who won last against an unproven class, or -1.
        reflections: (A,) int64 on the CPU.
    """

    proven: Tensor
    point: Tensor
    lead: Tensor
    rival: Tensor
    reflections: Tensor

    @classmethod
    def empty(cls, checker: Checker) -> SearchState:
        """Nothing proven, nothing tried."""
        count, dim = checker.sweep.count, checker.layer.dim
        # NumPy's zeros take no memory until they are written to; few may be.
        kind = np.float32 if checker.sweep.dtype == torch.float32 else np.float64
        return cls(
            torch.zeros(count, dtype=torch.bool),
            torch.from_numpy(np.zeros((count, dim), kind)).to(checker.layer.device),
            torch.full((count,), -torch.inf, dtype=torch.float64),
            torch.full((count,), -1, dtype=torch.int64),
            torch.zeros(count, dtype=torch.int64),
        )

    def record(self, targets: Tensor, points: Tensor, found: WitnessCheck) -> int:
        """Keep what a sweep found, for the targets and for whoever won; return how many are new."""
        before = int(self.proven.sum())
        points = points.to(self.point.dtype)
        accepted, lead = found.accepted.cpu(), found.lead.cpu()
        self.rival[targets] = found.rival.cpu()
        # A class may have been proven at somebody else's point: a failed try of its own must not
        # take the place of that witness.
        mine = ~self.proven[targets] | accepted
        self.lead[targets[mine]] = torch.maximum(self.lead[targets], lead)[mine]
        own = mine.to(points.device)
        self.point[targets[mine].to(self.point.device)] = points[own]
        done = targets[accepted]
        self.proven[done] = True
        self.lead[done] = lead[accepted]
        winners = found.rival.cpu()
        bonus = (found.rival_accepted.cpu() & ~self.proven[winners.clamp_min(0)]).nonzero()
        # In order of their leads, so that the deepest witness of a class is the one kept.
        bonus = bonus.squeeze(1)
        gains = found.rival_lead.cpu()[bonus]
        bonus = bonus[torch.argsort(gains, stable=True)]
        for at in bonus.tolist():
            winner = int(winners[at])
            self.proven[winner] = True
            self.lead[winner] = found.rival_lead[at].cpu()
            self.point[winner] = points[at]
        return int(self.proven.sum()) - before


def beginning(checker: Checker, frame: Frame, targets: Tensor) -> Tensor:
    """(n, d) in the sweep's dtype, where the search begins: at the whitened rows.

    Args:
        checker: holds the rows.
        frame: whitens.
        targets: (n,) int64.
    """
    points = frame.start(checker.sweep.rows(targets))
    around = bool(((checker.low < 0) & (checker.high > 0)).all())
    if around and not checker.domain.is_free:
        # Out to the boundary of the box, where biases count least.
        points = points * _BEYOND_ANY_BOX
    return checker.fit(points)


def reflect(
    checker: Checker, frame: Frame, targets: Tensor, points: Tensor, rival: Tensor
) -> Tensor:
    """One reflection for each of n classes.

    Args:
        checker: holds the rows.
        frame: gives the metric.
        targets: (n,) int64.
        points: (n, d).
        rival: (n,) int64, who wins at each point.

    Returns:
        (n, d) float64.
    """
    evaluator = checker.sweep
    delta = evaluator.rows(targets) - evaluator.rows(rival)
    bias = evaluator.biases(targets) - evaluator.biases(rival)
    return reflection(delta, bias, frame.metric, points)


def reflection(delta: Tensor, bias: Tensor, metric: Tensor, points: Tensor) -> Tensor:
    """Reflect each of n points in the hyperplane ``delta.x + bias = 0``, under the metric.

    Args:
        delta: (n, d) float64.
        bias: (n,) float64.
        metric: (d, d) float64.
        points: (n, d).

    Returns:
        (n, d) float64; a point whose reflection isn't finite stays.
    """
    step = delta @ metric
    norm = (delta * step).sum(1).clamp_min(torch.finfo(torch.float64).tiny)
    exact = points.double()
    gap = (delta * exact).sum(1) + bias
    moved = exact - (2 * gap / norm)[:, None] * step
    return torch.where(torch.isfinite(moved), moved, exact)


def evaluate(
    checker: Checker,
    state: SearchState,
    targets: Tensor,
    limits: Limits,
    moved: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> None:
    """Try classes at the points where they stand; ``state`` is updated in place.

    Args:
        checker: decides.
        state: holds the points.
        targets: (n,) int64 on the CPU.
        limits: when to stop; the first part is tried whatever they say.
        moved: takes (m,) targets and their (m, d) points, and returns those to try instead.
    """
    for at, part in enumerate(targets.split(_SWEEP)):
        if at and limits.reached():
            break
        part = part[~state.proven[part]]
        points = state.point[part.to(state.point.device)]
        if moved is not None:
            points = moved(part, points)
        limits.advance(state.record(part, points, checker.witnesses(part, points)))


def braid_reflect(
    checker: Checker,
    frame: Frame,
    state: SearchState,
    targets: Tensor,
    *,
    patience: int,
    worthwhile: Callable[[int, int], bool] | None = None,
    limits: Limits | None = None,
    keep_in_domain: bool = True,
    tried: bool = False,
) -> None:
    """Search for witnesses of the targets, from ``state.point``; ``state`` is updated in place.

    Args:
        checker: decides each point.
        frame: whitened, or raw for the paper's form.
        state: holds the points to start from.
        targets: (n,) int64 on the CPU.
        patience: most reflections a class.
        worthwhile: told how many of the targets a sweep has proven, and of how many; the search
            ends when it says no twice running. None: use up the patience.
        limits: when to stop.
        keep_in_domain: fit each point to the domain before it is tried. The paper does not.
        tried: the points to start from have been tried, and ``state.rival`` tells who won there.
    """
    limits = limits or Limits()

    def reflected(part: Tensor, points: Tensor) -> Tensor:
        state.reflections[part] += 1
        return _moved(checker, frame, state, part, points, keep_in_domain)

    poor = 0
    for step in range(int(tried), patience + 1):
        targets = targets[~state.proven[targets]]
        if step:
            # Where the target leads, but not by enough or outside the domain, it stays.
            targets = targets[state.rival[targets] >= 0]
        if not len(targets) or (step and limits.reached()):
            return
        evaluate(checker, state, targets, limits, reflected if step else None)
        if limits.cut_short:
            return
        if worthwhile is not None and step:
            # What was found of other classes by the way may be for others to find.
            gained = int(state.proven[targets].sum())
            poor = 0 if worthwhile(gained, len(targets)) else poor + 1
            if poor == 2:
                return


def _moved(
    checker: Checker,
    frame: Frame,
    state: SearchState,
    targets: Tensor,
    points: Tensor,
    keep_in_domain: bool,
) -> Tensor:
    """Points after one reflection, in the sweep's dtype."""
    rival = state.rival[targets].to(points.device)
    moved = reflect(checker, frame, targets.to(points.device), points, rival)
    if keep_in_domain:
        return checker.fit(moved)
    return moved.to(points.dtype)


def paper_search(
    checker: Checker, targets: Tensor | None = None, *, patience: int = 2500
) -> SearchState:
    """Braid Reflect as in the paper: raw weights, from the row, one reflection a step.

    Points aren't moved into the domain; a class whose winning point lies outside stays unproven.

    Args:
        checker: decides each point.
        targets: (n,) int64 on the CPU; default all active classes.
        patience: most reflections a class.
    """
    with plain_arithmetic(checker.layer.device):
        return _paper_search(checker, targets, patience)


def _paper_search(checker: Checker, targets: Tensor | None, patience: int) -> SearchState:
    state = SearchState.empty(checker)
    if targets is None:
        targets = torch.arange(checker.sweep.count)
    # The true rows, not the centred ones: the common offset is part of the paper's start.
    rows = checker.layer.rows(checker.sweep.active[targets.to(checker.layer.device)])
    state.point[targets.to(checker.layer.device)] = rows.to(state.point.dtype)
    frame = raw_frame(checker.layer.dim, checker.layer.device)
    braid_reflect(checker, frame, state, targets, patience=patience, keep_in_domain=False)
    return state
