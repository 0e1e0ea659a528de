r"""The inequalities that a label set asks of the input.

The *margin* of a set S at x is ``min_i r_i(x)`` with

    r_i = s_i (z_i - t),   s_i = +1 for i in S, -1 else.

The threshold t is what the rule compares with:

* :class:`ThresholdRule`: ``t = threshold_i``.
* :class:`SparsegenRule`: ``t = (sum_S z - (1 - lambda)) / |S|``, the map's own tau for the support
  S. S is the support exactly if ``z_i > t`` on S and ``z_i <= t`` elsewhere.
* :class:`SparsehourglassRule`: likewise with the gap ``(|sum z| + Kq) / (1 + Kq)`` in place of
  ``1 - lambda``: sparsemax of ``a z`` divided by a. For each sign s of the sum the gap is
  linear, with the condition ``s sum z >= 0`` besides. At 0 both are the same.
* :class:`TopRule`: the t that is best, ``(min_S z + max_else z) / 2``.

All are linear in x once S and the sign are fixed (the last with t as one more variable).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unarg_callback.errors import DomainError
from unarg_callback.geometry.domain import Domain
from unarg_callback.label_sets.head import LabelHead
from unarg_callback.label_sets.rules import (
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
)

Array = NDArray[np.float64]
Sets = NDArray[np.bool_]

RELATIVE_MIN_MARGIN = 1e-9
"""Default ``min_margin`` as a share of the least margin that matters; see ``_least_scale``."""

_CANCELLED = 1e-13
_LEAST_SIZE = 1e-200
_FREE_REACH = 1e3
"""Size of the window in the free domain, in units of what doesn't grow with x."""


@dataclass(frozen=True)
class Gap:
    """``constant + slope |sum z|``: what the excesses ``z_i - t`` of a support sum to."""

    constant: float
    slope: float


class Problem:
    """A head over a domain, in the units that everything is computed in.

    Rows of rules that ignore a common shift of z are taken relative to each column's median, so
    that an offset which all rows share costs no accuracy, whatever a few others have. All is
    divided by ``unit``, a power of two. Each entry of ``rows`` and ``offset`` carries one rounding.

    Args:
        head: the head.
        domain: where x may lie.
        min_margin: what a margin must exceed, in units of the logits. Default over a box: 1e-9 of
            the size of the least label against thresholds, or of the median one where labels are
            compared, and of a K-th of the map's gap; in the free domain 0.

    Raises:
        DomainError: the domain has bounds for another number of features, or min_margin is negative
            or not finite.
    """

    def __init__(self, head: LabelHead, domain: Domain, min_margin: float | None = None) -> None:
        self.head, self.domain = head, domain
        self.low, self.high = domain.bounds(head.dim)
        self.reach: Array = np.maximum(np.abs(self.low), np.abs(self.high))
        rule, bias = head.rule, head.bias
        self.ordered = isinstance(rule, TopRule)
        """Whether t is a variable."""
        self.gap: Gap | None = None
        if isinstance(rule, SparsegenRule):
            self.gap = Gap(1 - rule.lambda_, 0.0)
        elif isinstance(rule, SparsehourglassRule):
            self.gap = _hourglass_gap(rule.q, head.labels)
        self.signs: tuple[int, ...] = (1, -1) if self.gap and self.gap.slope else (1,)
        """Signs of the sum of z to tell apart."""
        rows = head.weight
        if isinstance(rule, ThresholdRule):
            offset = bias - rule.vector(head.labels)
        else:
            rows, offset = _centred(rows), _centred(bias)
        largest = max(np.abs(rows).max(), np.abs(offset).max(), self._largest_gap())
        self.unit = 2.0 ** min(max(math.frexp(float(largest))[1], -1000), 1000)
        self.rows: Array = rows / self.unit
        """(K, d) float64."""
        self.offset: Array = offset / self.unit
        """(K,) float64, less the thresholds."""
        # In these units first: their sum may overflow.
        used = float(len(self.signs) > 1)
        raw, raw_bias = head.weight / self.unit * used, bias / self.unit * used
        self.total: Array = raw.sum(0)
        """(d,) sum of the rows as they are, for ``sum z``; 0 where the rule has no use for it."""
        self.total_size: Array = np.abs(raw).sum(0)
        self.bias_sum, self.bias_size = float(raw_bias.sum()), float(np.abs(raw_bias).sum())
        self.constant = self.gap.constant / self.unit if self.gap else 0.0
        self.slope = self.gap.slope if self.gap else 0.0
        self.scale = float("inf") if domain.is_free else self._scale()
        """Largest margin that a row could have by size, in units of the logits."""
        default = 0.0 if domain.is_free else RELATIVE_MIN_MARGIN * self._least_scale()
        try:
            self.min_margin = default if min_margin is None else float(min_margin)
        except (TypeError, ValueError) as cause:
            raise DomainError(f"min_margin is {min_margin!r}; expected a number from 0") from cause
        if not (math.isfinite(self.min_margin) and self.min_margin >= 0):
            given = "the box is so large that logits overflow" if min_margin is None else "given"
            raise DomainError(
                f"min_margin is {self.min_margin} ({given}); expected a finite number from 0"
            )

    @cached_property
    def window(self) -> tuple[Array, Array]:
        """(d,) centre and (d,) spread of where to look: the box, or a large one if free."""
        if not self.domain.is_free:
            return self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        size = np.abs(self.rows).max(0)
        fixed = float(np.abs(self.offset).max() + self.constant)
        reach = _FREE_REACH * fixed if fixed > 0 else 1.0
        return np.zeros(self.head.dim), reach / np.where(size > _LEAST_SIZE, size, 1.0)

    @property
    def variables(self) -> int:
        """Columns of :meth:`constraints`: d, and one for t where it is a variable."""
        return self.head.dim + self.ordered

    @property
    def labels(self) -> int:
        """K."""
        return self.head.labels

    def trivial(self, sets: Sets) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(n,) which sets any input attains, and (n,) which the rule never outputs."""
        size = sets.sum(1)
        never = np.zeros(len(sets), dtype=np.bool_)
        always = never.copy()
        if self.ordered:
            always = (size == 0) | (size == self.labels)
        elif self.gap is not None:
            never = size == 0
        return always, never

    def constraints(
        self, sets: Sets, sign: int, at: NDArray[np.int64], centre: Array, spread: Array
    ) -> tuple[Array, Array]:
        """(n, m, v) rows a and (n, m) beta of ``r_i = a . u + beta`` at ``x = centre + spread u``.

        Row number K is ``sign sum(z) / K``. Where t is a variable it is the last one, in units of
        ``unit`` and of the largest logit of the window.

        Args:
            sets: (n, K), none trivial.
            sign: of the sum of z.
            at: (n, m) int64, which of the K + 1 inequalities.
            centre: (d,).
            spread: (d,).
        """
        rows, offset = self.rows * spread, self.offset + self.rows @ centre
        side = np.where(sets, 1.0, -1.0)
        total = sign * self.total * spread
        constant = sign * (self.bias_sum + self.total @ centre)
        rows = np.vstack([rows, total / self.labels])
        offset = np.append(offset, constant / self.labels)
        side = np.hstack([side, np.ones((len(sets), 1))])
        matrix, beta = rows[at], offset[at]
        own = at < self.labels
        if self.ordered:
            level = -np.full((*at.shape, 1), self.level(centre, spread))
            matrix = np.concatenate([matrix, level], axis=2)
        elif self.gap is not None:
            size = sets.sum(1)[:, None]
            excess = self.slope * total - sets @ rows[:-1]
            matrix = matrix + (excess / size)[:, None, :] * own[:, :, None]
            surplus = self.constant + self.slope * constant - sets @ offset[:-1, None]
            beta = beta + surplus / size * own
        chosen = np.take_along_axis(side, at, axis=1)
        return matrix * chosen[:, :, None], beta * chosen

    def level(self, centre: Array, spread: Array) -> float:
        """Largest size of a logit in the window ``centre + spread u``, in units of ``unit``."""
        size = np.abs(self.rows) @ spread + np.abs(self.offset + self.rows @ centre)
        return float(size.max()) or 1.0

    def _largest_gap(self) -> float:
        return self.gap.constant if self.gap else 0.0

    def _scale(self) -> float:
        middle, reach = self._extents()
        if isinstance(self.head.rule, ThresholdRule):
            return float((np.abs(middle) + reach).max()) * self.unit
        extent = float((middle + reach).max() - (middle - reach).min())
        return (extent + self._most_gap()) * self.unit

    def _least_scale(self) -> float:
        """Size of a margin that matters, in units of the logits; 0 if all is constant.

        A label that is masked by a bias of -1e9 must not decide what counts as a margin for the
        others. Against thresholds each label has a size of its own, and the least counts; where
        labels are compared with each other the median does, and a gap, however small, bounds all
        margins.
        """
        middle, reach = self._extents()
        size = np.abs(middle) + reach
        own = isinstance(self.head.rule, ThresholdRule)
        some = size[size > 0]
        bounds = [float(some.min() if own else np.median(some))] if len(some) else []
        gap = self._most_gap() if self.gap is not None else 0.0
        # The excesses z_i - t of a support sum to the gap; one that is 0 but for the rounding of
        # sum z (q = 0 and rows that cancel) is no measure of anything.
        if gap > 0 and (self.constant > 0 or gap > _CANCELLED * min(bounds, default=0.0)):
            bounds.append(gap / self.labels)
        return min(bounds, default=0.0) * self.unit

    def _extents(self) -> tuple[Array, Array]:
        """(K,) middles and (K,) half widths of the ranges of ``rows x + offset`` over the box."""
        centre, radius = self.window
        # Elementwise, so that it doesn't matter where a row stands.
        middle = (self.rows * centre).sum(1) + self.offset
        return middle, (np.abs(self.rows) * radius).sum(1)

    def _most_gap(self) -> float:
        centre, radius = self.window
        summed = abs(float(self.total @ centre) + self.bias_sum) + np.abs(self.total) @ radius
        return self.constant + self.slope * float(summed)


def _centred(values: Array) -> Array:
    return values - np.median(values, axis=0)


def _hourglass_gap(q: float, labels: int) -> Gap:
    reach = labels * q
    return Gap(1.0, 0.0) if math.isinf(reach) else Gap(reach / (1 + reach), 1 / (1 + reach))
