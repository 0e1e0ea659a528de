"""Inequalities in float64 with bounds on their errors, and systems of them solved to a proof."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.geometry.rounding import SMALLEST_NORMAL, gamma
from unarg_callback.label_sets.problem import Array, Problem

_TINY = 2.0**10 * SMALLEST_NORMAL[torch.float64]


@dataclass(frozen=True, eq=False)
class FloatRows:
    """``r_i = slope_i . v + constant_i`` for m inequalities, each entry with a bound on its error.

    Args:
        slope: (m, v) float64, in units of the problem.
        slope_error: (m, v).
        constant: (m,).
        constant_error: (m,).
    """

    slope: Array
    slope_error: Array
    constant: Array
    constant_error: Array


def float_rows(
    problem: Problem,
    labels: NDArray[np.bool_],
    sign: int,
    support: NDArray[np.int64],
    signed: bool,
) -> FloatRows:
    """The inequalities named, and the condition on the sum of z last if it takes part.

    Args:
        problem: the inequalities.
        labels: (K,) bool, the set.
        sign: of the sum of z.
        support: (m,) int64, labels.
        signed: whether the condition takes part.
    """
    # The constant goes along as one more column; each entry has one rounding so far.
    rows = np.hstack([problem.rows, problem.offset[:, None]])
    total = np.append(problem.total, problem.bias_sum)
    total_size = np.append(problem.total_size, problem.bias_size)
    side = np.where(labels[support], 1.0, -1.0)[:, None]
    value, size = rows[support], np.abs(rows[support])
    roundings = 4
    if problem.gap is not None:
        members = rows[labels]
        count = len(members)
        shift = problem.slope * sign * total - members.sum(0)
        reach = problem.slope * total_size + np.abs(members).sum(0)
        shift[-1] += problem.constant
        reach[-1] += problem.constant
        value, size = value + shift / count, size + reach / count
        roundings += count + (problem.labels if problem.slope else 0) + 12
    value = side * value
    if signed:
        value = np.vstack([value, sign * total])
        size = np.vstack([size, total_size])
        roundings += problem.labels
    error = gamma(roundings) * size + np.where(size > 0, _TINY, 0.0)
    slope, slope_error = value[:, :-1], error[:, :-1]
    if problem.ordered:
        slope = np.hstack([slope, -side])
        slope_error = np.hstack([slope_error, 0 * side])
    return FloatRows(slope, slope_error, value[:, -1], error[:, -1])


def enclosed_solution(matrix: Array, matrix_error: Array) -> tuple[Array, Array] | None:
    """Enclose the solution of ``M x = (0, ..., 0, 1)`` for every M within the errors.

    **Method** (Rump, *Verification methods*, 2010, section 10): with R any approximate inverse and
    x any approximate solution, if ``|I - R M|_inf <= alpha < 1`` then M is nonsingular and
    ``|M^-1 f - x| <= |R (f - M x)| + alpha / (1 - alpha) |R (f - M x)|_inf`` in every entry. What
    isn't known of M and what is rounded is added to each quantity.

    Args:
        matrix: (n, n) float64.
        matrix_error: (n, n), bounds on the errors of its entries.

    Returns:
        (n,) solution and (n,) bounds on its error, or None where that isn't proven.
    """
    count = len(matrix)
    # Powers of two bring rows of very different size together, exactly.
    scale = np.abs(matrix).max(1, initial=0.0) + matrix_error.max(1, initial=0.0)
    scale = 2.0 ** -np.frexp(np.where(scale > 0, scale, 1.0))[1].clip(-1000, 1000)
    matrix, matrix_error = matrix * scale[:, None], matrix_error * scale[:, None] + _TINY
    right = np.append(np.zeros(count - 1), scale[-1])
    with np.errstate(all="ignore"):
        try:
            inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            return None
        if not np.isfinite(inverse).all():
            return None
        g = gamma(count + 6)
        absolute, reach = np.abs(inverse), np.abs(matrix) + matrix_error
        defect = np.abs(np.eye(count) - inverse @ matrix) + absolute @ matrix_error * (1 + g)
        defect += g * (absolute @ reach)
        alpha = float(defect.sum(axis=1).max()) * (1 + g)
        if not alpha < 0.5:
            return None
        solution = inverse @ right
        solution += inverse @ (right - matrix @ solution)
        residual = np.abs(right - matrix @ solution) + matrix_error @ np.abs(solution) * (1 + g)
        residual += g * (np.abs(right) + reach @ np.abs(solution))
        spread = absolute @ residual * (1 + g)
        error = (spread + alpha / (1 - alpha) * spread.max()) * (1 + g)
    return (solution, error) if np.isfinite(error).all() else None
