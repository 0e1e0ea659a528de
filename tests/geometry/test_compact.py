"""Points kept small: the grid, and exact packing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unarg_callback.geometry.compact import CompactPoints, Grid


def box(low: list[float], high: list[float]) -> Grid | None:
    return Grid.of(torch.tensor(low).double(), torch.tensor(high).double())


class TestGrid:
    @pytest.mark.parametrize("scale", [1e-20, 1e-3, 0.1, 1.0, 100.0, 12345.0, 1e20])
    def test_rounded_points_stay_inside_and_near(self, scale: float) -> None:
        grid = box([-scale, 0.0, scale / 3], [scale, scale / 7, scale])
        assert grid is not None
        draw = torch.Generator().manual_seed(0)
        points = scale * (2 * torch.rand(200, 3, generator=draw) - 1)
        low, high = grid.low.float(), grid.high.float()
        rounded = grid.round(points)
        assert ((rounded >= low) & (rounded <= high)).all()
        inside = points.clamp(low, high)
        assert ((rounded - inside).abs() <= inside.abs() * 2**-11 + scale * 2**-30).all()
        assert torch.equal(grid.round(rounded), rounded)

    def test_ends_lie_inside_the_box(self) -> None:
        grid = box([-0.1, 0.3], [0.1, 1000.1])
        assert grid is not None
        assert (grid.low >= torch.tensor([-0.1, 0.3]).double()).all()
        assert (grid.high <= torch.tensor([0.1, 1000.1]).double()).all()

    def test_infinities_go_to_the_ends(self) -> None:
        grid = box([-1.0], [2.0])
        assert grid is not None
        rounded = grid.round(torch.tensor([[torch.inf], [-torch.inf]]))
        assert rounded.tolist() == [[2.0], [-1.0]]

    @pytest.mark.parametrize(
        ("low", "high"),
        [
            ([-torch.inf], [torch.inf]),
            ([1.0001], [1.0002]),
            ([0.0], [0.0]),
            ([-1e200], [1e200]),
            ([0.50001, -1.0], [0.50002, 1.0]),
        ],
    )
    def test_no_grid_where_it_has_no_point_or_no_bounds(
        self, low: list[float], high: list[float]
    ) -> None:
        assert box(low, high) is None


class TestCompactPoints:
    @staticmethod
    def points(dtype: torch.dtype) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        draw = torch.Generator().manual_seed(1)
        points = torch.randn(50, 4, generator=draw, dtype=dtype)
        points[::2] = points[::2].half().to(dtype)
        exact = {7: torch.rand(4, generator=draw).double() / 3, 8: torch.ones(4).double()}
        return points, exact

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("unit", [1.0, 2.0**-7, 2.0**30])
    def test_every_point_comes_back_exactly(self, dtype: torch.dtype, unit: float) -> None:
        points, exact = self.points(dtype)
        packed = CompactPoints.pack(points * unit, exact, unit)
        expected = (points * unit).double()
        for at, point in exact.items():
            expected[at] = point
        assert torch.equal(packed.exact(torch.arange(50)), expected)
        assert torch.equal(packed.exact(torch.tensor([8, 3, 7])), expected[[8, 3, 7]])
        unpacked, kept = packed.unpack(dtype)
        for at, point in kept.items():
            unpacked[at] = point.to(dtype)
            assert torch.equal(point, expected[at])
        assert torch.equal(unpacked, expected.to(dtype))
        assert packed.fits(50, 4)
        assert packed.dim == 4

    def test_what_lies_on_the_grid_takes_two_bytes_a_number(self) -> None:
        points = torch.arange(400.0).reshape(100, 4)
        assert CompactPoints.pack(points, {}, 1.0).nbytes == 800

    def test_beyond_float16_nothing_is_lost(self) -> None:
        points = torch.tensor([[1e30, 1e-30], [torch.nan, torch.inf]])
        packed = CompactPoints.pack(points, {}, 1.0)
        np.testing.assert_array_equal(packed.exact(torch.arange(2)), points.double())

    @pytest.mark.parametrize("at", [[], [0], [6, 7, 8], list(range(50))])
    def test_replaced(self, at: list[int]) -> None:
        points, exact = self.points(torch.float32)
        packed = CompactPoints.pack(points, exact, 1.0)
        other = torch.randn(len(at), 4, generator=torch.Generator().manual_seed(2))
        if at:
            other[0] = 1.0
        odd = {at[-1]: torch.full((4,), 1 / 3).double()} if at else {}
        changed = packed.replaced(torch.tensor(at, dtype=torch.int64), other, odd)
        expected = packed.exact(torch.arange(50))
        expected[at] = other.double()
        for place, point in odd.items():
            expected[place] = point
        assert torch.equal(changed.exact(torch.arange(50)), expected)
        assert changed.fits(50, 4)

    def test_no_points(self) -> None:
        packed = CompactPoints.pack(torch.zeros(0, 3), {}, 1.0)
        assert packed.unpack(torch.float32)[0].shape == (0, 3)
        assert packed.fits(0, 3)

    def test_what_does_not_fit(self) -> None:
        points, exact = self.points(torch.float32)
        packed = CompactPoints.pack(points, exact, 1.0)
        assert not packed.fits(49, 4)
        assert not packed.fits(50, 3)
        for odd in (packed.odd.flip(0), packed.odd + 100, packed.odd - 100):
            assert not CompactPoints(1.0, packed.half, odd, packed.full).fits(50, 4)
