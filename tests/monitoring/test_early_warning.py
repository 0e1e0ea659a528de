"""Leads and trends against a plain loop over classes, and the list of who is at risk."""

from __future__ import annotations

import io
import json
import math
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unarg_callback.errors import UnargError
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.early_warning import LATEST_WEIGHT, AtRisk, LeadHistory, forewarned

Check = tuple[list[Status], list[float], float]


def taught(*checks: list[float], scale: float = 1.0) -> LeadHistory:
    """A history of checks in which NaN stands for a class that was proven unargmaxable."""
    history = LeadHistory()
    for leads in checks:
        lead = np.array(leads)
        status = np.where(np.isnan(lead), Status.UNARGMAXABLE, Status.ARGMAXABLE).astype(np.int8)
        history.update(status, np.where(np.isnan(lead), -1.0, lead), scale)
    return history


class Plain:
    """The same history of one class, in a few scalars."""

    def __init__(self) -> None:
        self.lead: np.float32 | None = None
        self.trend: np.float32 | None = None

    def update(self, status: Status, lead: float, scale: float) -> None:
        usable = status == Status.ARGMAXABLE and math.isfinite(scale) and scale > 0
        value = np.float32(np.float64(lead) / np.float64(scale)) if usable else None
        if value is None or not np.isfinite(value):
            self.lead = self.trend = None
            return
        if self.lead is None:
            self.trend = None
        else:
            change = value - self.lead
            if self.trend is None:
                self.trend = change
            else:
                self.trend += np.float32(LATEST_WEIGHT) * (change - self.trend)
            if not np.isfinite(self.trend):
                self.trend = None
        self.lead = value

    @property
    def predicted(self) -> np.float32:
        assert self.lead is not None
        falling = self.lead + min(self.trend or np.float32(0), np.float32(0))
        return np.float32(max(falling, min(self.lead, self.lead / np.float32(2))))


numbers = st.floats(-1e3, 1e3) | st.floats() | st.sampled_from([0.0, 1.0, 2.0])
scales = st.floats(1e-3, 1e3) | st.sampled_from([1.0, 1.0, 0.0, -1.0, math.nan, math.inf, 5e-324])
statuses = st.sampled_from([Status.ARGMAXABLE, Status.ARGMAXABLE, Status.ARGMAXABLE, *Status])


@st.composite
def runs(draw: st.DrawFn) -> list[Check]:
    classes = draw(st.integers(0, 40))
    vector = st.lists(statuses, min_size=classes, max_size=classes)
    leads = st.lists(numbers, min_size=classes, max_size=classes)
    return draw(st.lists(st.tuples(vector, leads, scales), max_size=6))


@given(run=runs(), limit=st.integers(-1, 45))
def test_it_is_a_loop_over_classes(run: list[Check], limit: int) -> None:
    history = LeadHistory()
    plain = [Plain() for _ in run[0][0]] if run else []
    for status, lead, scale in run:
        history.update(np.array(status, np.int8), np.array(lead, np.float64), scale)
        with np.errstate(all="ignore"):
            for one, *values in zip(plain, status, lead, strict=True):
                one.update(values[0], values[1], scale)  # type: ignore[arg-type]
    nan = np.float32(np.nan)
    lead_expected = np.array([nan if one.lead is None else one.lead for one in plain])
    trend_expected = np.array([nan if one.trend is None else one.trend for one in plain])
    np.testing.assert_array_equal(history.lead, lead_expected.astype(np.float32))
    np.testing.assert_array_equal(history.trend, trend_expected.astype(np.float32))
    with np.errstate(all="ignore"):
        known = [(one.predicted, index) for index, one in enumerate(plain) if one.lead is not None]
    expected = sorted(known)[: max(limit, 0)]
    found = [(entry.predicted, entry.index) for entry in history.at_risk(limit)]
    assert found == [(float(value), index) for value, index in expected]


class TestUpdate:
    def test_lead_over_scale(self) -> None:
        history = taught([4.0, 8.0, math.nan], scale=8.0)
        np.testing.assert_array_equal(history.lead, [0.5, 1.0, math.nan])
        assert np.isnan(history.trend).all()

    def test_trends(self) -> None:
        history = taught([8.0, 1.0], [6.0, 2.0], [0.0, 5.0])
        np.testing.assert_array_equal(history.trend, [-4.0, 2.0])

    @pytest.mark.parametrize("gap", [Status.UNARGMAXABLE, Status.UNDECIDED, Status.EXCLUDED])
    def test_a_gap_starts_anew(self, gap: Status) -> None:
        history = taught([5.0, 5.0], [4.0, 4.0])
        history.update(np.array([gap, Status.ARGMAXABLE], np.int8), np.array([9.0, 3.0]), 1.0)
        assert np.isnan([history.lead[0], history.trend[0]]).all()
        history.update(np.ones(2, np.int8), np.array([1.0, 2.0]), 1.0)
        assert history.lead[0] == 1.0
        assert np.isnan(history.trend[0])
        assert history.trend[1] == -1.0

    @pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, -math.inf])
    def test_a_scale_that_means_nothing(self, scale: float) -> None:
        history = taught([1.0, 2.0])
        history.update(np.ones(2, np.int8), np.array([1.0, 2.0]), scale)
        assert np.isnan(history.lead).all()
        assert history.at_risk() == ()
        assert history.quantiles() == {}

    def test_leads_beyond_float32_are_unknown(self) -> None:
        history = taught([1e39, -1e39, math.inf, 1.0], [1.0, 1.0, 1.0, 1.0])
        assert np.isnan(history.trend).tolist() == [True, True, True, False]
        assert [entry.index for entry in taught([1e39, math.inf, 1.0]).at_risk()] == [2]

    def test_changes_beyond_float32_are_no_trend(self) -> None:
        history = taught([3e38], [-3e38])
        assert np.isnan(history.trend).all()
        assert [entry.predicted for entry in history.at_risk()] == history.lead.tolist()

    def test_another_number_of_classes_starts_anew(self) -> None:
        history = taught([1.0, 2.0], [2.0, 3.0], [1.0, 2.0, 3.0])
        assert history.lead.tolist() == [1.0, 2.0, 3.0]
        assert np.isnan(history.trend).all()

    def test_the_caller_keeps_its_arrays(self) -> None:
        history = LeadHistory()
        status, lead = np.array([1, 2], np.int8), np.array([1.0, 2.0])
        history.update(status, lead, 1.0)
        assert (status.tolist(), lead.tolist()) == ([1, 2], [1.0, 2.0])
        lead[0] = 9.0
        assert history.lead[0] == 1.0

    def test_misfits(self) -> None:
        with pytest.raises(UnargError, match=r"\(2,\).*\(3,\)"):
            LeadHistory().update(np.ones(2, np.int8), np.ones(3), 1.0)
        with pytest.raises(UnargError, match="expected"):
            LeadHistory().update(np.ones((2, 2), np.int8), np.ones((2, 2)), 1.0)

    def test_eight_bytes_a_class(self) -> None:
        history = LeadHistory()
        for _ in range(3):
            history.update(np.ones(10_000, np.int8), np.ones(10_000), 1.0)
        arrays = [value for value in vars(history).values() if isinstance(value, np.ndarray)]
        assert sum(array.nbytes for array in arrays) == 80_000
        assert all(array.base is None for array in arrays)
        assert len(arrays) == len(vars(history))


class TestAtRisk:
    def test_a_falling_lead_counts_more_than_a_low_one(self) -> None:
        history = taught([1.0, 8.0, 4.0], [1.0, 5.0, 6.0])
        assert history.at_risk() == (
            AtRisk(0, lead=1.0, trend=0.0, predicted=1.0),
            AtRisk(1, lead=5.0, trend=-3.0, predicted=2.5),
            AtRisk(2, lead=6.0, trend=2.0, predicted=6.0),
        )

    def test_one_check_has_no_trend(self) -> None:
        assert taught([2.0]).at_risk() == (AtRisk(0, lead=2.0, trend=0.0, predicted=2.0),)

    def test_equal_ones_come_by_id(self) -> None:
        history = taught([2.0] * 500 + [1.0] * 500)
        assert [entry.index for entry in history.at_risk(3)] == [500, 501, 502]

    def test_more_than_there_are(self) -> None:
        history = taught([2.0, math.nan, 1.0])
        assert [entry.index for entry in history.at_risk(99)] == [2, 0]
        assert history.at_risk(0) == ()
        assert LeadHistory().at_risk() == ()

    def test_who_is_left_out_by_a_sample(self) -> None:
        leads = np.random.default_rng(0).permutation(5000).astype(float)
        leads[::7] = math.nan
        expected = np.argsort(leads)[:100]
        found = [entry.index for entry in taught(leads.tolist()).at_risk(100)]
        assert found == expected.tolist()

    def test_builtins(self) -> None:
        (entry,) = taught([2.0], [1.0]).at_risk()
        assert {type(value) for value in asdict(entry).values()} == {int, float}
        assert json.loads(json.dumps(asdict(entry))) == asdict(entry)

    def test_it_is_cheap(self) -> None:
        leads = np.random.default_rng(1).random(250_000)
        history = LeadHistory()
        for _ in range(2):
            history.update(np.ones(len(leads), np.int8), leads, 1.0)
        seconds = []
        for _ in range(10):
            start = time.perf_counter()
            history.at_risk()
            seconds.append(time.perf_counter() - start)
        # About a millisecond; the margin is for a busy machine.
        assert min(seconds) < 0.02


class TestForewarned:
    def test_those_on_the_list(self) -> None:
        previous = taught([1.0, 2.0, 3.0, 4.0]).at_risk(2)
        assert forewarned(previous, [0, 3]) == 1
        assert forewarned(previous, np.array([1, 0])) == 2
        assert forewarned(previous, np.array([], np.int64)) == 0
        assert forewarned((), [1]) == 0


class TestQuantiles:
    def test_over_the_argmaxable(self) -> None:
        leads = [float(lead) for lead in range(101)]
        expected = {"min": 0.0, "p01": 1.0, "p10": 10.0, "p50": 50.0}
        assert taught([math.nan, *leads, math.nan]).quantiles() == expected

    def test_none(self) -> None:
        assert LeadHistory().quantiles() == {}
        assert taught([math.nan]).quantiles() == {}

    def test_builtins_and_a_single_class(self) -> None:
        quantiles = taught([math.nan, 0.5]).quantiles()
        assert quantiles == dict.fromkeys(("min", "p01", "p10", "p50"), 0.5)
        assert {type(value) for value in quantiles.values()} == {float}


def arrays(history: LeadHistory) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return history.lead, history.trend


class TestState:
    def test_it_survives_a_safe_load(self) -> None:
        history = taught([1.0, 2.0, math.nan], [0.5, math.nan, 3.0])
        buffer = io.BytesIO()
        torch.save(history.state_dict(), buffer)
        buffer.seek(0)
        other = LeadHistory()
        other.load_state_dict(torch.load(buffer, weights_only=True))
        np.testing.assert_array_equal(arrays(other), arrays(history))
        assert other.at_risk() == history.at_risk()
        for one in (history, other):
            one.update(np.ones(3, np.int8), np.ones(3), 2.0)
        np.testing.assert_array_equal(arrays(other), arrays(history))

    def test_a_state_stays_as_it_was(self) -> None:
        history, other = taught([1.0], [2.0]), LeadHistory()
        state = history.state_dict()
        other.load_state_dict(state)
        state["lead"][0] = 7.0
        assert history.lead[0] == other.lead[0] == 2.0

    def test_before_the_first_check(self) -> None:
        other = taught([1.0])
        other.load_state_dict(LeadHistory().state_dict())
        assert other.at_risk() == ()

    @pytest.mark.parametrize("key", ["lead", "trend"])
    @pytest.mark.parametrize(
        "bad",
        [
            None,
            [1.0, 2.0],
            np.ones(2, np.float32),
            torch.ones(3),
            torch.ones(2, 1),
            torch.tensor(1.0),
            torch.ones(2, dtype=torch.int64),
            torch.ones(2, device="meta"),
            torch.ones(2).to_sparse(),
        ],
    )
    def test_damaged(self, key: str, bad: Any) -> None:
        history = taught([1.0, 2.0], [2.0, 1.0])
        history.load_state_dict({**history.state_dict(), key: bad})
        assert [len(array) for array in arrays(history)] == [0, 0]
        history.update(np.ones(2, np.int8), np.ones(2), 1.0)
        assert np.isnan(history.trend).all()

    def test_empty(self) -> None:
        history = taught([1.0])
        history.load_state_dict({})
        assert history.at_risk() == ()

    def test_values_that_no_check_gives(self) -> None:
        history = LeadHistory()
        infinite = {"lead": [math.inf, math.nan, 1.0], "trend": [1.0, 1.0, math.inf]}
        history.load_state_dict({key: torch.tensor(value) for key, value in infinite.items()})
        assert history.at_risk() == (AtRisk(2, lead=1.0, trend=0.0, predicted=1.0),)
        assert np.isnan(history.trend).all()

    def test_a_gradient_does_no_harm(self) -> None:
        history = LeadHistory()
        history.load_state_dict({key: torch.ones(1).requires_grad_() for key in ("lead", "trend")})
        assert history.lead.tolist() == [1.0]

    def test_its_size(self) -> None:
        history = LeadHistory()
        history.update(np.ones(10_000, np.int8), np.ones(10_000), 1.0)
        buffer = io.BytesIO()
        torch.save(history.state_dict(), buffer)
        assert sys.getsizeof(buffer.getvalue()) < 90_000
