"""The second exact way, and the only one over the free domain: one LP a set, by HiGHS."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unarg_callback.label_sets.ledger import Ids, Ledger
from unarg_callback.label_sets.problem import Array
from unarg_callback.search.exact import DEADLINE, LIMIT
from unarg_callback.search.linear_program import LinearProgram, Solution

_ROUNDS = 100
_ALL_AT_ONCE = 128
"""Fewest inequalities that are worth being added bit by bit."""
_CUTS = 32
NUMERICAL = "the best margin is too close to min_margin to tell in float64"


def settle(ledger: Ledger, at: Ids) -> None:
    """Settle sets one at a time; those that can't be get a reason.

    Args:
        ledger: takes what is proven.
        at: (n,) sets.
    """
    for one in at.tolist():
        if ledger.status[one]:
            continue
        for sign in ledger.problem.signs:
            if ledger.limits.reached():
                ledger.reasons[one] = DEADLINE
                break
            if ledger.covered[sign][one]:
                continue
            reason = _Programme(ledger, one, sign).run()
            if ledger.status[one]:
                break
            if not ledger.covered[sign][one]:
                ledger.reasons[one] = reason
                continue
            ledger.share([one], sign)


class _Programme:
    """The growing LP of one set and sign: ``max m``, which over the free domain ends at 1."""

    def __init__(self, ledger: Ledger, at: int, sign: int) -> None:
        self.ledger, self.at, self.sign = ledger, at, sign
        problem = self.problem = ledger.problem
        self.centre, self.spread = problem.window
        self.sets = ledger.sets[at : at + 1]
        self.labels = np.zeros(0, dtype=np.int64)
        width = problem.variables
        bound = np.full(width, np.inf if problem.domain.is_free else 1.0)
        cap = 1.0 if problem.domain.is_free else np.inf
        cost = np.append(np.zeros(width), -1.0)
        self.program = LinearProgram(cost, np.append(-bound, -np.inf), np.append(bound, cap))
        self.scale = 1.0

    def run(self) -> str:
        """Add inequalities until the set is settled; else say why it isn't."""
        problem, ledger = self.problem, self.ledger
        if problem.slope:
            self._add(np.array([problem.labels]))
        self._add(self._seeds())
        for _ in range(_ROUNDS):
            found = self.program.solve(ledger.limits.remaining())
            if found is None:
                return DEADLINE if ledger.limits.reached() else LIMIT
            if self._certified(found):
                return ""
            point = self._point(found)
            if ledger.offer_points(np.array([self.at]), point)[0]:
                return ""
            ledger.harvest(point)
            excess = ledger.checker.excess(self.sets, point)[0]
            order = excess.argsort(kind="stable")[:_CUTS]
            cut = excess[order] < found.value[-1] * self.scale
            new = order[cut & ~np.isin(order, self.labels)]
            if not len(new):
                return NUMERICAL
            self._add(new)
        return LIMIT

    def _seeds(self) -> Ids:
        count = self.problem.labels
        if count <= _ALL_AT_ONCE:
            return np.arange(count)
        excess = self.ledger.checker.excess(self.sets, self.centre[None])[0]
        return np.argpartition(excess, _CUTS)[:_CUTS].astype(np.int64)

    def _add(self, labels: Ids) -> None:
        rows, offset = self.problem.constraints(
            self.sets, self.sign, labels[None], self.centre, self.spread
        )
        own = labels < self.problem.labels
        if own.any() and not (self.labels < self.problem.labels).any():
            size = np.abs(rows[0, own]).sum(1).mean() + np.abs(offset[0, own]).mean()
            self.scale = float(size) or 1.0
        matrix = np.hstack([rows[0] / self.scale, -own[:, None].astype(np.float64)])
        free = np.full(len(labels), np.inf)
        self.program.add_rows(matrix, -offset[0] / self.scale, free)
        self.labels = np.append(self.labels, labels)

    def _point(self, found: Solution) -> Array:
        u = found.value[: self.problem.head.dim]
        point = self.centre + self.spread * u
        return np.clip(point, self.problem.low, self.problem.high)[None]

    def _certified(self, found: Solution) -> bool:
        threshold = self.problem.min_margin / self.problem.unit / self.scale
        if found.value[-1] > threshold + 1e-8:
            return False
        dual = np.maximum(found.dual, 0.0)
        if not dual.max(initial=0.0) > 0:
            return False
        own = self.labels < self.problem.labels
        weights = np.zeros((1, self.problem.labels))
        condition = np.zeros(1)
        for least in (1e-9, 1e-12, 0.0):
            used = np.where(dual > least * dual.max(), dual, 0.0)
            weights[0, self.labels[own]] = used[own]
            # The condition stood as the mean of z, not its sum.
            condition[0] = used[~own].sum() / self.problem.labels
            if self._offer(weights, condition):
                return True
        return False

    def _offer(self, weights: Array, condition: Array) -> bool:
        at = np.array([self.at])
        accepted: NDArray[np.bool_] = self.ledger.offer_weights(at, self.sign, weights, condition)
        return bool(accepted[0])
