"""Floats as what they are: integers times powers of two."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def integers(values: ArrayLike) -> tuple[NDArray[Any], int]:
    """Python integers n and an exponent e with ``values == n * 2**e`` exactly.

    Args:
        values: finite float64 of any shape.

    >>> integers([0.75, -2.0])
    (array([3, -8], dtype=object), -2)
    """
    mantissa, place = _parts(values)
    used = place[mantissa != 0]
    base = int(used.min()) if used.size else 0
    return _shifted(mantissa, place, base), base


def integers_at(values: ArrayLike, exponent: int) -> NDArray[Any]:
    """Python integers n with ``values == n * 2**exponent``.

    Args:
        values: finite float64 of any shape.
        exponent: at most :func:`lowest_exponent` of the values.
    """
    return _shifted(*_parts(values), exponent)


def lowest_exponent(values: NDArray[np.float64]) -> int:
    """The largest e for which all values are integers times ``2**e``; 0 where all are zero.

    >>> lowest_exponent(np.array([0.75, 2.0]))
    -2
    """
    lowest = None
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BLOCK):  # The parts take several times the values' memory.
        mantissa, place = _parts(flat[start : start + _BLOCK])
        used = place[mantissa != 0]
        if used.size:
            here = int(used.min())
            lowest = here if lowest is None else min(lowest, here)
    return 0 if lowest is None else lowest


def power(exponent: int) -> Fraction:
    """``2**exponent`` exactly."""
    return Fraction(2) ** exponent


_BLOCK = 1 << 22


def _parts(values: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Odd mantissas, or zeros, and the exponents that go with them."""
    fraction, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    mantissa = (fraction * 2.0**53).astype(np.int64)
    # Float32 values have 29 trailing zeros here: dropping them keeps the integers short.
    low_bit = np.where(mantissa == 0, 1, mantissa & -mantissa)
    mantissa = mantissa // low_bit
    place = exponent.astype(np.int64) - 53 + np.frexp(low_bit.astype(np.float64))[1] - 1
    return mantissa, place


def _shifted(mantissa: NDArray[np.int64], place: NDArray[np.int64], base: int) -> NDArray[Any]:
    shift = np.where(mantissa == 0, 0, place - base)
    return np.asarray(np.left_shift(mantissa.astype(object), shift.astype(object)), dtype=object)
