"""Every cell of the paper's Tables 2 and 3, and two more ways to count."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unarg_callback.errors import UnargError
from unarg_callback.rankings import cells, counts, feasible_rankings, table_of_rankings

# As printed: rows are 2 to 10 classes, columns 1 to 10 features.
TABLE_2 = """
2 2 2 2 2 2 2 2 2 2
2 6 6 6 6 6 6 6 6 6
2 12 24 24 24 24 24 24 24 24
2 20 72 120 120 120 120 120 120 120
2 30 172 480 720 720 720 720 720 720
2 42 352 1512 3600 5040 5040 5040 5040 5040
2 56 646 3976 14184 30240 40320 40320 40320 40320
2 72 1094 9144 45992 143712 282240 362880 362880 362880
2 90 1742 18990 128288 557640 1575648 2903040 3628800 3628800
"""
TABLE_3 = """
2 2 2 2 2 2 2 2 2 2
4 6 6 6 6 6 6 6 6 6
7 18 24 24 24 24 24 24 24 24
11 46 96 120 120 120 120 120 120 120
16 101 326 600 720 720 720 720 720 720
22 197 932 2556 4320 5040 5040 5040 5040 5040
29 351 2311 9080 22212 35280 40320 40320 40320 40320
37 583 5119 27568 94852 212976 322560 362880 362880 362880
46 916 10366 73639 342964 1066644 2239344 3265920 3628800 3628800
"""


@pytest.mark.parametrize(("printed", "bias"), [(TABLE_2, False), (TABLE_3, True)])
def test_the_tables_of_the_paper(printed: str, bias: bool) -> None:
    expected = [[int(cell) for cell in row.split()] for row in printed.split("\n") if row]
    assert table_of_rankings(10, 10, bias=bias) == expected


@cache
def by_recurrence(classes: int, features: int) -> int:
    """Cover's recurrence, for layers without bias."""
    if classes == 1 or features == 0:
        return int(classes == 1)
    if classes == 2 or features == 1:
        return 2
    fewer = by_recurrence(classes - 1, features)
    return fewer + (classes - 1) * by_recurrence(classes - 1, features - 1)


@given(classes=st.integers(1, 90), features=st.integers(0, 45))
def test_by_the_recurrence(classes: int, features: int) -> None:
    assert feasible_rankings(classes, features) == by_recurrence(classes, features)


@given(classes=st.integers(2, 40), features=st.integers(0, 45))
def test_a_bias_is_a_feature_that_is_held_above_zero(classes: int, features: int) -> None:
    """Where it is above 0 the rankings are those with a bias, below 0 they are these reversed, and
    where it is 0 they are those without: each of them is on both sides."""
    with_bias = feasible_rankings(classes, features, bias=True)
    without = feasible_rankings(classes, features)
    assert feasible_rankings(classes, features + 1) == 2 * with_bias - without


# Draws that are in general position by far: a drawing leaves out what is too small to see.
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6])
def test_by_cutting_the_plane(bias: bool, seed: int, classes: int) -> None:
    draws = np.random.default_rng(seed)
    weight = draws.normal(size=(classes, 2))
    found = cells(weight, draws.normal(size=classes) if bias else None)
    assert len({cell.ranking for cell in found}) == len(found)
    assert len(found) == feasible_rankings(classes, 2, bias=bias)


def test_special_positions_have_fewer() -> None:
    """Two parallel differences in a square make two lines of the arrangement one."""
    square = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    assert len(cells(square)) == 8 < feasible_rankings(4, 2)


def test_all_rankings_from_one_feature_less_than_classes() -> None:
    for classes in range(1, 30):
        for bias in (False, True):
            for features in (classes - 1, classes, classes + 7):
                expected = math.factorial(classes)
                assert feasible_rankings(classes, features, bias=bias) == expected


@given(classes=st.integers(2, 60), most=st.integers(0, 70))
def test_power_sums_give_the_same_terms(classes: int, most: int) -> None:
    by_product = counts._stirling(classes, most) if most * counts._MANY >= classes else None
    terms = counts._from_power_sums(classes, most)
    assert by_product in (None, terms)
    assert sum(terms[:classes]) == feasible_rankings(classes, most, bias=True)
    assert not any(terms[classes:])


def test_sizes_of_real_layers() -> None:
    """Integers, not floats: a vocabulary's count has hundreds of digits, all of them right."""
    large = feasible_rankings(5000, 64, bias=True)
    assert len(str(large)) > 300
    # All terms but the last are those of one feature less.
    assert large - feasible_rankings(5000, 63, bias=True) == _stirling_by_columns(5000, 64)


def _stirling_by_columns(classes: int, k: int) -> int:
    """|s(C, C - k)| as a sum over the largest factor, column by column."""
    column = [1] * classes
    for _ in range(k):
        total, fresh = 0, [0] * classes
        for at in range(1, classes):
            total += at * column[at - 1]
            fresh[at] = total
        column = fresh
    return column[-1]


@pytest.mark.parametrize(
    ("classes", "features"), [(0, 2), (-1, 2), (3, -1), (2.0, 2), (3, 1.5), (True, 1), ("3", 2)]
)
def test_other_sizes_are_refused(classes: int, features: int) -> None:
    with pytest.raises(UnargError, match="expected a whole number from"):
        feasible_rankings(classes, features)


@pytest.mark.parametrize("bias", [False, True])
def test_tables_hold_what_is_counted_for_each_size(bias: bool) -> None:
    assert table_of_rankings(12, 14, bias=bias) == [
        [feasible_rankings(c, d, bias=bias) for d in range(1, 15)] for c in range(2, 13)
    ]


@pytest.mark.parametrize(("classes", "features"), [(400, 90), (400, 130), (2000, 150)])
def test_both_ways_to_count_agree(classes: int, features: int) -> None:
    terms = [1] + [0] * features
    for factor in range(1, classes):
        for k in range(features, 0, -1):
            terms[k] += factor * terms[k - 1]
    assert feasible_rankings(classes, features, bias=True) == sum(terms)
