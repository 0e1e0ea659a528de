"""A certificate with no box: w_t as an exact convex combination of rivals.

With x free in R^d a lead is bounded only if ``sum_i lambda_i (w_t - w_i) = 0`` exactly, which
floating-point weights never satisfy. So the proof names the rivals, and what is proven here is that
the exact solution lambda of

    sum_i lambda_i w_i = w_t,   sum_i lambda_i = 1

exists and has no negative entry. Every lead is then at most ``sum_i lambda_i (b_t - b_i)``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.geometry.rounding import SMALLEST_NORMAL, gamma

_RATIONAL_WORK = 3_000_000
"""Most integer operations in one rational elimination; more is left unproven."""

Array = NDArray[np.float64]


def barycentric_bound(
    rows: Array, biases: Array, target_row: Array, target_bias: Array
) -> float | None:
    """Prove a free-domain certificate and bound every lead of its class.

    Args:
        rows: (m, d) float64, exact rows of the rivals, affinely independent.
        biases: (m,) float64.
        target_row: (1, d) float64, exact.
        target_bias: (1,) float64.

    Returns:
        An upper bound on ``sum_i lambda_i (b_t - b_i)`` for the exact barycentric coordinates
        lambda of the target, or None if it isn't proven that they exist and are >= 0. The bound
        carries its rounding: it is exactly 0 where no bias tells the classes apart.
    """
    row, bias = target_row.reshape(-1), float(target_bias.reshape(-1)[0])
    if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
        return None
    if len(rows) == rows.shape[1] + 1:
        bound = _enclosed(rows, biases, row, bias)
        if bound is not None and bound <= 0:
            return bound
    return _rational(rows, biases, row, bias)


def coordinates_enclosure(rows: Array, row: Array) -> tuple[Array, Array] | None:
    """Enclose the barycentric coordinates of a point in a simplex of d + 1 vertices.

    **Method** (Rump, *Verification methods*, 2010, section 10): with ``M = [rows^T; 1]`` exact, R
    any approximate inverse and x any approximate solution of ``M x = f``, if
    ``|I - R M|_inf <= alpha < 1`` then M is nonsingular and
    ``|M^-1 f - x| <= |R (f - M x)| + alpha / (1 - alpha) |R (f - M x)|_inf`` in every entry. Each
    quantity is computed in float64 and its rounding, at most ``gamma(d + 3)`` times the product of
    absolute values, is added.

    Args:
        rows: (d + 1, d) float64.
        row: (d,) float64.

    Returns:
        (d + 1,) approximate coordinates and (d + 1,) bounds on their error, or None.
    """
    scale = 2.0 ** -np.frexp(max(np.abs(rows).max(), np.abs(row).max(), 1e-300))[1]
    matrix = np.vstack([rows.T * scale, np.ones(len(rows))])
    right = np.append(row * scale, 1.0)
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(inverse).all():
        return None
    g = gamma(len(rows) + 4)
    absolute = np.abs(inverse)
    defect = np.abs(np.eye(len(rows)) - inverse @ matrix) + g * (absolute @ np.abs(matrix))
    alpha = float(defect.sum(axis=1).max()) * (1 + g)
    if not alpha < 0.5:
        return None
    solution = inverse @ right
    solution += inverse @ (right - matrix @ solution)
    residual = np.abs(right - matrix @ solution)
    residual += g * (np.abs(right) + np.abs(matrix) @ np.abs(solution))
    spread = absolute @ residual * (1 + g)
    return solution, (spread + alpha / (1 - alpha) * spread.max()) * (1 + g)


def _enclosed(rows: Array, biases: Array, row: Array, bias: float) -> float | None:
    found = coordinates_enclosure(rows, row)
    if found is None or not (found[0] - found[1] >= 0).all():
        return None
    weight, error = found
    gap = bias - biases
    if not gap.any():
        return 0.0
    # gap has one rounding, the product one, the sum m: all relative to |gap| (|weight| + error).
    size = np.abs(gap) @ (np.abs(weight) + error)
    tiny = 4 * len(rows) * SMALLEST_NORMAL[torch.float64]
    return float(weight @ gap + np.abs(gap) @ error + gamma(len(rows) + 4) * size + tiny)


def _rational(rows: Array, biases: Array, row: Array, bias: float) -> float | None:
    """Solve for lambda in rational arithmetic; works for any number of rivals."""
    count, dim = rows.shape
    if count > dim + 1 or (dim + 1) * count * count > _RATIONAL_WORK:
        return None
    matrix = [[Fraction(v) for v in column] for column in rows.T.tolist()]
    system = [
        [*column, Fraction(value)] for column, value in zip(matrix, row.tolist(), strict=True)
    ]
    system.append([Fraction(1)] * (count + 1))
    weight = _solve(_integral(system), count)
    if weight is None or min(weight) < 0:
        return None
    gap = sum(
        (w * (Fraction(bias) - Fraction(b)) for w, b in zip(weight, biases.tolist(), strict=True)),
        Fraction(0),
    )
    nearest = float(gap)
    return nearest if Fraction(nearest) >= gap else float(np.nextafter(nearest, np.inf))


def _integral(system: list[list[Fraction]]) -> list[list[int]]:
    """Each equation times the common denominator of its entries, a power of two."""
    scaled = []
    for equation in system:
        denominator = max(value.denominator for value in equation)
        scaled.append([int(value * denominator) for value in equation])
    return scaled


def _solve(system: list[list[int]], unknowns: int) -> list[Fraction] | None:
    """Solve a consistent system of full column rank by Bareiss's fraction-free elimination.

    Returns None where it has no solution or more than one.
    """
    previous = 1
    for at in range(unknowns):
        pivot = next((i for i in range(at, len(system)) if system[i][at]), None)
        if pivot is None:
            return None
        system[at], system[pivot] = system[pivot], system[at]
        top = system[at]
        for equation in system[at + 1 :]:
            factor = equation[at]
            for k in range(at + 1, unknowns + 1):
                equation[k] = (equation[k] * top[at] - factor * top[k]) // previous
            equation[at] = 0
        previous = top[at]
    if any(equation[unknowns] for equation in system[unknowns:]):
        return None
    solution = [Fraction(0)] * unknowns
    for at in reversed(range(unknowns)):
        known = sum((system[at][k] * solution[k] for k in range(at + 1, unknowns)), Fraction(0))
        solution[at] = (system[at][unknowns] - known) / system[at][at]
    return solution
