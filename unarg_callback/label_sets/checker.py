"""The one checker of label sets: it turns candidate proofs into verdicts, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.geometry.rounding import SMALLEST_NORMAL, gamma
from unarg_callback.label_sets.problem import Array, Problem, Sets
from unarg_callback.label_sets.rational import FreeProver

_TINY = SMALLEST_NORMAL[torch.float64]
_LEAST_WEIGHT = 2.0**-500


@dataclass(frozen=True, eq=False)
class _Logits:
    """Logits at n points with bounds on their errors, (n, K) in units of the problem."""

    value: Array
    error: Array
    points: Array


class SetChecker:
    """Decides candidate proofs for one head, rule and domain.

    All is float64 with bounds by the standard model (see ``geometry/rounding.py``): a sum of
    products errs by at most ``gamma(n)`` times the sum of the absolute values of its terms, n the
    number of roundings that a term goes through. Underflow adds the smallest normal number for each
    operation, unless all terms are exactly 0.

    Args:
        problem: the inequalities.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._prover = FreeProver(problem)
        self._operations = 16 * (problem.labels + 2) * (problem.head.dim + 2)
        reach = np.where(np.isfinite(problem.reach), problem.reach, 0.0)
        self._tiny = self._operations * _TINY * (1 + float(reach.max()))
        self._absolute = np.abs(problem.rows)
        self._nonzero = problem.rows.any(1) | (problem.offset != 0)

    def margins(self, sets: Sets, points: Array) -> tuple[NDArray[np.bool_], Array]:
        """Check n candidate witnesses.

        Args:
            sets: (n, K) bool.
            points: (n, d) float64, taken as exact.

        Returns:
            (n,) accepted, and (n,) lower bounds on the margin, in units of the logits.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._logits(points)
            lower = (
                self._ordered(sets, logits) if self.problem.ordered else self._rows(sets, logits)
            )
            always, never = self.problem.trivial(sets)
            lower = np.where(always, np.inf, np.where(never, -np.inf, lower * self.problem.unit))
        inside = self.problem.domain.contains(points)
        return inside & (lower > self.problem.min_margin), lower

    def produced(self, points: Array) -> Array:
        """(n, K) float64: ``z_i - t``, positive for the labels that each point puts out.

        Computed as it comes, for the search: what it says is a proposal. Where t is a variable it
        is z itself, in units of the problem as all else here.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            value = points @ self.problem.rows.T + self.problem.offset
            if self.problem.gap is None:
                return np.asarray(value)
            gap, _ = self._gaps(points)
            ordered = -np.sort(-value, axis=1)
            sums = np.cumsum(ordered, axis=1) - gap[:, None]
            rank = np.arange(1, value.shape[1] + 1)
            size = np.maximum((ordered * rank > sums).sum(1), 1)
            tau = sums[np.arange(len(value)), size - 1] / size
            return np.asarray(value - tau[:, None])

    def excess(self, sets: Sets, points: Array) -> Array:
        """(n, K) ``r_i`` of each set at its point, as it comes; in units of the problem."""
        with np.errstate(over="ignore", invalid="ignore"):
            value = points @ self.problem.rows.T + self.problem.offset
            if self.problem.ordered:
                low = np.where(sets, value, np.inf).min(1)
                high = np.where(sets, -np.inf, value).max(1)
                value = value - (low / 2 + high / 2)[:, None]
            elif self.problem.gap is not None:
                size = np.maximum(sets.sum(1), 1)
                shift = ((value * sets).sum(1) - self._gaps(points)[0]) / size
                value = value - shift[:, None]
            return np.where(sets, value, -value)

    def certificates(
        self, sets: Sets, sign: int, weights: Array, sign_weights: Array
    ) -> tuple[NDArray[np.bool_], Array]:
        """Check n candidate combinations over a box.

        With ``s`` the sum of the weights, every margin is at most
        ``max_x (sum_i weight_i r_i + sign_weight sign sum z) / s`` where ``sign sum z >= 0``.
        A combination of that condition alone shows, where its maximum is negative, that it is never
        met. Weights beyond ``2 ** +-500`` are refused.

        Args:
            sets: (n, K) bool.
            sign: the sign of the sum of z that the combination is for.
            weights: (n, K) float64.
            sign_weights: (n,) float64.

        Returns:
            (n,) accepted, and (n,) upper bounds on the margin, in units of the logits.
        """
        problem = self.problem
        total = weights.sum(1)
        with np.errstate(all="ignore"):
            terms = self._combined(sets, sign, weights, sign_weights)
            if problem.ordered:
                total = np.ones(len(sets))
            direction = terms.row @ problem.rows + terms.sum[:, None] * problem.total
            upper = np.maximum(problem.low * direction, problem.high * direction).sum(1)
            upper += terms.row @ problem.offset + terms.sum * problem.bias_sum + terms.constant
            size = (terms.row_size @ self._absolute) @ problem.reach
            size += terms.sum_size * (problem.total_size @ problem.reach + problem.bias_size)
            size += terms.row_size @ np.abs(problem.offset) + np.abs(terms.constant_size)
            used = int((terms.row_size > 0).sum(1).max(initial=0))
            several = problem.labels if problem.gap is not None else used
            error = gamma(2 * used + several + problem.head.dim + 32) * size
            touched = (terms.row_size > 0) @ self._nonzero.astype(np.float64) > 0
            summed = bool(problem.total_size.any() or problem.bias_size)
            touched |= (terms.constant_size != 0) | (summed & (terms.sum_size != 0))
            error += np.where(touched, self._tiny, 0.0)
            least = upper + error
            bound = np.where(total > 0, least / total, -np.inf) * problem.unit
            bound += np.abs(np.where(np.isfinite(bound), bound, 0.0)) * gamma(4)
        valid = _sound(weights) & _sound(sign_weights[:, None]) & np.isfinite(least)
        if problem.ordered:
            valid &= (weights * sets).any(1) & (weights * ~sets).any(1)
        if not problem.slope:
            valid &= sign_weights == 0
        empty = (total == 0) & (sign_weights > 0) & (least < 0)
        return valid & (((total > 0) & (bound <= problem.min_margin)) | empty), bound

    def free_certificate(
        self, labels: NDArray[np.bool_], sign: int, support: NDArray[np.int64], signed: bool
    ) -> tuple[Array, float, float] | None:
        """Prove a combination in the free domain, of the inequalities that are named.

        Args:
            labels: (K,) bool, the set.
            sign: as for :meth:`certificates`.
            support: (m,) int64, labels.
            signed: whether the condition on the sum takes part.

        Returns:
            The nearest float64 to the exact weights, to that of the condition, and an upper bound
            on the margin (-infinity where the condition is never met); None where it isn't proven
            that it is at most ``min_margin``.
        """
        found = self._prover.bound(labels, sign, support, signed)
        return found if found is not None and found[2] <= self.problem.min_margin else None

    def _logits(self, points: Array) -> _Logits:
        problem = self.problem
        value = points @ problem.rows.T + problem.offset
        error = np.abs(points) @ self._absolute.T + np.abs(problem.offset)
        tiny = self._operations * _TINY * (1 + np.abs(points).max(1, initial=0.0))
        error = gamma(problem.head.dim + 6) * error + np.where(self._nonzero, tiny[:, None], 0.0)
        return _Logits(value, error, points)

    def _gaps(self, points: Array) -> tuple[Array, Array]:
        """(n,) gap at each point, and the bound on its error."""
        problem = self.problem
        summed = points @ problem.total + problem.bias_sum
        size = np.abs(points) @ problem.total_size + problem.bias_size
        error = gamma(problem.labels + problem.head.dim + 8) * size
        error += self._operations * _TINY * (1 + np.abs(points).max(1, initial=0.0))
        gap = problem.constant + problem.slope * np.abs(summed)
        return gap, problem.slope * error + gamma(8) * gap

    def _rows(self, sets: Sets, logits: _Logits) -> Array:
        value, error = logits.value, logits.error
        side = np.where(sets, 1.0, -1.0)
        if self.problem.gap is not None:
            size = np.maximum(sets.sum(1), 1)
            members = sets.astype(np.float64)
            gap, gap_error = self._gaps(logits.points)
            mean = (value * members).sum(1) / size
            spread = (np.abs(value) * members).sum(1) / size
            shift = mean - gap / size
            shift_error = ((error * members).sum(1) + gap_error) / size
            shift_error += gamma(self.problem.labels + 8) * (spread + gap / size)
            shift_error *= 1 + gamma(self.problem.labels + 8)
            value = value - shift[:, None]
            error = error + shift_error[:, None] + gamma(2) * np.abs(value)
        return np.asarray((side * value - error * (1 + gamma(8))).min(1))

    def _ordered(self, sets: Sets, logits: _Logits) -> Array:
        error = logits.error * (1 + gamma(8))
        low = np.where(sets, logits.value - error, np.inf).min(1)
        high = np.where(sets, -np.inf, logits.value + error).max(1)
        # The two sums and their difference have one rounding each.
        return (low - high - gamma(4) * (np.abs(low) + np.abs(high))) / 2

    def _combined(self, sets: Sets, sign: int, weights: Array, sign_weights: Array) -> _Terms:
        problem = self.problem
        side = np.where(sets, 1.0, -1.0)
        none = np.zeros(len(sets))
        if problem.ordered:
            inner, outer = weights * sets, weights * ~sets
            row = inner / inner.sum(1, keepdims=True) / 2
            row = row - outer / outer.sum(1, keepdims=True) / 2
            return _Terms(row, np.abs(row), none, none, none, none)
        row, signed = side * weights, (side * weights).sum(1)
        if problem.gap is None:
            return _Terms(row, weights, none, none, none, none)
        size = np.maximum(sets.sum(1), 1)
        share, whole = signed / size, weights.sum(1) / size
        return _Terms(
            row - share[:, None] * sets,
            weights + whole[:, None] * sets,
            sign * (problem.slope * share + sign_weights),
            problem.slope * whole + sign_weights,
            problem.constant * share,
            problem.constant * whole,
        )


@dataclass(frozen=True, eq=False)
class _Terms:
    """A combination as ``sum_i row_i z_i + sum * (sum_i z_i) + constant``, and sizes of terms."""

    row: Array
    row_size: Array
    sum: Array
    sum_size: Array
    constant: Array
    constant_size: Array


def _sound(weights: Array) -> NDArray[np.bool_]:
    fine = (weights == 0) | ((weights >= _LEAST_WEIGHT) & (weights <= 1 / _LEAST_WEIGHT))
    return np.asarray(fine.all(1))
