"""Points that are likely to put out a set, found cheaply for many sets at once.

Each set starts from the point whose logits come nearest, in least squares, to equal ones on the set
and equal ones off it. Where that is no witness, the point is reflected in the inequality that it
violates most, as in Braid Reflect (Grivas et al. 2022). Whatever set a point puts out, it is a
witness for that one.
"""

from __future__ import annotations

import numpy as np

from unarg_callback.label_sets.ledger import Ids, Ledger
from unarg_callback.label_sets.problem import Array, Sets

_REFLECTIONS = 12
_LEAST_SHARE = 0.01
"""Share of the sets still open that a round has to settle for another to follow."""
_STEP = 1.5


def search(ledger: Ledger) -> None:
    """Look for witnesses of all sets that are open.

    Args:
        ledger: takes what is proven.
    """
    problem = ledger.problem
    todo = ledger.open()
    if not len(todo):
        return
    shifts = problem.gap is not None or problem.ordered
    inverse = np.asarray(np.linalg.pinv(_target_rows(problem.rows, shifts)), dtype=np.float64)
    for start in range(0, len(todo), ledger.batch):
        if ledger.limits.reached():
            return
        at = todo[start : start + ledger.batch]
        reflect(ledger, at, _first(ledger, ledger.sets[at], inverse))


def _target_rows(rows: Array, shifts: bool) -> Array:
    """The rows, less their mean where a common shift of the logits doesn't matter."""
    return rows - rows.mean(0) if shifts else rows


def _first(ledger: Ledger, sets: Sets, inverse: Array) -> Array:
    """(n, d) first points."""
    problem = ledger.problem
    side = np.where(sets, 1.0, -1.0)
    if problem.gap is not None or problem.ordered:
        side = side - side.mean(1, keepdims=True)
        direction = side @ inverse.T
        if problem.gap is not None:
            # Far enough apart that no other has a share.
            direction *= 1.5 * (problem.constant + problem.slope)
    else:
        size = np.abs(problem.offset).max() or 1.0
        direction = 2 * size * side @ inverse.T
    if problem.domain.is_free:
        return np.asarray(direction)
    centre = problem.low / 2 + problem.high / 2
    radius = problem.high / 2 - problem.low / 2
    if problem.gap is not None:
        return np.clip(direction, problem.low, problem.high)
    usable = np.where(radius > 0, radius, np.inf)
    most = np.abs(direction / usable).max(1, keepdims=True)
    direction = direction / np.where(most > 0, most, 1.0)
    return np.clip(centre + direction, problem.low, problem.high)


def reflect(ledger: Ledger, at: Ids, points: Array) -> None:
    """Offer each set a point, and where it fails its reflections, while enough of them succeed.

    Args:
        ledger: takes what is proven.
        at: (n,) sets.
        points: (n, d).
    """
    problem = ledger.problem
    size = (problem.rows**2).sum(1)
    for _ in range(_REFLECTIONS + 1):
        ledger.offer_points(at, points)
        ledger.harvest(points)
        keep = ledger.status[at] == 0
        settled = len(at) - int(keep.sum())
        if not keep.any() or settled < _LEAST_SHARE * len(at) or ledger.limits.reached():
            return
        at, points = at[keep], points[keep]
        excess = ledger.checker.excess(ledger.sets[at], points)
        worst = excess.argmin(1)
        depth = excess[np.arange(len(at)), worst]
        side = np.where(ledger.sets[at, worst], 1.0, -1.0)
        length = -_STEP * depth / np.where(size[worst] > 0, size[worst], 1.0)
        moved = points + (side * length)[:, None] * problem.rows[worst]
        points = np.clip(moved, problem.low, problem.high)
