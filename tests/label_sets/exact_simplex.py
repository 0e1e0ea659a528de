"""A simplex method in rational arithmetic: slow, plain, and never wrong by rounding."""

from __future__ import annotations

from fractions import Fraction

from flint import fmpq

Vector = list[fmpq]


def rational(value: float | Fraction) -> fmpq:
    """The exact value."""
    exact = Fraction(value)
    return fmpq(exact.numerator, exact.denominator)


def maximum(cost: Vector, rows: list[Vector], right: Vector) -> fmpq:
    """``max cost.y`` with ``rows y <= right, y >= 0``, where ``right >= 0``; it must be bounded.

    By Bland's rule, which can't cycle.
    """
    assert all(value >= 0 for value in right)
    count, width = len(rows), len(cost)
    table = [
        [*row, *(fmpq(int(i == j)) for j in range(count)), value]
        for i, (row, value) in enumerate(zip(rows, right, strict=True))
    ]
    bottom = [*(-value for value in cost), *([fmpq(0)] * (count + 1))]
    basis = list(range(width, width + count))
    while True:
        enter = next((j for j, value in enumerate(bottom[:-1]) if value < 0), None)
        if enter is None:
            return bottom[-1]
        ratios = [
            (row[-1] / row[enter], basis[i], i) for i, row in enumerate(table) if row[enter] > 0
        ]
        if not ratios:
            raise AssertionError("unbounded")
        leave = min(ratios)[2]
        pivot = table[leave][enter]
        table[leave] = [value / pivot for value in table[leave]]
        for other in [*table[:leave], *table[leave + 1 :], bottom]:
            factor = other[enter]
            if factor != 0:
                other[:] = [a - factor * b for a, b in zip(other, table[leave], strict=True)]
        basis[leave] = enter
