"""The first exact way: interior point, many sets at once.

The programme of each set and sign is ``max m`` with ``a_i . u + beta_i >= m`` over ``|u_k| <= 1``,
which ``search/interior_point.py`` solves with both sides feasible: at every iteration its point and
its weights are worth offering. The condition on the sum of z, where there is one, is taken as one
more such inequality: that moves the optimum but not its sign, and the checker knows the difference.

Over the free domain it looks at a large box. That finds witnesses; weights cancel all features only
where the optimum is inside and the heaviest of them are those of a vertex.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.label_sets.ledger import Ids, Ledger
from unarg_callback.label_sets.problem import Array
from unarg_callback.search.interior_point import InteriorPoint

_ITERATIONS = 60
_ELEMENTS = 2**20
_LARGEST_BATCH = 256
_WORKING_SET = 512
_CUTS = 32
_SMALLEST_GAP = 1e-12
_TRIMS = (2, 4, 8)
"""Sizes of supports to try, in units of the number of variables and one."""


def settle(ledger: Ledger, sign: int, at: Ids) -> None:
    """Settle sets as far as this way goes.

    Args:
        ledger: takes what is proven.
        sign: of the sum of z.
        at: (n,) sets to settle.
    """
    problem = ledger.problem
    width = min(problem.labels, _WORKING_SET)
    size = max(1, _ELEMENTS // ((width + 1) * (problem.variables + 1)))
    size = min(_LARGEST_BATCH, size)
    todo = list(at.tolist())
    while todo and not ledger.limits.reached():
        some, todo = np.array(todo[:size], dtype=np.int64), todo[size:]
        _Batch(ledger, sign, some, _working_set(ledger, some, width)).run()
        ledger.share(some.tolist(), sign)
        still = set(ledger.missing(sign).tolist())
        todo = [one for one in todo if one in still]


def renew(ledger: Ledger, sign: int, at: Ids, supports: list[Ids]) -> None:
    """Solve certificates anew over the inequalities that they had.

    Args:
        ledger: takes what is proven.
        sign: of the sum of z.
        at: (n,) sets.
        supports: labels, for each.
    """
    kept = [(one, labels) for one, labels in zip(at.tolist(), supports, strict=True) if len(labels)]
    for start in range(0, len(kept), _LARGEST_BATCH):
        if ledger.limits.reached():
            return
        part = kept[start : start + _LARGEST_BATCH]
        width = max(len(labels) for _, labels in part)
        # Padded with its own first label: one inequality twice does no harm.
        working = np.array(
            [np.append(labels, np.repeat(labels[:1], width - len(labels))) for _, labels in part]
        )
        ids = np.array([one for one, _ in part], dtype=np.int64)
        _Batch(ledger, sign, ids, working, closed=True).run()


def _working_set(ledger: Ledger, at: Ids, width: int) -> Ids:
    """(n, m) labels to begin with: all, or those that the middle of the box violates most."""
    problem = ledger.problem
    if width == problem.labels:
        return np.broadcast_to(np.arange(width), (len(at), width)).copy()
    middle = np.broadcast_to(problem.window[0], (len(at), problem.head.dim))
    excess = ledger.checker.excess(ledger.sets[at], middle)
    return np.argpartition(excess, width, axis=1)[:, :width].astype(np.int64)


class _Batch:
    """The state of one batch; ``alive`` are the positions of sets that have not left."""

    def __init__(
        self, ledger: Ledger, sign: int, at: Ids, working: Ids, closed: bool = False
    ) -> None:
        problem = ledger.problem
        self.ledger, self.sign, self.at, self.closed = ledger, sign, at, closed
        self.centre, self.spread = problem.window
        self.conditioned = bool(problem.slope)
        if self.conditioned:
            condition = np.full((len(at), 1), problem.labels)
            working = np.hstack([working, condition])
        self.working = working
        rows, offset = self._rows(at, working)
        size = np.abs(rows).sum(2).mean(1) + np.abs(offset).mean(1)
        self.scale = np.maximum(size, np.finfo(np.float64).tiny)
        self.threshold = problem.min_margin / problem.unit / self.scale
        self.alive = np.arange(len(at))
        self._extended = np.zeros(len(at), dtype=np.bool_)
        self.offered = np.full(len(at), np.inf)
        self.tested = np.full(len(at), np.inf)
        self.problem = InteriorPoint.start(
            torch.from_numpy(rows / self.scale[:, None, None]),
            torch.from_numpy(offset / self.scale[:, None]),
        )

    def run(self) -> None:
        """Iterate until every set has left."""
        for _ in range(_ITERATIONS):
            if not len(self.alive) or self.ledger.limits.reached():
                return
            moved = self.problem.step().numpy()
            bound, lead = self.problem.bound().numpy(), self.problem.lead.numpy()
            threshold = self.threshold[self.alive]
            gap = bound - lead
            ended = ~moved | (gap <= np.maximum(0.1 * threshold, _SMALLEST_GAP))
            leaves = self._certify(bound, threshold, ended)
            if not self.closed:
                close = ended | (gap <= 0.5 * self.tested[self.alive])
                leaves |= self._try_points((lead > threshold) & close & ~leaves, gap)
            leaves |= ended if self.closed else ended & ~self._extended
            if self.closed:
                # Without the others a set that beats these few may be anything.
                leaves |= lead > threshold
            keep = np.flatnonzero(~leaves)
            if len(keep) < len(leaves):
                self.problem = self.problem.keep(torch.from_numpy(keep))
                self.alive = self.alive[keep]

    def _rows(self, at: Ids, working: Ids) -> tuple[Array, Array]:
        sets = self.ledger.sets[at]
        return self.ledger.problem.constraints(sets, self.sign, working, self.centre, self.spread)

    def _certify(
        self, bound: Array, threshold: Array, ended: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        offered = self.offered[self.alive]
        first = np.isinf(offered)
        better = bound < offered - 0.5 * np.abs(np.where(first, 0.0, offered))
        fresh = ended | first | better
        leaves = np.zeros(len(self.alive), dtype=np.bool_)
        slack = 1e-9 if self.ledger.problem.domain.is_free else 0.0
        if self.ledger.problem.domain.is_free:
            # Only the weights of the optimum cancel all features.
            fresh = ended
        rows = np.flatnonzero((bound <= threshold + slack) & fresh)
        if not len(rows):
            return leaves
        self.offered[self.alive[rows]] = bound[rows]
        full = self.problem.weight.numpy()[rows]
        for trim in (2,) if self.ledger.problem.domain.is_free else (*_TRIMS, 0):
            kept = _heaviest(full, trim * (self.ledger.problem.variables + 1) // 2)
            accepted = self._offer(rows, kept)
            leaves[rows[accepted]] = True
            rows, full = rows[~accepted], full[~accepted]
            if not len(rows):
                break
        return leaves

    def _offer(self, rows: Ids, weight: Array) -> NDArray[np.bool_]:
        position = self.alive[rows]
        labels = self.ledger.problem.labels
        dense = np.zeros((len(rows), labels + 1))
        np.add.at(dense, (np.arange(len(rows))[:, None], self.working[position]), weight)
        dense[dense < dense.max(1, keepdims=True) * 2.0**-200] = 0.0
        # The condition stood as the mean of z, not its sum.
        condition = dense[:, labels] / labels
        return self.ledger.offer_weights(self.at[position], self.sign, dense[:, :labels], condition)

    def _try_points(self, candidate: NDArray[np.bool_], gap: Array) -> NDArray[np.bool_]:
        accepted = np.zeros(len(candidate), dtype=np.bool_)
        self._extended = accepted.copy()
        rows = np.flatnonzero(candidate)
        if not len(rows):
            return accepted
        position = self.alive[rows]
        self.tested[position] = gap[rows]
        problem = self.ledger.problem
        u = self.problem.point.numpy()[rows, : problem.head.dim]
        points = np.clip(self.centre + u * self.spread, problem.low, problem.high)
        good = self.ledger.offer_points(self.at[position], points)
        accepted[rows[good]] = True
        lost = np.flatnonzero(~good)
        if len(lost):
            self.ledger.harvest(points[lost])
            if self.working.shape[1] - self.conditioned < problem.labels:
                sets = self.ledger.sets[self.at[position[lost]]]
                beaten = self.ledger.checker.excess(sets, points[lost])
                for row, excess in zip(rows[lost].tolist(), beaten, strict=True):
                    self._extended[row] = self._extend(row, excess)
        return accepted

    def _extend(self, row: int, excess: Array) -> bool:
        """Bring the inequalities violated most into a working set; False where all are in it."""
        position = self.alive[row]
        order = excess.argsort()[:_CUTS]
        new = order[(excess[order] <= 0) & ~np.isin(order, self.working[position])]
        if not len(new):
            return False
        weight = self.problem.weight[row].numpy().copy()
        if self.conditioned:
            weight[-1] = np.inf
        columns = np.argsort(weight)[: len(new)]
        rows, offset = self._rows(self.at[position][None], new[None])
        scale = self.scale[position]
        self.problem.exchange(
            torch.tensor([row]),
            torch.zeros(len(new), dtype=torch.int64),
            torch.from_numpy(columns),
            torch.from_numpy(rows[0] / scale),
            torch.from_numpy(offset[0] / scale),
        )
        self.working[position, columns] = new
        self.tested[position] = np.inf
        return True


def _heaviest(weight: Array, count: int) -> Array:
    """All but the ``count`` largest of each row set to 0; the row as it is for 0."""
    if not 0 < count < weight.shape[1]:
        return weight
    least = -np.partition(-weight, count, axis=1)[:, count : count + 1]
    return np.where(weight > least, weight, 0.0)
