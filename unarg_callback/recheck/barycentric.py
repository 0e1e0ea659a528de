"""Exact barycentric coordinates of a row in others, found somehow and shown by substitution."""

from __future__ import annotations

from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.recheck.errors import InexactError
from unarg_callback.recheck.lifting import pivots, primes, solve

_NO_COMBINATION = "no combination of the support equals the class's row"


def combination(
    rows: NDArray[Any], target: NDArray[Any], stored: list[int]
) -> tuple[list[int], int]:
    """Whole numbers n_j >= 0 with ``sum n_j rows_j == total target`` and ``sum n_j == total > 0``.

    Where they aren't unique, the lightest rows that are affinely dependent on heavier ones keep
    their stored weight, or else none. A linear solve proposes; what it proposes counts only where
    both equations hold to the last bit.

    Args:
        rows: (m, d) Python integers, those with the largest weights first.
        target: (d,) Python integers.
        stored: m whole numbers >= 0, the weights in the proof, up to a factor.

    Returns:
        The n_j, and the total.

    Raises:
        InexactError: no such numbers were found.
    """
    count = len(stored)
    lines = np.vstack([rows.T, np.ones((1, count), dtype=object)])
    wanted = np.append(target, 1)
    problem = _NO_COMBINATION
    for prime in primes(count):
        basis, chosen = pivots(lines, prime)
        rest = sorted(set(range(count)) - set(basis))
        for kept in ([stored[j] for j in rest], [0] * len(rest)):
            total = sum(stored)
            needed = total * wanted - lines[:, rest] @ np.array(kept, dtype=object)
            found = solve(lines[np.ix_(chosen, basis)], needed[chosen], prime)
            if found is None:
                continue
            numerators, denominator = found
            shares = [0] * count
            for j, n in zip(basis, numerators, strict=True):
                shares[j] = n
            for j, n in zip(rest, kept, strict=True):
                shares[j] = n * denominator
            if not _equal(lines, shares, wanted, total * denominator):
                continue
            if min(shares) >= 0:
                return shares, total * denominator
            problem = "an exact barycentric coordinate is negative"
        if problem != _NO_COMBINATION:
            break
    raise InexactError(problem)


def _equal(lines: NDArray[Any], shares: list[int], wanted: NDArray[Any], total: int) -> bool:
    return all(
        sum(map(mul, line, shares)) == total * goal
        for line, goal in zip(lines.tolist(), wanted.tolist(), strict=True)
    )
