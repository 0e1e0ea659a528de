from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search import Floats, Stage, random_layer
from unarg_callback import Domain, Status, Witness, check
from unarg_callback.geometry.checker import WitnessCheck
from unarg_callback.geometry.compact import fit_to_domain
from unarg_callback.search.frame import raw_frame
from unarg_callback.search.limits import Limits
from unarg_callback.search.reflect import (
    SearchState,
    braid_reflect,
    paper_search,
    reflect,
)

RAW = raw_frame(3, torch.device("cpu"))


# --- fit_to_domain --------------------------------------------------------------------------------


@settings(deadline=None, print_blob=True, max_examples=150)
@given(
    st.lists(
        st.tuples(st.floats(-1e30, 1e30), st.sampled_from([1e-3, 0.1, 0.3, 1.0, 1e6])),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_points_are_kept_in_the_box_exactly(
    bounds: list[tuple[float, float]], around_origin: bool, seed: int, dtype: torch.dtype
) -> None:
    low = np.array([a for a, _ in bounds])
    # Wide enough that float32 has numbers inside.
    high = low + np.array([share for _, share in bounds]) * (1e-3 + np.abs(low))
    if around_origin:
        low, high = -np.abs(low) - 1e-3, np.abs(high) + 1e-3
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(30, len(low))) * 10.0 ** rng.integers(-40, 40, size=(30, 1))
    fitted = fit_to_domain(
        torch.from_numpy(points), torch.from_numpy(low), torch.from_numpy(high), dtype
    )
    assert fitted.dtype == dtype
    assert Domain.box(low, high).contains(fitted.double().numpy()).all()


@pytest.mark.parametrize("high", [0.1, 0.3, 0.7, 1.1, 1e-40, 5e-324])
def test_bounds_that_float32_can_not_hold(high: float) -> None:
    bound = torch.tensor([high], dtype=torch.float64)
    points = torch.tensor([[1e200], [-1e200], [high], [-high], [0.0]], dtype=torch.float64)
    fitted = fit_to_domain(points, -bound, bound, torch.float32)
    assert torch.isfinite(fitted).all()
    assert (fitted.double().abs() <= bound).all()
    # Not farther in than the next number.
    nearest = bound.to(torch.float32)
    if nearest.double() > bound:
        nearest = torch.nextafter(nearest, torch.zeros(1))
    assert fitted[0] == nearest
    assert fitted[1] == -nearest


def test_points_are_scaled_towards_an_origin_inside_and_clipped_elsewhere() -> None:
    points = torch.tensor([[4.0, 2.0], [0.5, -0.5], [-8.0, 0.0]], dtype=torch.float64)
    low, high = torch.tensor([-2.0, -1.0]).double(), torch.tensor([1.0, 1.0]).double()
    scaled = fit_to_domain(points, low, high, torch.float64)
    assert scaled.tolist() == [[1.0, 0.5], [0.5, -0.5], [-2.0, 0.0]]
    clipped = fit_to_domain(points, torch.zeros(2).double(), high, torch.float64)
    assert clipped.tolist() == [[1.0, 1.0], [0.5, 0.0], [0.0, 0.0]]


def test_the_free_domain_only_rounds() -> None:
    infinite = torch.full((1,), torch.inf, dtype=torch.float64)
    points = torch.tensor([[1e30], [0.1]], dtype=torch.float64)
    assert torch.equal(fit_to_domain(points, -infinite, infinite, torch.float64), points)
    single = fit_to_domain(points, -infinite, infinite, torch.float32)
    assert torch.equal(single, points.float())


# --- one reflection -------------------------------------------------------------------------------


def algorithm_1(weight: Floats, bias: Floats, target: int, rival: int, point: Floats) -> Floats:
    """The paper's braid reflection step, line by line."""
    normal = weight[target] - weight[rival]
    offset = bias[target] - bias[rival]
    distance = (normal @ point + offset) / np.linalg.norm(normal)
    return np.asarray(point - 2 * distance * normal / np.linalg.norm(normal))


@settings(deadline=None, print_blob=True, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 50.0]), st.integers(-20, 20))
def test_a_raw_step_is_the_papers_algorithm_1(seed: int, offset: float, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    weight = (rng.normal(size=(12, 3)) + offset) * 10.0**exponent
    bias = rng.normal(size=12) * 10.0**exponent
    stage = Stage.of(weight, bias, dtype=torch.float64)
    target, rival = rng.permutation(12)[:6], rng.permutation(12)[6:]
    rival = np.where(rival == target, (target + 1) % 12, rival)
    points = rng.normal(size=(6, 3)) * 10
    moved = reflect(
        stage.checker,
        RAW,
        torch.from_numpy(target),
        torch.from_numpy(points),
        torch.from_numpy(rival),
    ).numpy()
    for t, i, before, after in zip(target, rival, points, moved, strict=True):
        expected = algorithm_1(weight, bias, t, i, before)
        np.testing.assert_allclose(after, expected, atol=1e-8 * np.abs(expected).max())
        # On the other side of the hyperplane, as far away.
        gaps = [(weight[t] - weight[i]) @ x + bias[t] - bias[i] for x in (before, after)]
        assert gaps[0] == pytest.approx(-gaps[1], rel=1e-6, abs=1e-9 * 10.0**exponent)


def test_a_whitened_step_is_the_same_step_on_whitened_rows() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(50, 3)) * [1.0, 10.0, 0.1] + 5.0
    bias = rng.normal(size=50)
    stage = Stage.of(weight, bias, dtype=torch.float64)
    root, unit = stage.frame.root.numpy(), stage.checker.sweep.unit
    white = (weight - weight.mean(0)) / unit @ root
    point = rng.normal(size=3)
    moved = reflect(
        stage.checker,
        stage.frame,
        torch.tensor([7]),
        torch.from_numpy(root @ point)[None],
        torch.tensor([9]),
    )[0]
    expected = root @ algorithm_1(white, bias / unit, 7, 9, point)
    np.testing.assert_allclose(moved.numpy(), expected, rtol=1e-8)


def test_equal_rows_do_not_move_a_point() -> None:
    stage = Stage.of(np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]]), np.array([0.0, 1.0, 0.0]))
    point = torch.tensor([[1.0, 2.0, 3.0]])
    moved = reflect(stage.checker, RAW, torch.tensor([0]), point, torch.tensor([1]))
    assert torch.equal(moved, point.double())


# --- the whole search -----------------------------------------------------------------------------


def literal_search(
    weight: Floats, bias: Floats, target: int, patience: int
) -> tuple[Floats | None, int]:
    """The paper's approximate algorithm for one class: its winning point and the steps used."""
    point = weight[target].copy()
    for step in range(patience + 1):
        winner = int(np.argmax(weight @ point + bias))
        if winner == target:
            return point, step
        if step < patience:
            point = algorithm_1(weight, bias, target, winner, point)
    return None, patience


@pytest.mark.parametrize("kind", ["gaussian", "biased", "clustered"])
@pytest.mark.parametrize("dim", [3, 6])
def test_one_class_at_a_time_is_the_paper(kind: str, dim: int) -> None:
    weight, bias = random_layer(kind, 80, dim, seed=dim)
    stage = Stage.of(weight, bias, "box:1e9", torch.float64, min_lead=0.0)
    found = 0
    for target in range(80):
        state = paper_search(stage.checker, torch.tensor([target]), patience=25)
        point, steps = literal_search(
            weight, np.zeros(80) if bias is None else bias, target, patience=25
        )
        assert bool(state.proven[target]) is (point is not None)
        assert int(state.reflections[target]) == steps
        if point is not None:
            found += 1
            np.testing.assert_allclose(state.point[target].numpy(), point, rtol=1e-6, atol=1e-9)
    assert 5 < found < 80


@pytest.mark.parametrize("kind", ["gaussian", "biased"])
def test_all_classes_together_find_what_each_finds_alone(kind: str) -> None:
    """A point that another class tried can only prove more."""
    weight, bias = random_layer(kind, 120, 4, seed=1)
    stage = Stage.of(weight, bias, "box:1e9", torch.float64, min_lead=0.0)
    together = paper_search(stage.checker, patience=25)
    for target in range(120):
        point, steps = literal_search(weight, np.zeros(120) if bias is None else bias, target, 25)
        assert bool(together.proven[target]) >= (point is not None)
        assert int(together.reflections[target]) <= steps


def test_a_winning_point_outside_the_box_is_no_witness() -> None:
    weight, _ = random_layer("offset", 60, 4)
    inside = paper_search(Stage.of(weight, domain="box:100", dtype=torch.float64).checker)
    small = paper_search(Stage.of(weight, domain="box:10", dtype=torch.float64).checker, patience=9)
    assert bool(inside.proven.any())
    assert not bool(small.proven.any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("domain", ["box:0.1", "box:100", "nonnegative:3", "free"])
@pytest.mark.parametrize("kind", ["gaussian", "biased", "ties"])
def test_every_witness_of_the_search_holds(kind: str, domain: str, dtype: torch.dtype) -> None:
    weight, bias = random_layer(kind, 80, 4)
    stage = Stage.of(weight, bias, domain, dtype)
    state = SearchState.empty(stage.checker)
    start = stage.frame.start(stage.checker.sweep.rows(slice(None)))
    state.point = fit_to_domain(start, stage.checker.low, stage.checker.high, dtype)
    braid_reflect(stage.checker, stage.frame, state, stage.everyone, patience=8)
    assert bool(state.proven.any()) or (kind, domain) == ("ties", "nonnegative:3")
    for target in state.proven.nonzero().squeeze(1).tolist():
        witness = Witness(target, state.point[target].double().numpy())
        verdict = check(stage.layer, stage.checker.domain, witness, stage.checker.min_lead)
        assert verdict.status == Status.ARGMAXABLE
        assert verdict.lead >= float(state.lead[target]) * (1 - 1e-6)
    assert (state.reflections <= 8).all()


def braid(worthwhile: Callable[[int, int], bool] | None, limits: Limits | None = None) -> int:
    """Most reflections of a class in a layer where most classes never win."""
    weight, _ = random_layer("gaussian", 200, 2)
    stage = Stage.of(weight)
    state = SearchState.empty(stage.checker)
    state.point = stage.checker.sweep.rows(slice(None)).float()
    braid_reflect(
        stage.checker,
        stage.frame,
        state,
        stage.everyone,
        patience=20,
        worthwhile=worthwhile,
        limits=limits,
    )
    return int(state.reflections.max())


def test_the_search_ends_when_it_does_not_pay_twice_running() -> None:
    assert braid(None) == 20
    assert braid(lambda gained, tried: True) == 20
    assert braid(lambda gained, tried: False) == 2
    answers = iter([False, True, False, True, False, False])
    assert braid(lambda gained, tried: next(answers)) == 6


def test_the_search_ends_with_its_time() -> None:
    limits = Limits(0.0)
    assert braid(None, limits) == 0
    assert limits.cut_short


def test_progress_counts_each_class_once() -> None:
    seen: list[int] = []
    weight, _ = random_layer("gaussian", 200, 4)
    stage = Stage.of(weight)
    state = SearchState.empty(stage.checker)
    state.point = stage.frame.start(stage.checker.sweep.rows(slice(None))).float()
    limits = Limits(on_progress=seen.append)
    braid_reflect(stage.checker, stage.frame, state, stage.everyone, patience=5, limits=limits)
    assert sum(seen) == int(state.proven.sum())


def test_the_deepest_bonus_is_kept() -> None:
    stage = Stage.of(np.eye(3))
    state = SearchState.empty(stage.checker)
    points = torch.tensor([[3.0, 0, 0], [5.0, 0, 0], [4.0, 0, 0]])
    no, yes = torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
    winner = torch.zeros(3, dtype=torch.int64)
    leads = torch.tensor([3.0, 5.0, 4.0]).double()
    found = WitnessCheck(no, -leads, winner, yes, leads)
    targets = torch.tensor([1, 2, 1])
    assert state.record(targets[:2], points[:2], _part(found, slice(0, 2))) == 1
    assert state.proven.tolist() == [True, False, False]
    assert state.point[0].tolist() == [5.0, 0.0, 0.0]
    assert float(state.lead[0]) == 5.0
    assert state.rival.tolist() == [-1, 0, 0]


def _part(found: WitnessCheck, span: slice) -> WitnessCheck:
    return WitnessCheck(*(getattr(found, name)[span] for name in vars(found)))
