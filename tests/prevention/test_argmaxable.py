"""Where the theorems' conditions hold, every class is found argmaxable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.prevention.methods import METHODS, check, circle, fill, unit, voronoi
from unarg_callback import Status
from unarg_callback.prevention import voronoi_bias
from unarg_callback.snapshots.readable import read_tensors

SEEDS = st.integers(0, 2**32 - 1)
APART = 0.05
"""No two rows are nearer than this, in units of their length."""


def rows(seed: int, classes: int, features: int, dtype: torch.dtype, kind: str) -> Tensor:
    """Random rows, no two nearly alike; many inside the hull of the others as they stand."""
    draws = np.random.default_rng(seed)
    if kind == "clustered":
        points = draws.normal(size=features) + 0.2 * draws.normal(size=(classes, features))
    else:
        points = draws.normal(size=(classes, features))
        points *= draws.uniform(0.1, 2.0, size=(classes, 1))
    return torch.from_numpy(points[apart(points)]).to(dtype)


def apart(points: NDArray[np.float64]) -> list[int]:
    """Which rows to keep so that neither they nor their directions are nearly alike."""
    kept: list[int] = []
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    for at in range(len(points)):
        near = [np.linalg.norm(unit[at] - unit[other]) < APART for other in kept]
        close = [np.linalg.norm(points[at] - points[other]) < APART for other in kept]
        if not any(near) and not any(close) and np.linalg.norm(points[at]) > APART:
            kept.append(at)
    return kept


@pytest.mark.parametrize("make", METHODS)
@given(
    seed=SEEDS,
    classes=st.integers(3, 60),
    features=st.integers(3, 9),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    kind=st.sampled_from(["spread", "clustered"]),
)
@settings(max_examples=40)
def test_every_class(
    make: Callable[[int, int], nn.Linear],
    seed: int,
    classes: int,
    features: int,
    dtype: torch.dtype,
    kind: str,
) -> None:
    values = rows(seed, classes, features, dtype, kind)
    report = check(fill(make(*values.shape), values))
    assert report.counts["argmaxable"] == len(values)


@pytest.mark.parametrize("make", METHODS)
def test_without_it_classes_are_out_of_reach(make: Callable[[int, int], nn.Linear]) -> None:
    """The test above could fail: the same rows in a plain layer lose half of the classes."""
    values = rows(1, 200, 3, torch.float32, "clustered")
    plain = fill(nn.Linear(3, len(values), bias=False), values)
    assert check(plain).counts["unargmaxable"] > len(values) / 2
    assert check(fill(make(*values.shape), values)).counts["argmaxable"] == len(values)


@pytest.mark.parametrize("make", METHODS)
@given(seed=SEEDS)
def test_the_witness_of_the_proof(make: Callable[[int, int], nn.Linear], seed: int) -> None:
    """Class t leads at the very input that the proof names, by what it says."""
    values = rows(seed, 30, 4, torch.float64, "spread")
    weight, bias = read_tensors(fill(make(*values.shape), values), "the layer")
    inputs = weight.clone()
    if make is circle:
        inputs[:, :-2] = 0
    logits = inputs @ weight.T + (0 if bias is None else bias)
    own = logits.diagonal()[:, None]
    if make is circle:
        angle = torch.arange(len(values), dtype=torch.float64) * (2 * np.pi / len(values))
        expected = 1 - (angle[:, None] - angle).cos()
    else:
        expected = torch.cdist(weight, weight).square() / 2
    torch.testing.assert_close(own - logits, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("make", METHODS)
def test_half_precision(make: Callable[[int, int], nn.Linear]) -> None:
    values = torch.randn(60, 8, generator=torch.Generator().manual_seed(3)).bfloat16()
    layer = fill(make(60, 8), values)
    assert layer.weight.dtype == torch.bfloat16
    assert layer(values[:2]).dtype == torch.bfloat16
    assert check(layer).counts["argmaxable"] == 60


@pytest.mark.parametrize("make", [unit, voronoi])
def test_equal_rows_stay_unargmaxable(make: Callable[[int, int], nn.Linear]) -> None:
    values = torch.randn(20, 5, generator=torch.Generator().manual_seed(4))
    values[7] = values[3]
    report = check(fill(make(20, 5), values))
    assert report.counts["argmaxable"] == 18
    assert {report.duplicate_of[7], report.duplicate_of[3]} == {3, 7}


def test_equal_rows_are_told_apart_by_the_circle() -> None:
    report = check(fill(circle(20, 5), torch.ones(20, 5)))
    assert report.counts["argmaxable"] == 20


def test_rows_of_one_direction_become_equal_at_unit_length() -> None:
    values = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    assert check(fill(unit(4, 2), values)).ids(Status.UNARGMAXABLE).tolist() == [0, 1]
    assert check(fill(voronoi(4, 2), values)).counts["argmaxable"] == 4


def test_a_zero_row() -> None:
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    layer = fill(unit(4, 2), values)
    assert check(layer).ids(Status.UNARGMAXABLE).tolist() == [3]
    torch.nn.functional.cross_entropy(layer(torch.ones(1, 2)), torch.tensor([3])).backward()
    (learned,) = layer.parameters()
    assert learned.grad is not None
    assert learned.grad.isfinite().all()
    with torch.no_grad():
        learned.sub_(learned.grad, alpha=1e-3)
    assert check(layer).counts["argmaxable"] == 4
    assert check(fill(voronoi(4, 2), values)).counts["argmaxable"] == 4


def test_a_domain_without_the_witness() -> None:
    """Unit rows in x >= 0, and Voronoi in a box smaller than the rows, promise nothing."""
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(100, 4, generator=generator)
    assert check(fill(unit(100, 4), values)).counts["argmaxable"] == 100
    positive = check(fill(unit(100, 4), values), "nonnegative:100")
    assert positive.counts["unargmaxable"] > 20
    long = fill(voronoi(100, 4), 10 * values)
    assert check(long, float(long.weight.detach().abs().max())).counts["argmaxable"] == 100
    assert check(long, 1.0).counts["unargmaxable"] > 20


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_scales_move_the_witness(scale: float) -> None:
    layer = voronoi_bias(nn.Linear(4, 80), scale)
    reach = scale * float(layer.weight.detach().abs().max())
    assert check(layer, 1.001 * reach).counts["argmaxable"] == 80
