"""What checks may take: earned by training, spent by checks, paid back after an overrun."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unarg_callback.errors import UnargError
from unarg_callback.monitoring.budget import OverheadBudget


class Clock:
    """A clock that stands still until it is told how many seconds pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


def started(share: float | None) -> tuple[OverheadBudget, Clock]:
    clock = Clock()
    budget = OverheadBudget(share, clock)
    clock.passes(50)
    budget.start()
    return budget, clock


def check(budget: OverheadBudget, clock: Clock, seconds: float) -> None:
    with budget.spending():
        clock.passes(seconds)


class TestShare:
    @pytest.mark.parametrize("share", [0.03, 1.0, 1, 1e-9, None])
    def test_good(self, share: float | None) -> None:
        assert OverheadBudget(share).share == share

    @pytest.mark.parametrize(
        "share", [True, False, 0, 0.0, -0.1, 1.01, 3, 10**400, math.nan, math.inf, "0.03", [0.1]]
    )
    def test_bad(self, share: Any) -> None:
        with pytest.raises(UnargError, match="max_overhead is"):
            OverheadBudget(share)


class TestCounting:
    def test_time_before_the_start_is_nothing(self) -> None:
        budget, _ = started(0.1)
        assert (budget.trained, budget.spent) == (0.0, 0.0)

    def test_training_and_checks_are_kept_apart(self) -> None:
        budget, clock = started(0.1)
        clock.passes(100)
        check(budget, clock, 3)
        clock.passes(10)
        assert (budget.trained, budget.spent) == (110.0, 3.0)

    def test_time_after_the_stop_is_not_training(self) -> None:
        budget, clock = started(0.1)
        clock.passes(10)
        budget.stop()
        clock.passes(500)
        assert budget.trained == 10.0
        budget.start()
        clock.passes(5)
        assert budget.trained == 15.0

    def test_starting_and_stopping_twice_changes_nothing(self) -> None:
        budget, clock = started(0.1)
        clock.passes(10)
        budget.start()
        clock.passes(10)
        budget.stop()
        budget.stop()
        clock.passes(10)
        assert budget.trained == 20.0

    def test_a_check_after_training_is_counted(self) -> None:
        budget, clock = started(0.1)
        budget.stop()
        check(budget, clock, 2)
        assert (budget.trained, budget.spent) == (0.0, 2.0)

    def test_training_may_stop_or_start_during_a_check(self) -> None:
        budget, clock = started(0.1)
        with budget.spending():
            clock.passes(1)
            budget.stop()
            clock.passes(1)
        clock.passes(7)
        with budget.spending():
            budget.start()
            clock.passes(1)
        clock.passes(5)
        assert (budget.trained, budget.spent) == (5.0, 3.0)

    def test_a_check_that_raises_is_counted(self) -> None:
        budget, clock = started(0.1)

        def failing_check() -> None:
            with budget.spending():
                clock.passes(4)
                raise KeyError

        with pytest.raises(KeyError):
            failing_check()
        clock.passes(1)
        assert (budget.trained, budget.spent) == (1.0, 4.0)

    def test_nested_checks_count_once(self) -> None:
        budget, clock = started(0.1)
        with budget.spending():
            clock.passes(1)
            check(budget, clock, 2)
            clock.passes(4)
        clock.passes(8)
        assert (budget.trained, budget.spent) == (8.0, 7.0)

    def test_a_check_that_is_running_is_counted(self) -> None:
        budget, clock = started(0.5)
        clock.passes(10)
        with budget.spending():
            clock.passes(2)
            assert (budget.spent, budget.allowance) == (2.0, 3.0)

    def test_a_clock_that_is_set_back(self) -> None:
        budget, clock = started(0.1)
        clock.passes(10)
        assert budget.trained == 10.0
        clock.passes(-1000)
        clock.passes(5)
        assert budget.trained == 10.0
        clock.passes(5)
        assert budget.trained == 15.0

    def test_the_default_clock_runs(self) -> None:
        budget = OverheadBudget(1.0)
        budget.start()
        while not budget.trained:
            pass
        assert 0 < budget.trained < 60


class TestAllowance:
    def test_the_first_seconds(self) -> None:
        budget, clock = started(0.03)
        assert budget.allowance == 0.0
        assert not budget.affords()
        clock.passes(5)
        assert budget.allowance == pytest.approx(0.15)
        assert budget.affords()

    def test_without_a_limit(self) -> None:
        budget, clock = started(None)
        assert budget.allowance == math.inf
        budget.learn(1e9)
        check(budget, clock, 1e9)
        assert budget.affords()

    def test_an_overrun_is_paid_back(self) -> None:
        budget, clock = started(0.1)
        clock.passes(10)
        check(budget, clock, 3)
        assert budget.allowance == 0.0
        clock.passes(20)
        assert not budget.affords()
        clock.passes(1)
        assert budget.allowance == pytest.approx(0.1)

    def test_what_is_essential_must_be_covered(self) -> None:
        budget, clock = started(0.5)
        budget.learn(4.0)
        clock.passes(7.9)
        assert not budget.affords()
        clock.passes(0.1)
        assert budget.affords()


class TestEssential:
    def test_the_latest_but_at_least_half_of_before(self) -> None:
        budget = OverheadBudget(0.1)
        estimates = []
        for seconds in (2.0, 8.0, 5.0, 0.0, 0.0, 3):
            budget.learn(seconds)
            estimates.append(budget.essential)
        assert estimates == [2.0, 8.0, 5.0, 2.5, 1.25, 3.0]

    @pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, True, "1", None])
    def test_bad(self, seconds: Any) -> None:
        budget = OverheadBudget(0.1)
        budget.learn(1.0)
        with pytest.raises(UnargError, match="essential_seconds"):
            budget.learn(seconds)
        assert budget.essential == 1.0


class TestState:
    def test_a_later_process_goes_on(self) -> None:
        budget, clock = started(0.1)
        clock.passes(100)
        check(budget, clock, 4)
        budget.learn(2.0)
        buffer = io.BytesIO()
        torch.save(budget.state_dict(), buffer)
        buffer.seek(0)
        later = Clock()
        later.now = 3.0
        other = OverheadBudget(0.1, later)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        later.passes(1e6)
        other.start()
        later.passes(10)
        assert (other.trained, other.spent, other.essential) == (110.0, 4.0, 2.0)
        assert other.allowance == pytest.approx(7.0)

    def test_it_is_json(self) -> None:
        budget, clock = started(None)
        clock.passes(3)
        other = OverheadBudget(None, clock)
        other.load_state_dict(json.loads(json.dumps(budget.state_dict())))
        assert other.state_dict() == budget.state_dict()

    def test_loading_while_training_runs(self) -> None:
        budget, clock = started(0.1)
        clock.passes(100)
        budget.load_state_dict({"share": 0.1, "trained": 10, "spent": 1, "essential": 0})
        clock.passes(5)
        assert (budget.trained, budget.spent) == (15.0, 1.0)

    @pytest.mark.parametrize("bad", [None, True, "1", math.nan, math.inf, -1.0, [1.0], 10**400])
    @pytest.mark.parametrize("key", ["share", "trained", "spent"])
    def test_damaged_counts_start_anew_together(self, key: str, bad: Any) -> None:
        state = {"share": 0.1, "trained": 10.0, "spent": 5.0, "essential": 2.0}
        budget = OverheadBudget(0.1)
        budget.load_state_dict({**state, key: bad})
        assert (budget.trained, budget.spent, budget.essential) == (0.0, 0.0, 2.0)

    @pytest.mark.parametrize("bad", [None, True, "1", math.nan, math.inf, -1.0])
    def test_a_damaged_estimate_is_as_at_first(self, bad: Any) -> None:
        budget = OverheadBudget(0.1)
        state = {"share": 0.1, "trained": 10.0, "spent": 0.5, "essential": bad}
        budget.load_state_dict(state)
        assert (budget.trained, budget.spent, budget.essential) == (10.0, 0.5, 0.0)

    def test_an_empty_state_is_a_fresh_start(self) -> None:
        budget, clock = started(0.1)
        clock.passes(10)
        budget.learn(1.0)
        budget.load_state_dict({})
        assert (budget.trained, budget.spent, budget.essential) == (0.0, 0.0, 0.0)

    def test_a_debt_under_another_share_holds_nothing_back(self) -> None:
        generous, clock = started(None)
        check(generous, clock, 1e6)
        budget = OverheadBudget(0.1, clock)
        budget.load_state_dict(generous.state_dict())
        budget.start()
        clock.passes(1)
        assert budget.affords()

    def test_copies(self) -> None:
        budget = OverheadBudget(0.1)
        budget.learn(3.0)
        for other in (copy.deepcopy(budget), pickle.loads(pickle.dumps(budget))):
            assert other.state_dict() == budget.state_dict()


seconds = st.floats(0, 1e4)


@given(share=st.floats(1e-3, 1), moves=st.lists(st.tuples(seconds, st.floats(0, 2)), max_size=30))
def test_checks_stay_within_their_share(share: float, moves: list[tuple[float, float]]) -> None:
    """Each check takes a multiple of its allowance; only what exceeds it once can be too much."""
    budget, clock = started(share)
    overrun = trained = spent = 0.0
    for training, multiple in moves:
        clock.passes(training)
        trained += training
        if budget.affords():
            allowance = budget.allowance
            taken = multiple * allowance
            check(budget, clock, taken)
            spent += taken
            overrun = max(overrun, taken - allowance)
        rounding = 1e-6 * (1 + trained)
        assert budget.trained == pytest.approx(trained, abs=rounding)
        assert budget.spent == pytest.approx(spent, abs=rounding)
        assert budget.spent <= share * budget.trained + overrun + rounding


@given(share=st.floats(1e-3, 1), spent=seconds, estimates=st.lists(seconds, max_size=5))
def test_nothing_starves(share: float, spent: float, estimates: list[float]) -> None:
    budget, clock = started(share)
    check(budget, clock, spent)
    for estimate in estimates:
        budget.learn(estimate)
    clock.passes((budget.spent + budget.essential) / share * (1 + 1e-9) + 1e-6)
    assert budget.affords()
