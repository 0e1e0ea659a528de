from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from unarg_callback.search.interior_point import InteriorPoint

Floats = NDArray[np.float64]


def optimum(rows: Floats, offset: Floats) -> float:
    """``max m: rows u + offset >= m, |u_k| <= 1``, by HiGHS."""
    count, dim = rows.shape
    found = linprog(
        [0.0] * dim + [-1.0],
        A_ub=np.hstack([-rows, np.ones((count, 1))]),
        b_ub=offset,
        bounds=[(-1, 1)] * dim + [(None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.fun is not None
    return -float(found.fun)


def random_problems(
    rng: np.random.Generator, count: int, rivals: int, dim: int, centred: float
) -> tuple[Floats, Floats]:
    """Scaled to size 1, as the callers do; ``centred`` moves the optimum across 0."""
    rows = rng.normal(size=(count, rivals, dim)) + centred * rng.normal(size=(count, 1, dim))
    offset = rng.normal(size=(count, rivals)) * rng.choice([0.0, 0.1, 3.0])
    size = np.abs(rows).sum(2).mean(1) + np.abs(offset).mean(1)
    return rows / size[:, None, None], offset / size[:, None]


def start(rows: Floats, offset: Floats, dtype: torch.dtype = torch.float64) -> InteriorPoint:
    return InteriorPoint.start(torch.from_numpy(rows).to(dtype), torch.from_numpy(offset).to(dtype))


def assert_feasible(problem: InteriorPoint, tolerance: float = 1e-9) -> None:
    assert (problem.slack > 0).all()
    assert (problem.weight > 0).all()
    assert (problem.upper > 0).all()
    assert (problem.lower > 0).all()
    assert (problem.point.abs() <= 1).all()
    computed = torch.bmm(problem.matrix, problem.primal[..., None]).squeeze(2) + problem.offset
    assert (computed - problem.slack).abs().amax() < tolerance
    pull = torch.bmm(problem.weight[:, None], problem.matrix).squeeze(1)
    assert (pull - problem.pull).abs().amax() < tolerance


def converge(problem: InteriorPoint, truth: Floats, steps: int = 60) -> None:
    """Iterate to the optimum, with the truth between both sides all the way."""
    best = torch.from_numpy(truth)
    for _ in range(steps):
        assert (problem.bound() >= best - 1e-9).all()
        assert (problem.lead <= best + 1e-9).all()
        # The lead is one that the point attains.
        gaps = torch.bmm(problem.matrix[..., :-1], problem.point[..., None]).squeeze(2)
        assert ((gaps + problem.offset).amin(1) >= problem.lead - 1e-9).all()
        if bool((problem.bound() - problem.lead < 1e-8).all()):
            break
        problem.step()
    assert (problem.bound() - best < 1e-7).all()
    assert (best - problem.lead < 1e-7).all()


@settings(deadline=None, print_blob=True, max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.5, 3.0]),
)
def test_the_optimum_is_that_of_highs(
    seed: int, count: int, rivals: int, dim: int, centred: float
) -> None:
    rows, offset = random_problems(np.random.default_rng(seed), count, rivals, dim, centred)
    problem = start(rows, offset)
    assert_feasible(problem)
    truth = np.array([optimum(*one) for one in zip(rows, offset, strict=True)])
    converge(problem, truth)


def test_a_batch_and_its_members_agree() -> None:
    rows, offset = random_problems(np.random.default_rng(0), 5, 40, 6, 0.5)
    together, alone = (
        start(rows, offset),
        [start(rows[i : i + 1], offset[i : i + 1]) for i in range(5)],
    )
    for _ in range(6):
        together.step()
        for one in alone:
            one.step()
    for at, one in enumerate(alone):
        assert float(one.bound()) == pytest.approx(float(together.bound()[at]), abs=1e-9)
        assert float(one.lead) == pytest.approx(float(together.lead[at]), abs=1e-9)


@settings(deadline=None, print_blob=True, max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.5, 3.0]),
)
def test_in_float32_it_comes_near_the_optimum_and_both_sides_hold(
    seed: int, count: int, rivals: int, dim: int, centred: float
) -> None:
    rows, offset = random_problems(np.random.default_rng(seed), count, rivals, dim, centred)
    problem = start(rows, offset, torch.float32)
    truth = torch.tensor([optimum(*one) for one in zip(rows, offset, strict=True)])
    closest = torch.full_like(truth, torch.inf)
    for _ in range(40):
        assert_feasible(problem, 1e-4)
        assert (problem.bound() >= truth - 1e-5).all()
        assert (problem.lead <= truth + 1e-5).all()
        closest = torch.minimum(closest, (problem.bound() - problem.lead).double())
        problem.step()
    assert problem.weight.dtype == torch.float32
    assert (closest < 1e-3).all()


@settings(deadline=None, print_blob=True, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.3, 0.1, 1e-4, 1e-10]),
    st.sampled_from([0.2, 1.0, 20.0]),
)
def test_after_an_exchange_both_sides_hold_for_the_new_optimum(
    seed: int, gap: float, size: float
) -> None:
    """The gap is how far it had converged; from afar it converges to the new optimum again."""
    rng = np.random.default_rng(seed)
    rows, offset = random_problems(rng, 4, 30, 5, 0.5)
    problem = start(rows, offset)
    for _ in range(40):
        if float((problem.bound() - problem.lead).amin()) <= gap:
            break
        problem.step()
    untouched = [problem.bound()[at].clone() for at in (0, 2)]
    at, owner, columns, new_rows, new_offset = exchanged(rng, size)
    problem.exchange(*map(torch.from_numpy, (at, owner, columns, new_rows, new_offset)))
    assert_feasible(problem)
    assert [problem.bound()[at] for at in (0, 2)] == untouched
    rows[at[owner], columns], offset[at[owner], columns] = new_rows, new_offset
    for one in at.tolist():
        only = problem.keep(torch.tensor([one]))
        scale = max(1.0, float(np.abs(rows[one]).sum(1).max()))
        truth = optimum(rows[one], offset[one])
        for _ in range(100):
            assert float(only.bound()) >= truth - 1e-9 * scale
            assert float(only.lead) <= truth + 1e-9 * scale
            if float(only.bound() - only.lead) < 1e-8 * scale:
                break
            only.step()
        if gap >= 0.1:
            assert float(only.bound()) == pytest.approx(truth, abs=1e-6 * scale)
            assert float(only.lead) == pytest.approx(truth, abs=1e-6 * scale)


def exchanged(rng: np.random.Generator, size: float) -> tuple[NDArray[Any], ...]:
    """New rivals for the problems 3 and 1, some for each."""
    at = np.array([3, 1])
    columns = [rng.permutation(30)[: rng.integers(1, 16)] for _ in at]
    owner = np.repeat([0, 1], [len(places) for places in columns])
    new_rows = rng.normal(size=(len(owner), 5)) * size
    return at, owner, np.concatenate(columns), new_rows, rng.normal(size=len(owner)) * 0.1 * size


@pytest.mark.parametrize(
    ("rows", "offset"),
    [
        (np.tile([[0.5, -0.5]], (7, 1)), np.zeros(7)),  # All rows equal.
        (np.tile([[0.5, -0.5]], (7, 1)), np.linspace(-0.5, 0.5, 7)),
        (np.zeros((5, 3)), np.zeros(5)),  # Nothing but ties.
        (np.zeros((5, 3)), np.linspace(-1, 1, 5)),
        (np.array([[1.0]]), np.array([0.0])),  # One rival, one dimension.
        (np.array([[0.0]]), np.array([0.0])),
        (np.array([[1.0], [-1.0]]), np.array([0.0, 0.0])),  # Enclosed.
        (np.array([[1.0], [-0.5]]), np.array([0.0, 0.1])),
        (np.array([[1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]]), np.zeros(3)),  # A feature without use.
        (np.vstack([np.eye(4), -np.eye(4)]) * 0.25, np.zeros(8)),  # The optimum is a tie.
        (np.array([[1e-13, 1.0], [1e-13, -1.0]]), np.array([0.0, 0.0])),
    ],
)
def test_degenerate_problems(rows: Floats, offset: Floats) -> None:
    problem = start(rows[None], offset[None])
    assert_feasible(problem)
    converge(problem, np.array([optimum(rows, offset)]))


def test_any_weights_give_a_bound() -> None:
    rows, offset = random_problems(np.random.default_rng(1), 4, 20, 3, 0.5)
    problem = start(rows, offset)
    rng = np.random.default_rng(2)
    at = np.array([3, 1])
    weight = rng.exponential(size=(2, 20)) * rng.integers(0, 2, size=(2, 20))
    found = problem.trimmed_bound(torch.from_numpy(weight), torch.from_numpy(at)).numpy()
    share = weight / weight.sum(1, keepdims=True)
    for row, position in enumerate(at):
        expected = share[row] @ offset[position] + np.abs(share[row] @ rows[position]).sum()
        assert found[row] == pytest.approx(expected)
        assert found[row] >= optimum(rows[position], offset[position]) - 1e-9


def test_keeping_some_problems_keeps_them_as_they_are() -> None:
    rows, offset = random_problems(np.random.default_rng(3), 5, 10, 3, 0.5)
    problem = start(rows, offset)
    problem.step()
    kept = problem.keep(torch.tensor([4, 0]))
    again = kept.joined(problem.keep(torch.tensor([2])))
    for name in vars(problem):
        assert torch.equal(getattr(kept, name), getattr(problem, name)[[4, 0]])
        assert torch.equal(getattr(again, name), getattr(problem, name)[[4, 0, 2]])


def test_a_step_that_can_not_be_computed_says_so_and_changes_nothing() -> None:
    rows, offset = random_problems(np.random.default_rng(4), 2, 10, 3, 0.5)
    problem = start(rows, offset)
    problem.matrix[1, 3, 0] = torch.nan
    before = problem.primal.clone()
    moved = problem.step()
    assert moved.tolist() == [True, False]
    assert torch.equal(problem.primal[1], before[1])
    assert not torch.equal(problem.primal[0], before[0])
