"""Points of the domain in a fourth of float64's memory: most witnesses can afford 11 bits.

A search that first rounds a point to the grid and then tries it loses next to no witness, and the
point it proves is kept exactly in float16. What is found off the grid is kept in full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.geometry.rounding import inward

_CHUNK = 8192

_LARGEST = 14
"""Grid points are below 2 ** 15 in units of the grid, half of float16's range."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Multiples of ``unit`` by float16 numbers inside a box.

    Args:
        unit: a power of two.
        low: (d,) float64, the lowest grid point inside the box.
        high: (d,) float64.
    """

    unit: float
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, low: Tensor, high: Tensor) -> Grid | None:
        """Return the grid of a box; None where it has no point in some dimension, or no bounds.

        Args:
            low: (d,) float64.
            high: (d,) float64.
        """
        largest = float(torch.maximum(low.abs(), high.abs()).amax())
        if not (math.isfinite(largest) and 2.0**-100 < largest < 2.0**100):
            return None
        unit = 2.0 ** (math.frexp(largest)[1] - _LARGEST)
        ends = [
            inward((bound / unit).cpu(), torch.float16, up=up).double() * unit
            for bound, up in ((low, True), (high, False))
        ]
        if bool((ends[0] > ends[1]).any()):
            return None
        return cls(unit, ends[0].to(low.device), ends[1].to(low.device))

    def round(self, points: Tensor) -> Tensor:
        """(n, d) the nearest grid points inside the box, in the dtype given (float32 or float64).

        Infinities go to the bounds; NaN stays NaN.
        """
        dtype = points.dtype
        inside = points.clamp(self.low.to(dtype), self.high.to(dtype))
        return (inside / self.unit).to(torch.float16).to(dtype) * self.unit


def fit_to_domain(points: Tensor, low: Tensor, high: Tensor, dtype: torch.dtype) -> Tensor:
    """Move points into the box, and round them to ``dtype`` without leaving it.

    Where the box holds the origin inside, a point is scaled towards it, which keeps the order of
    the logits but for their biases; elsewhere it is clipped.

    Args:
        points: (n, d) float64.
        low: (d,) float64, -inf in the free domain.
        high: (d,) float64.
        dtype: of the result.
    """
    if bool(torch.isinf(low).any()):
        return points.to(dtype)
    if bool(((low < 0) & (high > 0)).all()):
        ratio = torch.maximum(points / high, points / low).amax(1, keepdim=True)
        points = points / ratio.clamp_min(1.0)
    return (
        points.clamp(low, high)
        .to(dtype)
        .clamp(inward(low, dtype, up=True), inward(high, dtype, up=False))
    )


@dataclass(frozen=True, eq=False)
class CompactPoints:
    """A points of d numbers, each on the grid in float16 or kept apart in full.

    Args:
        unit: what the float16 numbers are multiples of.
        half: (A, d) float16 on the CPU.
        odd: (k,) int64, ascending, the points that are kept apart.
        full: (k, d) float32, or float64 where some need it.
    """

    unit: float
    half: Tensor
    odd: Tensor
    full: Tensor

    @classmethod
    def pack(cls, points: Tensor, exact: dict[int, Tensor], unit: float) -> CompactPoints:
        """Keep each point exactly, as small as can be.

        Args:
            points: (A, d) float32 or float64.
            exact: points that stand in place of some of these, (d,) float64 each.
            unit: of the grid.
        """
        half = torch.empty(points.shape, dtype=torch.float16)
        apart = torch.zeros(len(points), dtype=torch.bool)
        for begin in range(0, len(points), _CHUNK):
            span = slice(begin, begin + _CHUNK)
            part = points[span]
            rounded = (part / unit).to(torch.float16)
            apart[span] = ((rounded.to(part.dtype) * unit) != part).any(1).cpu()
            half[span] = rounded.cpu()
        apart[list(exact)] = True
        at = apart.nonzero().squeeze(1)
        full = points[at.to(points.device)].cpu()
        if exact:
            place = {int(index): row for row, index in enumerate(at.tolist())}
            if any(not torch.equal(p.cpu().float().double(), p.cpu()) for p in exact.values()):
                full = full.double()
            for index, point in exact.items():
                full[place[index]] = point.to(full)
        half[at] = 0
        return cls(unit, half, at, full)

    def replaced(self, at: Tensor, points: Tensor, exact: dict[int, Tensor]) -> CompactPoints:
        """Return the same points but for some.

        Args:
            at: (n,) int64 on the CPU, ascending.
            points: (n, d) float32 or float64.
            exact: points that stand in place of some of these, by position.
        """
        if not len(at):
            return self
        place = {int(position): row for row, position in enumerate(at.tolist())}
        new = self.pack(points, {place[one]: point for one, point in exact.items()}, self.unit)
        half = self.half.clone()
        half[at] = new.half
        stay = ~torch.isin(self.odd, at)
        wide = torch.promote_types(self.full.dtype, new.full.dtype)
        odd = torch.cat([self.odd[stay], at[new.odd]])
        full = torch.cat([self.full[stay].to(wide), new.full.to(wide)])
        order = odd.argsort()
        return CompactPoints(self.unit, half, odd[order], full[order])

    def fits(self, count: int, dim: int) -> bool:
        """Whether these can be ``count`` points of ``dim`` numbers."""
        half, odd, full = self.half, self.odd, self.full
        return bool(
            math.isfinite(self.unit)
            and (half.dtype, half.shape) == (torch.float16, (count, dim))
            and (odd.dtype, odd.ndim) == (torch.int64, 1)
            and full.dtype in (torch.float32, torch.float64)
            and full.shape == (len(odd), dim)
            and ((odd >= 0) & (odd < count)).all()
            and (odd.diff() > 0).all()
        )

    @property
    def dim(self) -> int:
        """Numbers a point, d."""
        return int(self.half.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes that the tensors take."""
        return sum(one.numel() * one.dtype.itemsize for one in (self.half, self.odd, self.full))

    def exact(self, at: Tensor) -> Tensor:
        """(n, d) float64 on the CPU, the points at (n,) positions."""
        points = self.half[at].double() * self.unit
        place, found = self._apart(at)
        points[found] = self.full[place[found]].double()
        return points

    def unpack(self, dtype: torch.dtype) -> tuple[Tensor, dict[int, Tensor]]:
        """All points in ``dtype`` on the CPU, and in float64 those that it can't hold exactly."""
        points = self.half.to(dtype) * self.unit
        points[self.odd] = self.full.to(dtype)
        exact: dict[int, Tensor] = {}
        if self.full.dtype.itemsize > dtype.itemsize:
            lossy = (self.full.to(dtype).to(self.full.dtype) != self.full).any(1)
            for row in lossy.nonzero().squeeze(1).tolist():
                exact[int(self.odd[row])] = self.full[row].double()
        return points, exact

    def _apart(self, at: Tensor) -> tuple[Tensor, Tensor]:
        place = torch.searchsorted(self.odd, at)
        found = place < len(self.odd)
        found[found.clone()] = self.odd[place[found]] == at[found]
        return place, found
