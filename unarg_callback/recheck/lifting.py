"""Solve linear systems of large integers: modulo a prime, then digit by digit (Dixon 1982).

Nothing here has to be believed: whoever uses a solution substitutes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TRIES = 3
"""Primes; one in a million matrices is singular modulo one of them and not in truth."""
_MANTISSA = 53


def primes(size: int) -> Iterator[int]:
    """A few primes so small that sums of ``size`` products modulo one are exact in float64."""
    bits = min(21, (_MANTISSA - _bits(size)) // 2)
    found, number = 0, (1 << bits) - 1
    while found < _TRIES and number > 2:
        if all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2)):
            found += 1
            yield number
        number -= 2


def pivots(matrix: NDArray[Any], prime: int) -> tuple[list[int], list[int]]:
    """Columns independent of those before them modulo a prime, and rows that tell them apart.

    Columns that are independent modulo a prime are independent.

    Args:
        matrix: (k, m) Python integers.
        prime: below 2**31.

    Returns:
        r columns and r rows; the r x r matrix of both is nonsingular modulo the prime.
    """
    work = _modulo(matrix, prime)
    rows, columns = [], []
    free = np.ones(len(work), dtype=bool)
    for column in range(work.shape[1]):
        nonzero = np.flatnonzero(free & (work[:, column] != 0))
        if not len(nonzero):
            continue
        row = int(nonzero[0])
        free[row] = False
        rows.append(row)
        columns.append(column)
        if not free.any():
            break
        scaled = work[row, column:] * pow(int(work[row, column]), -1, prime) % prime
        left = nonzero[1:]
        work[left, column:] = (work[left, column:] - work[left, column, None] * scaled) % prime
    return columns, rows


def solve(matrix: NDArray[Any], right: NDArray[Any], prime: int) -> tuple[list[int], int] | None:
    """Numerators and the common denominator of the solution of a square system.

    Args:
        matrix: (n, n) Python integers.
        right: (n,) Python integers.
        prime: modulo which the matrix is nonsingular.

    Returns:
        None where it is singular modulo the prime, or no fraction as small as the solution's must
        be was found.
    """
    size = len(matrix)
    if not size:
        return [], 1
    inverse = _inverse(_modulo(matrix, prime), prime)
    if inverse is None:
        return None
    digits = _Digits(matrix, right, inverse, prime)
    # Hadamard: no minor is longer than the product of its rows' lengths.
    norms = [sum(n * n for n in row) for row in matrix.tolist()]
    bits = sum(_bits(norm) for norm in norms) // 2 + size
    needed = 2 * (bits + max(_bits(n) for n in right.tolist())) + 2
    last = needed // (_bits(prime) - 1) + 1
    for steps in sorted({max(last // 4, 1), last}):
        digits.extend(steps)
        found = _fractions(digits.value.tolist(), digits.modulus, bits)
        if found is not None and _solves(matrix, right, *found):
            return found
    return None


class _Digits:
    """The solution modulo a growing power of the prime.

    Args:
        matrix: (n, n) Python integers.
        right: (n,) Python integers.
        inverse: (n, n) int64, the matrix's inverse modulo the prime.
        prime: the base of the digits.
    """

    def __init__(
        self, matrix: NDArray[Any], right: NDArray[Any], inverse: NDArray[np.int64], prime: int
    ) -> None:
        self.value = np.zeros(len(matrix), dtype=object)
        self.modulus = 1
        self._steps = 0
        self._prime = prime
        self._left = right.copy()
        half = prime // 2
        self._inverse = np.where(inverse > half, inverse - prime, inverse).astype(np.float64)
        # Limbs so short that their products with a digit add up exactly in float64.
        self._limb = _MANTISSA - _bits(prime) - _bits(len(matrix)) + 1
        self._limbs = _limbs(matrix, self._limb)

    def extend(self, steps: int) -> None:
        """Go on until there are so many digits."""
        while self._steps < steps:
            remainder = _modulo(self._left, self._prime)
            remainder[remainder > self._prime // 2] -= self._prime
            digit = (self._inverse @ remainder.astype(np.float64)).astype(np.int64) % self._prime
            digit[digit > self._prime // 2] -= self._prime
            product = np.zeros(len(digit), dtype=object)
            for place, limb in enumerate(self._limbs):
                part = (limb @ digit.astype(np.float64)).astype(np.int64).astype(object)
                product = product + np.left_shift(part, place * self._limb)
            self._left = (self._left - product) // self._prime
            self.value = self.value + digit.astype(object) * self.modulus
            self.modulus *= self._prime
            self._steps += 1


def _limbs(matrix: NDArray[Any], bits: int) -> list[NDArray[np.float64]]:
    """Float64 matrices M_k of whole numbers below ``2**bits`` with ``sum M_k 2**(k bits)``."""
    sign = np.where(matrix < 0, -1, 1).astype(np.int64)
    size, parts = np.abs(matrix), []
    mask = (1 << bits) - 1
    while True:
        parts.append((sign * (size & mask).astype(np.int64)).astype(np.float64))
        size = size >> bits
        if not size.any():
            return parts


def _inverse(matrix: NDArray[np.int64], prime: int) -> NDArray[np.int64] | None:
    size = len(matrix)
    work = np.hstack([matrix, np.eye(size, dtype=np.int64)])
    for column in range(size):
        nonzero = np.flatnonzero(work[column:, column])
        if not len(nonzero):
            return None
        row = column + int(nonzero[0])
        work[[column, row]] = work[[row, column]]
        work[column] = work[column] * pow(int(work[column, column]), -1, prime) % prime
        factors = work[:, column].copy()
        factors[column] = 0
        left = work[:, column:]  # Before it the pivot's row is zero.
        left -= factors[:, None] * work[column, column:]
        left %= prime
    return work[:, size:]


def _fractions(values: list[int], modulus: int, bits: int) -> tuple[list[int], int] | None:
    """Numerators over one denominator below ``2**bits``, congruent to the values."""
    denominator, limit = 1, math.isqrt(modulus // 2)
    for value in values:
        scaled = value * denominator % modulus
        if min(scaled, modulus - scaled) > limit:
            denominator *= _denominator(scaled, modulus, limit)
        if denominator >> bits:
            return None
    half = modulus // 2
    numerators = [value * denominator % modulus for value in values]
    return [n - modulus if n > half else n for n in numerators], denominator


def _denominator(value: int, modulus: int, limit: int) -> int:
    """The denominator of the fraction with a numerator up to the limit, congruent to the value."""
    before, now, second_before, second = modulus, value, 0, 1
    while now > limit:
        quotient = before // now
        before, now = now, before - quotient * now
        second_before, second = second, second_before - quotient * second
    return abs(second)


def _solves(
    matrix: NDArray[Any], right: NDArray[Any], numerators: list[int], denominator: int
) -> bool:
    return bool((matrix @ np.array(numerators, dtype=object) == denominator * right).all())


def _modulo(values: NDArray[Any], prime: int) -> NDArray[np.int64]:
    return np.asarray(values % prime, dtype=np.int64)


def _bits(number: int) -> int:
    return abs(int(number)).bit_length()
