"""A domain that grows with what is observed, seldom and only outwards."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from unarg_callback.errors import DomainError, UnargError
from unarg_callback.monitoring.observed_domain import ObservedDomain, widened

finite = st.floats(allow_nan=False, allow_infinity=False)
boxes = st.lists(st.tuples(finite, finite).map(sorted), min_size=3, max_size=3).map(np.array)


class TestWidened:
    @given(finite, finite, st.floats(1, 1e6))
    @example(-1.7e308, 1.7e308, 2.0)
    @example(0.0, 5e-324, 1.5)
    def test_at_least_the_margin_exactly(self, a: float, b: float, margin: float) -> None:
        low, high = min(a, b), max(a, b)
        lower, upper = (float(end[0]) for end in widened(np.array([low]), np.array([high]), margin))
        assert lower <= low <= high <= upper
        assert np.isfinite([lower, upper]).all()
        if low == high or margin == 1:
            assert (lower, upper) == (low, high)
            return
        pad = (Fraction(high) - Fraction(low)) * (Fraction(margin) - 1) / 2
        largest = Fraction(np.finfo(np.float64).max)
        if high - low > 1e-300:  # Below, halves of subnormals are rounded.
            assert Fraction(lower) <= max(Fraction(low) - pad, -largest)
            assert Fraction(upper) >= min(Fraction(high) + pad, largest)

    @pytest.mark.parametrize("margin", [0.99, -1.0, float("nan"), float("inf")])
    def test_no_margin(self, margin: float) -> None:
        with pytest.raises(DomainError, match="from 1"):
            ObservedDomain(margin)


class TestCover:
    @given(st.lists(boxes, min_size=1, max_size=8), st.floats(1, 4))
    def test_it_holds_all_and_only_grows(self, seen: list[Any], margin: float) -> None:
        observed, before = ObservedDomain(margin), None
        for box in seen:
            low, high = box.T
            domain = observed.cover(low, high)
            assert (domain.low <= low).all()
            assert (high <= domain.high).all()
            if before is not None:
                assert (domain.low <= before.low).all()
                assert (domain.high >= before.high).all()
                inside = (before.low <= low).all() and (high <= before.high).all()
                assert (domain is before) == inside
            before = domain

    def test_a_slow_drift_changes_it_seldom(self) -> None:
        observed, domains = ObservedDomain(1.5), []
        for step in range(1000):
            reach = np.full(64, 1 + step / 100) + np.arange(64) / 1000
            domains.append(observed.cover(-reach, reach))
        changes = sum(one is not other for one, other in zip(domains, domains[1:], strict=False))
        assert changes <= 6

    def test_what_is_no_box(self) -> None:
        observed = ObservedDomain()
        for low, high in (([1.0], [0.0]), ([float("nan")], [1.0]), ([0.0], [float("inf")])):
            with pytest.raises(DomainError):
                observed.cover(np.array(low), np.array(high))
        assert observed.domain is None
        observed.cover(np.zeros(2), np.ones(2))
        with pytest.raises(DomainError, match="2 dimensions"):
            observed.cover(np.zeros(3), np.ones(3))

    def test_the_caller_keeps_its_arrays(self) -> None:
        low, high = np.zeros(2), np.ones(2)
        domain = ObservedDomain(1.0).cover(low, high)
        low -= 5
        assert domain.low.tolist() == [0.0, 0.0]


class TestState:
    def test_it_survives_a_safe_load(self) -> None:
        one, other = ObservedDomain(), ObservedDomain()
        domain = one.cover(np.array([-0.1, 0.0]), np.array([0.3, 0.0]))
        buffer = io.BytesIO()
        torch.save(one.state_dict(), buffer)
        buffer.seek(0)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert other.domain == domain
        assert other.cover(np.zeros(2), np.zeros(2)) == domain
        other.load_state_dict(ObservedDomain().state_dict())
        assert other.domain is None

    @pytest.mark.parametrize(
        "bad",
        [
            {},
            {"low": torch.zeros(2), "high": None},
            {"low": torch.zeros(2), "high": torch.zeros(3)},
            {"low": torch.ones(2), "high": torch.zeros(2)},
            {"low": [0.0], "high": [1.0]},
        ],
    )
    def test_damaged(self, bad: dict[str, Any]) -> None:
        observed = ObservedDomain()
        domain = observed.cover(np.zeros(2), np.ones(2))
        with pytest.raises(UnargError, match="state_dict"):
            observed.load_state_dict(bad)
        assert observed.domain is domain
