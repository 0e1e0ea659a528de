"""What has been proven so far of many label sets, and how one proof serves several."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from unarg_callback.label_sets.checker import SetChecker
from unarg_callback.label_sets.problem import Array, Problem, Sets
from unarg_callback.label_sets.proof import Combination, SetStatus
from unarg_callback.search.limits import Limits

Ids = NDArray[np.int64]

_ELEMENTS = 2**21
"""Most numbers in one array of a batch."""
_WIDEST = 4
"""Largest support that is worth sharing, in units of the number of variables and one."""
_TRIAL = 8


class Ledger:
    """Verdicts over n distinct sets. Only what the checker accepts gets in.

    Args:
        problem: the inequalities.
        sets: (n, K) bool, distinct.
        limits: when to stop.
    """

    def __init__(self, problem: Problem, sets: Sets, limits: Limits) -> None:
        self.problem, self.sets, self.limits = problem, sets, limits
        self.checker = SetChecker(problem)
        count = len(sets)
        self.status = np.full(count, SetStatus.UNDECIDED, dtype=np.int8)
        self.margin = np.full(count, np.nan)
        self.points = np.full((count, problem.head.dim), np.nan)
        self.combinations: dict[tuple[int, int], Combination] = {}
        """By set and sign."""
        self.bounds: dict[tuple[int, int], float] = {}
        self.covered = {sign: np.zeros(count, dtype=np.bool_) for sign in problem.signs}
        """(n,) for each sign, which sets have a combination."""
        self.reasons: dict[int, str] = {}
        self._codes = np.random.default_rng(1).integers(
            -(2**62), 2**62, size=problem.labels, dtype=np.int64
        )
        keys = self._keys(sets)
        self._order = keys.argsort(kind="stable")
        self._sorted_keys = keys[self._order]
        self.read_off()

    @property
    def batch(self) -> int:
        """How many sets to work on together."""
        return max(1, _ELEMENTS // (self.problem.labels + self.problem.head.dim))

    def open(self) -> Ids:
        """Sets without a verdict, ascending."""
        return np.flatnonzero(self.status == SetStatus.UNDECIDED)

    def missing(self, sign: int) -> Ids:
        """Sets without a verdict that have no combination for a sign."""
        return np.flatnonzero((self.status == SetStatus.UNDECIDED) & ~self.covered[sign])

    def read_off(self) -> None:
        """Settle the sets that every input attains, and those that the rule never outputs."""
        always, never = self.problem.trivial(self.sets)
        low, high = self.problem.low, self.problem.high
        self.status[always] = SetStatus.ATTAINABLE
        self.points[always] = 0.0 if self.problem.domain.is_free else low / 2 + high / 2
        self.margin[always] = np.inf
        self.status[never] = SetStatus.UNATTAINABLE
        self.margin[never] = -np.inf

    def offer_points(self, at: Ids, points: Array) -> NDArray[np.bool_]:
        """Offer each set at (n,) a point; return (n,) whether it is a witness."""
        accepted, margin = self.checker.margins(self.sets[at], points)
        good = np.flatnonzero(accepted & (self.status[at] == SetStatus.UNDECIDED))
        self.status[at[good]] = SetStatus.ATTAINABLE
        self.points[at[good]] = points[good]
        self.margin[at[good]] = margin[good]
        return accepted

    def harvest(self, points: Array, value: Array | None = None) -> int:
        """Offer each point to the set that it puts out, if that is among ours and open.

        Args:
            points: (n, d).
            value: :meth:`SetChecker.produced` of them, where it is known.

        Returns:
            How many sets that settled.
        """
        value = self.checker.produced(points) if value is None else value
        if self.problem.ordered:
            # Each point puts out one set of every size: the first so many in the order.
            order = (-value).argsort(1)
            keys = self._codes[order].cumsum(1)
        else:
            keys = self._keys(value > 0)[:, None]
        place = np.minimum(np.searchsorted(self._sorted_keys, keys), len(self._sorted_keys) - 1)
        hit, column = np.nonzero(self._sorted_keys[place] == keys)
        ids = self._order[place[hit, column]]
        fresh = self.status[ids] == SetStatus.UNDECIDED
        ids, hit = ids[fresh], hit[fresh]
        if not len(ids):
            return 0
        before = len(self.open())
        self.offer_points(ids, points[hit])
        return before - len(self.open())

    def offer_weights(
        self, at: Ids, sign: int, weights: Array, sign_weights: Array
    ) -> NDArray[np.bool_]:
        """Offer each set at (n,) the weights of a combination over the inequalities.

        Over the free domain only where they are above 0 counts.

        Returns:
            (n,) whether it is accepted.
        """
        if self.problem.domain.is_free:
            pairs = zip(at.tolist(), weights > 0, sign_weights > 0, strict=True)
            return np.array(
                [
                    not self.limits.reached()
                    and self.offer_support(one, sign, np.flatnonzero(used), bool(signed))
                    for one, used, signed in pairs
                ],
                dtype=np.bool_,
            )
        accepted, bound = self.checker.certificates(self.sets[at], sign, weights, sign_weights)
        for row in np.flatnonzero(accepted).tolist():
            support = np.flatnonzero(weights[row])
            part = Combination(support, weights[row, support].copy(), float(sign_weights[row]))
            self._enter(int(at[row]), sign, part, float(bound[row]))
        return accepted

    def offer_support(self, at: int, sign: int, support: Ids, signed: bool) -> bool:
        """Offer one set a combination of the inequalities named, over the free domain."""
        found = self.checker.free_certificate(self.sets[at], sign, support, signed)
        if found is None:
            return False
        self._enter(at, sign, Combination(support, found[0], found[1]), found[2])
        return True

    def share(self, sources: Iterable[int], sign: int) -> int:
        """Offer the combinations of some sets to all that ask the same of the labels they use.

        Returns:
            How many others took one.
        """
        if self.problem.domain.is_free and self.problem.gap is not None:
            # To try one costs as much as to find one.
            return 0
        taken = 0
        widest = _WIDEST * (self.problem.variables + 1)
        for source in sources:
            part = self.combinations.get((source, sign))
            if part is None or len(part.support) > widest or self.limits.reached():
                continue
            at = self.missing(sign)
            same = (self.sets[np.ix_(at, part.support)] == self.sets[source, part.support]).all(1)
            at = at[same]
            if self.problem.gap is None:
                # They ask the very same inequalities.
                for one in at.tolist():
                    self._enter(one, sign, part, self.bounds[source, sign])
                taken += len(at)
            elif self.spread(at[:_TRIAL], sign, part):
                # Their thresholds differ from set to set: a few tell whether it's worth it.
                taken += self.spread(at[_TRIAL:], sign, part)
        return taken

    def rule_out_sign(self, sign: int) -> None:
        """Settle a sign that the sum of z never has, which is the same for every set."""
        at = self.missing(sign)
        if not self.problem.slope or not len(at):
            return
        none = Combination(np.zeros(0, dtype=np.int64), np.zeros(0), 1.0)
        if self.spread(at[:1], sign, none):
            self.spread(at[1:], sign, none)

    def spread(self, at: Ids, sign: int, part: Combination) -> int:
        """Offer one combination to the sets at (n,); return how many took it."""
        taken = 0
        for start in range(0, len(at), self.batch):
            some = at[start : start + self.batch]
            weights = np.zeros((len(some), self.problem.labels))
            weights[:, part.support] = part.weight
            condition = np.full(len(some), part.sign_weight)
            taken += int(self.offer_weights(some, sign, weights, condition).sum())
        return taken

    def _enter(self, at: int, sign: int, part: Combination, bound: float) -> None:
        self.combinations[at, sign] = part
        self.bounds[at, sign] = bound
        self.covered[sign][at] = True
        signs = self.problem.signs
        if all(self.covered[one][at] for one in signs):
            self.status[at] = SetStatus.UNATTAINABLE
            self.margin[at] = max(self.bounds[at, one] for one in signs)

    def _keys(self, sets: Sets) -> Ids:
        with np.errstate(over="ignore"):
            return sets.astype(np.int64) @ self._codes
