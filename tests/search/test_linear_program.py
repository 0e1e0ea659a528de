from __future__ import annotations

import numpy as np
import pytest

from unarg_callback.search.linear_program import LinearProgram

INF = np.inf


def triangle() -> LinearProgram:
    """``min -x - 2 y, x, y >= 0, x + y <= 4``: the optimum is (0, 4)."""
    program = LinearProgram(np.array([-1.0, -2.0]), np.zeros(2), np.full(2, INF))
    program.add_rows(np.ones((1, 2)), np.array([-INF]), np.array([4.0]))
    return program


def test_optimum_and_multipliers() -> None:
    found = triangle().solve()
    assert found is not None
    assert found.value == pytest.approx([0.0, 4.0])
    assert found.dual == pytest.approx([-2.0])


def test_rows_can_be_added_after_a_solve() -> None:
    program = triangle()
    program.solve()
    program.add_rows(np.array([[0.0, 1.0]]), np.array([-INF]), np.array([3.0]))
    found = program.solve()
    assert found is not None
    assert found.value == pytest.approx([1.0, 3.0])
    assert found.dual == pytest.approx([-1.0, -1.0])


def test_multipliers_of_lower_bounds_are_positive() -> None:
    program = LinearProgram(np.array([1.0, 1.0]), np.full(2, -INF), np.full(2, INF))
    program.add_rows(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([3.0, 2.0]), np.full(2, INF))
    found = program.solve()
    assert found is not None
    assert found.value == pytest.approx([3.0, 1.0])
    assert found.dual == pytest.approx([1.0, 0.5])


def test_no_solution_and_no_bound_are_none() -> None:
    infeasible = LinearProgram(np.zeros(1), np.zeros(1), np.ones(1))
    infeasible.add_rows(np.ones((1, 1)), np.array([2.0]), np.array([INF]))
    assert infeasible.solve() is None
    unbounded = LinearProgram(-np.ones(1), np.zeros(1), np.full(1, INF))
    assert unbounded.solve() is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_no_time_is_none(seconds: float) -> None:
    assert triangle().solve(seconds) is None


def test_time_is_counted_for_each_solve(capfd: pytest.CaptureFixture[str]) -> None:
    program = triangle()
    for _ in range(50):
        assert program.solve(10.0) is not None
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_nothing_is_kept_of_the_arrays_it_was_given() -> None:
    program = LinearProgram(np.array([1.0]), np.zeros(1), np.full(1, INF))
    matrix, lower = np.ones((1, 1)), np.array([2.0])
    program.add_rows(matrix, lower, np.array([INF]))
    matrix[:], lower[:] = 0.0, 9.0
    found = program.solve()
    assert found is not None
    assert found.value == pytest.approx([2.0])
