from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unarg_callback import Domain, DomainError

BOUNDS = st.floats(-1e300, 1e300, allow_nan=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "box",
        "box:",
        "box:,",
        "box:1,",
        "box:1,2,3",
        "box:a",
        "box:nan",
        "box:inf",
        "box:-inf,inf",
        "box:1e400",
        "box:-1",
        "box:2,1",
        "sphere:1",
        "nonnegative",
        "nonnegative:",
        "nonnegative:-1",
        "nonnegative:1,2",
        "nonnegative:nan",
        "free:",
        "free:1",
        "freely",
        "100",
    ],
)
def test_text_that_is_no_domain_is_refused(text: str) -> None:
    with pytest.raises(DomainError) as caught:
        Domain.parse(text)
    assert "\n" not in str(caught.value)
    assert "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("box:100", -100, 100),
        (" box:1e-3 ", -1e-3, 1e-3),
        ("box:-2,3", -2, 3),
        ("box: 2 , 3", 2, 3),
        ("box:0", 0, 0),
        ("nonnegative:1000", 0, 1000),
        ("free", -np.inf, np.inf),
    ],
)
def test_text_is_read(text: str, low: float, high: float) -> None:
    bounds = Domain.parse(text).bounds(3)
    assert bounds[0].tolist() == [low] * 3
    assert bounds[1].tolist() == [high] * 3
    assert Domain.parse(text).is_free is (text == "free")


@settings(deadline=None, print_blob=True)
@given(BOUNDS, BOUNDS)
def test_a_box_is_read_back_from_its_text(one: float, other: float) -> None:
    box = Domain.box(min(one, other), max(one, other))
    assert Domain.parse(str(box)) == box
    assert hash(Domain.parse(str(box))) == hash(box)


def test_free_is_read_back_from_its_text() -> None:
    assert Domain.parse(str(Domain.free())) == Domain.free()
    assert Domain.free() != Domain.box(100)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (np.nan, None),
        (np.inf, None),
        (-1.0, None),
        (0.0, np.inf),
        (-np.inf, 0.0),
        ([0.0, 1.0], [1.0, 0.5]),
        ([0.0, 1.0], [1.0, 1.0, 1.0]),
        ([[0.0]], [[1.0]]),
        ([0.0, np.nan], 1.0),
    ],
)
def test_a_box_that_is_none_is_refused(low: float | list[float], high: float | None) -> None:
    with pytest.raises(DomainError):
        Domain.box(low, high)


def test_scalars_and_vectors_mix() -> None:
    low, high = Domain.box([-1.0, -2.0], 3.0).bounds(2)
    assert low.tolist() == [-1, -2]
    assert high.tolist() == [3, 3]


def test_bounds_for_another_number_of_dimensions_are_refused() -> None:
    with pytest.raises(DomainError, match="2 dimensions; expected 3"):
        Domain.box([1.0, 2.0]).bounds(3)


def test_bounds_are_copies() -> None:
    source = np.array([1.0, 2.0])
    box = Domain.box(source)
    source[0] = 9.0
    box.bounds(2)[0][0] = 9.0
    assert box.bounds(2)[0].tolist() == [-1, -2]


@settings(deadline=None, print_blob=True)
@given(st.floats(-1e6, 1e6))
def test_the_boundary_is_inside_and_one_ulp_more_is_not(high: float) -> None:
    box = Domain.box(high - 1.0, high)
    over = np.nextafter(high, np.inf)
    points = np.array([[high, high], [high, over], [np.nan, high], [high, -np.inf]])
    assert box.contains(points).tolist() == [True, False, False, False]


def test_nothing_but_finite_points_is_free() -> None:
    points = np.array([[1e308, -1e308], [np.inf, 0.0], [np.nan, 0.0]])
    assert Domain.free().contains(points).tolist() == [True, False, False]


def test_shorthands() -> None:
    assert Domain.tanh() == Domain.box(1.0)
    assert Domain.relu(6.0) == Domain.nonnegative(6.0) == Domain.box(0.0, 6.0)
    assert Domain.relu([1.0, 2.0]).bounds(2)[0].tolist() == [0, 0]
    assert Domain.of("box:2") == Domain.of(2.0) == Domain.of(Domain.box(2.0))
    assert Domain.of([1.0, 2.0]) == Domain.box([1.0, 2.0])


def spiked(rng: np.random.Generator, count: int, dim: int) -> torch.Tensor:
    """Inputs of a normalisation, most with one entry that dwarfs the rest."""
    points = rng.normal(size=(count, dim))
    points[np.arange(count), rng.integers(dim, size=count)] += rng.normal(size=count) * 1e3
    return torch.from_numpy(points)


def span_of(outputs: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return outputs.amin(0).numpy(), outputs.amax(0).numpy()


def extremes(dim: int) -> torch.Tensor:
    """One entry against all others, both ways, for each entry; large, so that eps is lost."""
    return torch.cat([torch.eye(dim, dtype=torch.float64), -torch.eye(dim, dtype=torch.float64)])


@pytest.mark.parametrize("dim", [2, 3, 16, 257])
@pytest.mark.parametrize("with_bias", [False, True])
def test_layer_norm_outputs_lie_in_their_box_and_attain_it(dim: int, with_bias: bool) -> None:
    rng = np.random.default_rng(dim)
    gain, bias = rng.normal(size=dim), rng.normal(size=dim) * 10
    bias *= with_bias
    norm = torch.nn.LayerNorm(dim, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(gain))
        norm.bias.copy_(torch.from_numpy(bias))
        outputs = norm(spiked(rng, 2000, dim))
        reached = norm(1e9 * extremes(dim))
    domain = Domain.layer_norm(gain, bias if with_bias else None)
    assert domain.contains(outputs.numpy()).all()
    low, high = domain.bounds(dim)
    found_low, found_high = span_of(reached)
    slack = 1e-9 * (1 + np.abs(gain) * np.sqrt(dim) + np.abs(bias))
    assert (np.abs(found_low - low) <= slack).all()
    assert (np.abs(found_high - high) <= slack).all()


@pytest.mark.parametrize("dim", [1, 2, 16, 257])
def test_rms_norm_outputs_lie_in_their_box_and_attain_it(dim: int) -> None:
    rng = np.random.default_rng(dim)
    gain = rng.normal(size=dim)
    norm = torch.nn.RMSNorm(dim, eps=1e-5, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(gain))
        outputs = norm(spiked(rng, 2000, dim))
        reached = norm(1e9 * extremes(dim))
    domain = Domain.rms_norm(gain)
    assert domain.contains(outputs.numpy()).all()
    low, high = domain.bounds(dim)
    found_low, found_high = span_of(reached)
    slack = 1e-9 * (1 + np.abs(gain) * np.sqrt(dim))
    assert (np.abs(found_low - low) <= slack).all()
    assert (np.abs(found_high - high) <= slack).all()


def test_layer_norm_of_one_entry_is_its_bias() -> None:
    low, high = Domain.layer_norm([3.0], [2.0]).bounds(1)
    assert low[0] <= 2.0 <= high[0]
    assert high[0] - low[0] < 1e-14


@pytest.mark.parametrize(
    ("gain", "bias"),
    [(1.0, None), ([], None), ([[1.0]], None), ([1.0, 2.0], [1.0]), ([np.nan], None)],
)
def test_gain_and_bias_that_do_not_fit_are_refused(
    gain: float | list[float], bias: list[float] | None
) -> None:
    with pytest.raises(DomainError):
        Domain.layer_norm(gain, bias)
