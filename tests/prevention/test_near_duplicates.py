"""What happens where rounding breaks a theorem's condition: verdicts stay proofs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.prevention.methods import check, circle, fill, unit, voronoi
from unarg_callback import OutputLayer, Status, verify
from unarg_callback.snapshots.readable import read_tensors


def fan(seed: int, apart: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Eight rows in the plane that are ``apart`` radians apart, and three far from them."""
    first = np.random.default_rng(seed).uniform(0, 2 * math.pi)
    angles = np.append(first + apart * np.arange(8), first + np.array([1.5, 3.0, 4.5]))
    return torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], 1)).to(dtype)


def lifted(layer: nn.Module) -> list[tuple[Fraction, ...]]:
    weight, bias = read_tensors(layer, "the layer")
    columns = weight.detach() if bias is None else torch.cat([weight, bias[:, None]], 1).detach()
    return [tuple(Fraction(v) for v in row) for row in columns.double().tolist()]


def on_the_hull(points: list[tuple[Fraction, ...]]) -> list[bool]:
    """Which points of the plane are vertices of their convex hull, in exact arithmetic."""

    def turn(o: int, a: int, b: int) -> Fraction:
        (ox, oy), (ax, ay), (bx, by) = points[o], points[a], points[b]
        return (ax - ox) * (by - oy) - (ay - oy) * (bx - ox)

    order = sorted(range(len(points)), key=points.__getitem__)
    hull: set[int] = set()
    for way in (order, order[::-1]):
        chain: list[int] = []
        for at in way:
            while len(chain) > 1 and turn(chain[-2], chain[-1], at) <= 0:
                chain.pop()
            chain.append(at)
        hull.update(chain)
    single = [points.count(point) == 1 for point in points]
    return [at in hull and single[at] for at in range(len(points))]


@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-8, -2))
def test_unit_rows_that_rounding_has_moved(seed: int, exponent: int) -> None:
    """The exact hull of the rounded rows decides, and the verdicts in the free domain are its."""
    layer = fill(unit(11, 2), fan(seed, 10.0**exponent))
    weight, _ = read_tensors(layer, "the layer")
    report = verify(OutputLayer(weight.detach()), "free")
    vertex = np.array(on_the_hull(lifted(layer)))
    assert not (report.status[vertex] == Status.UNARGMAXABLE).any()
    assert not (report.status[~vertex] == Status.ARGMAXABLE).any()
    if exponent > -3:
        assert report.counts["argmaxable"] == 11


def test_unit_rows_can_fall_inside_the_hull() -> None:
    """At 1e-5 rad float32 rounds by more than the circle bulges, and classes are lost."""
    lost = [check(fill(unit(11, 2), fan(seed, 1e-5))).counts["unargmaxable"] for seed in range(20)]
    assert min(lost) >= 1
    assert max(lost) < 8
    double = fan(0, 1e-5, torch.float64)
    assert check(fill(unit(11, 2), double), "free").counts["argmaxable"] == 11


def test_unit_rows_whose_lead_is_below_the_least() -> None:
    """In float64 the same rows are right, but they lead by less than min_lead asks for."""
    layer = fill(unit(11, 2), fan(0, 1e-5, torch.float64))
    assert check(layer).counts["unargmaxable"] == 6
    weight, _ = read_tensors(layer, "the layer")
    assert verify(OutputLayer(weight.detach()), min_lead=0.0).counts["argmaxable"] == 11


@pytest.mark.parametrize(("apart", "lost"), [(1e-2, False), (1e-5, True)])
def test_voronoi_with_near_duplicates(apart: float, lost: bool) -> None:
    layer = fill(voronoi(11, 2), fan(1, apart))
    assert (check(layer).counts["argmaxable"] < 11) == lost


@pytest.mark.parametrize(
    ("dtype", "classes", "lost"),
    [
        (torch.bfloat16, 50, False),
        (torch.bfloat16, 200, True),
        (torch.float32, 1000, False),
    ],
)
def test_the_circle_of_many_classes(dtype: torch.dtype, classes: int, lost: bool) -> None:
    layer = fill(circle(classes, 3), torch.zeros(classes, 3, dtype=dtype))
    assert (check(layer).counts["argmaxable"] < classes) == lost
