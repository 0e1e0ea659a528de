"""When a check is due, and what becomes of checks that must wait."""

from __future__ import annotations

from typing import Any

import pytest

from unarg_callback.errors import UnargError
from unarg_callback.monitoring.budget import OverheadBudget
from unarg_callback.monitoring.cadence import Cadence, Schedule


def due_steps(cadence: Cadence, seen: list[int]) -> list[int]:
    fired = []
    for step in seen:
        if cadence.due(step):
            cadence.mark(step)
            fired.append(step)
    return fired


class TestCadence:
    def test_every_multiple_once(self) -> None:
        assert due_steps(Cadence(3), list(range(1, 11))) == [3, 6, 9]

    def test_accumulated_batches_see_a_step_several_times(self) -> None:
        assert due_steps(Cadence(2), [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4]) == [2, 4]

    def test_steps_that_jump_over_a_multiple(self) -> None:
        assert due_steps(Cadence(5), list(range(2, 16, 2))) == [6, 10]
        assert due_steps(Cadence(3), list(range(2, 16, 2))) == [4, 6, 10, 12]

    def test_a_jump_over_several_multiples_is_one_check(self) -> None:
        assert due_steps(Cadence(2), [1, 9, 10, 11]) == [9, 10]

    def test_step_zero_only_if_asked(self) -> None:
        assert due_steps(Cadence(2), [0, 0, 1, 2]) == [2]
        assert due_steps(Cadence(2, at_start=True), [0, 0, 1, 2]) == [0, 2]

    def test_never(self) -> None:
        assert due_steps(Cadence(0), list(range(10))) == []

    def test_asking_changes_nothing(self) -> None:
        cadence = Cadence(2)
        assert cadence.due(2)
        assert cadence.due(2)

    def test_a_mark_from_an_earlier_run_is_forgotten(self) -> None:
        cadence = Cadence(2)
        cadence.mark(100)
        assert cadence.restart(0)
        assert due_steps(cadence, [1, 2, 3]) == [2]

    def test_a_mark_from_the_same_run_is_kept(self) -> None:
        cadence = Cadence(10)
        cadence.mark(20)
        assert not cadence.restart(25)
        assert due_steps(cadence, [26, 29, 30]) == [30]

    @pytest.mark.parametrize("every", [-1, 1.5, "3", True, None])
    def test_bad_intervals(self, every: Any) -> None:
        with pytest.raises(UnargError, match="every_n_steps"):
            Cadence(every)


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def schedule(every: int, share: float | None, essential: float = 0.0) -> tuple[Schedule, Clock]:
    clock = Clock()
    budget = OverheadBudget(share, clock)
    budget.start()
    budget.learn(essential)
    return Schedule(Cadence(every), budget), clock


class TestSchedule:
    def test_without_a_limit_a_check_is_ready_when_due(self) -> None:
        plan, _ = schedule(5, None)
        assert [step for step in range(4, 7) if plan.ready(step)] == [5, 6]

    def test_a_check_waits_for_its_budget(self) -> None:
        plan, clock = schedule(5, 0.1, essential=0.95)
        ready = []
        for step in range(1, 13):
            clock.now += 1.0
            if plan.ready(step):
                ready.append((step, plan.begin(step)))
        assert ready == [(10, 5)]

    def test_checks_that_fall_due_while_one_waits_are_one(self) -> None:
        plan, clock = schedule(2, 0.1, essential=1.0)
        made = []
        for step in range(1, 12):
            clock.now += 1.0
            if plan.ready(step):
                made.append((step, plan.begin(step)))
                with plan.budget.spending():
                    clock.now += 1.0
        assert made == [(10, 2)]
        assert plan.late(2, 10)
        assert not plan.late(2, 4)

    def test_nothing_is_late_without_a_cadence(self) -> None:
        plan, _ = schedule(0, None)
        assert not plan.due(7)
        assert not plan.late(0, 100)

    def test_a_restart_forgets_what_waits(self) -> None:
        plan, _ = schedule(5, 0.1)
        assert plan.due(5)
        plan.restart(0)
        assert plan.due_since is None
        assert not plan.due(3)
