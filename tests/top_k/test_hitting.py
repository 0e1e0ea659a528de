"""Hitting sets against enumeration."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unarg_callback.top_k.hitting import GivenUpError, hitting_set

SUPPORTS = st.lists(st.frozensets(st.integers(0, 7), max_size=4), max_size=7)


@given(SUPPORTS, st.integers(0, 4))
def test_agrees_with_enumeration(supports: list[frozenset[int]], size: int) -> None:
    found = hitting_set(supports, size)
    some = any(
        all(support & set(chosen) for support in supports)
        for count in range(size + 1)
        for chosen in combinations(range(8), count)
    )
    assert (found is not None) == some
    if found is not None:
        assert len(found) <= size
        assert all(support & found for support in supports)


def test_what_takes_too_long_is_given_up() -> None:
    lines = [frozenset({a, b}) for a, b in combinations(range(9), 2)]
    assert hitting_set(lines, 7) is None
    with pytest.raises(GivenUpError):
        hitting_set(lines, 7, most_nodes=5)
