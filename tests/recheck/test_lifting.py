"""Solutions of integer systems, by substitution and against plain elimination."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unarg_callback.recheck.lifting import pivots, primes, solve


def whole(values: Any) -> NDArray[Any]:
    return np.array(values, dtype=object)


def prime(size: int) -> int:
    return next(primes(size))


def determinant(matrix: list[list[Fraction]]) -> Fraction:
    rows, value = [list(row) for row in matrix], Fraction(1)
    for k in range(len(rows)):
        at = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if at is None:
            return Fraction(0)
        if at != k:
            rows[k], rows[at], value = rows[at], rows[k], -value
        value *= rows[k][k]
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return value


entries = st.one_of(
    st.integers(-3, 3), st.integers(-(2**70), 2**70), st.sampled_from([2**200, -(2**900)])
)


@given(data=st.data(), size=st.integers(1, 5))
def test_solutions_are_exact(data: st.DataObject, size: int) -> None:
    matrix = whole(data.draw(st.lists(st.lists(entries, min_size=size, max_size=size),
                                      min_size=size, max_size=size)))  # fmt: skip
    right = whole(data.draw(st.lists(entries, min_size=size, max_size=size)))
    singular = determinant([[Fraction(n) for n in row] for row in matrix.tolist()]) == 0
    found = solve(matrix, right, prime(size))
    if singular:
        assert found is None
        return
    assert found is not None
    numerators, denominator = found
    assert (matrix @ whole(numerators) == denominator * right).all()


def test_a_large_system() -> None:
    rng = np.random.default_rng(0)
    matrix = whole(rng.integers(-(2**50), 2**50, (40, 40)).tolist())
    right = whole(rng.integers(-(2**50), 2**50, 40).tolist())
    found = solve(matrix, right, prime(40))
    assert found is not None
    assert (matrix @ whole(found[0]) == found[1] * right).all()
    assert found[1] > 2**1000


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 8), st.integers(0, 6))
def test_pivots_are_a_basis_of_the_first_independent_columns(
    seed: int, rows: int, columns: int, rank: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-5, 6, (rows, rank)) @ rng.integers(-5, 6, (rank, columns))
    chosen, lines = pivots(whole(matrix.tolist()).reshape(rows, columns), prime(rows))
    ranks = [
        np.linalg.matrix_rank(matrix[:, : k + 1]) if matrix.size else 0 for k in range(columns)
    ]
    assert chosen == [k for k in range(columns) if ranks[k] > (ranks[k - 1] if k else 0)]
    assert len(set(lines)) == len(chosen)
    square = matrix[np.ix_(lines, chosen)]
    assert np.linalg.matrix_rank(square) == len(chosen) if len(chosen) else True


@pytest.mark.parametrize("size", [1, 121, 5000, 10**6])
def test_products_modulo_a_prime_add_up_exactly(size: int) -> None:
    found = list(primes(size))
    assert len(found) == 3
    for number in found:
        assert all(number % k for k in range(2, int(number**0.5) + 1))
        assert size * (number // 2 + 1) ** 2 <= 2**53


def test_an_unlucky_prime_is_no_answer() -> None:
    unlucky = prime(1)
    assert solve(whole([[unlucky]]), whole([1]), unlucky) is None
    assert solve(whole([[unlucky]]), whole([1]), list(primes(1))[1]) == ([1], unlucky)
