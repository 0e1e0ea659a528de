"""Who wins at these points, and by how much: the one costly operation, with its error bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.rounding import SMALLEST_NORMAL, gamma

_GROUP = 8192
"""Points whose winners are looked up together, a tile at a time."""
_POINTS = 512
_CLASSES = 1024
_LOGITS = 2**21
"""Most logits that are held at once to find the strongest."""
_RESIDENT_BYTES = 2**30


@dataclass(frozen=True, eq=False)
class Leads:
    """Leads of n targets at n points, all float64 in units of the logits.

    Args:
        lead: (n,) computed lead of each target; +inf where it has no rival.
        error: (n,) bound on ``|lead - exact lead|``.
        rival: (n,) the strongest other class where the target does not lead, else -1.
        rival_lead: (n,) computed lead of that rival at the point (NaN where ``rival`` is -1).
        rival_error: (n,) bound on its error.
    """

    lead: Tensor
    error: Tensor
    rival: Tensor
    rival_lead: Tensor
    rival_error: Tensor


@dataclass(frozen=True, eq=False)
class Ends:
    """The lowest and the highest weight of each column, and of the biases; all float64.

    They say what rows are measured against. Where a layer's rows lie in several places, the ends
    over all of them give each the same.

    Args:
        low: (d,), +inf where no class takes part.
        high: (d,), -inf likewise.
        bias_low: (); a bias below counts as this one, see :meth:`within`.
        bias_high: ().
    """

    low: Tensor
    high: Tensor
    bias_low: Tensor
    bias_high: Tensor

    @classmethod
    def of(cls, layer: OutputLayer) -> Ends:
        """Return the ends over the active classes of a layer."""
        active = layer.active.to(layer.device)
        everyone = len(active) == layer.classes
        low = torch.full((layer.dim,), math.inf, dtype=torch.float64, device=layer.device)
        high = -low
        for at in range(0, len(active), _CLASSES):
            span = slice(at, at + _CLASSES)
            rows = layer.weight[span if everyone else active[span]]
            low = torch.minimum(low, rows.amin(0).double())
            high = torch.maximum(high, rows.amax(0).double())
        if not len(active):
            return cls(low, high, low.new_tensor(math.inf), low.new_tensor(-math.inf))
        bias = layer.biases(slice(None) if everyone else active)
        return cls(low, high, bias.amin(), bias.amax())

    def within(self, low: Tensor, high: Tensor, min_lead: float | None = None) -> Ends:
        """The same, but for biases so low that they only say: never this class.

        Masked classes have a bias like -1e9 or the lowest number of float32, beside which all other
        logits and their leads look like nothing. Over a box, with m the middle of the columns, no
        logit ``(w_i - m).x`` exceeds ``R = sum_k max_i |w_i - m|_k max_x |x_k|`` in size. A class
        with a bias below ``floor = max_i b_i - 2.2 R - 2 min_lead`` loses to the one with the
        highest everywhere, by 0.2 R and ``2 min_lead`` at least, even if ``floor`` were its bias.
        Taking that for its bias keeps every verdict: other leads stay or get smaller, by nothing
        that matters, and its own stay below 0.

        Args:
            low: (d,) float64, of the box; nothing changes if it is unbounded.
            high: (d,) float64.
            min_lead: what leads must exceed; None if that is a share of the range of the logits.
        """
        farthest = torch.maximum(low.abs(), high.abs())
        reach = (self.middle()[2] * farthest).nan_to_num(math.inf, math.inf).sum()
        floor = self.bias_high - 2.2 * reach - 2 * (min_lead or 0.0)
        if not bool((reach > 0) & torch.isfinite(floor) & (floor > self.bias_low)):
            return self
        return Ends(self.low, self.high, floor, self.bias_high)

    def middle(self) -> tuple[Tensor, Tensor, Tensor]:
        """Middle of each column and of the biases, and (d,) the largest centred weight in size.

        Subtraction rounds to nearest and so keeps order: the ends of a column have the largest.
        """
        if not bool((self.bias_low <= self.bias_high).item()):
            zeros = torch.zeros_like(self.low)
            return zeros, torch.zeros_like(self.bias_low), zeros
        middle = self.low / 2 + self.high / 2
        reach = torch.maximum(self.high - middle, middle - self.low)
        return middle, self.bias_low / 2 + self.bias_high / 2, reach


class LeadEvaluator:
    """Leads in floating point over the active classes of a layer.

    Classes are numbered 0 to A - 1 here, the positions in ``layer.active``.

    The centre m (the middle of each column's range, so that the order of classes changes nothing)
    is taken off every row and a power of two off the scale; neither changes a lead beyond that
    power. Entry by entry ``fl(w - m) = (w - m)(1 + e)``, ``|e| <= 2 u``, whatever m is.

    **Error.** A logit is an inner product of d + 1 terms whose entries carry at most two roundings
    each: its error is at most ``gamma(d + 3) (|w - m|.|x| + |b|)``. A lead is the difference of two
    logits: with its own rounding, ``gamma(d + 4)`` times the sum of both. For all but the target
    ``|w - m|.|x|`` is replaced by the smaller of ``max |w - m|_2 |x|_2`` (Cauchy-Schwarz) and
    ``sum_k |x_k| max |w - m|_k``, which features in different units don't spoil. Underflow adds at
    most the smallest normal number for each operation. Where the terms are so large that a sum of
    them might overflow, the error is infinite.

    Args:
        layer: the layer, on the device where products run.
        dtype: float32 or float64.
        ends: what to measure rows against, columns at least as far apart as those of this layer,
            which are the default.
    """

    def __init__(self, layer: OutputLayer, dtype: torch.dtype, ends: Ends | None = None) -> None:
        self.layer = layer
        self.dtype = dtype
        self.device = layer.device
        self.active = layer.active.to(layer.device)
        self.count = len(self.active)
        self._everyone = self.count == layer.classes
        ends = ends or Ends.of(layer)
        self.middle, self.bias_middle, reach = ends.middle()
        largest = float(reach.amax())
        self.unit = 2.0 ** min(max(math.frexp(largest)[1], -1000), 1000) if largest else 1.0
        """The power of two that rows and logits are measured in here; dividing by it is exact."""
        self._bias_floor = ends.bias_low
        self._largest_norm = 0.0
        self._largest_entry = reach / self.unit
        self._bias = torch.empty(self.count, dtype=dtype, device=self.device)
        size = self.count * layer.dim * dtype.itemsize
        self._resident = size <= _RESIDENT_BYTES
        self._tiles: list[Tensor] = []
        for span in self._spans():
            centred = self.rows(slice(span.start, span.stop))
            self._largest_norm = max(self._largest_norm, float(centred.norm(dim=1).amax()))
            self._bias[span.start : span.stop] = self.biases(slice(span.start, span.stop))
            if self._resident:
                self._tiles.append(centred.to(dtype).T.contiguous())
        # The conversion keeps order as the subtraction does: nobody's bias is larger in size.
        above, below = ends.bias_high - self.bias_middle, self.bias_middle - ends.bias_low
        self._largest_bias = max(float((torch.maximum(above, below) / self.unit).to(dtype)), 0.0)

    def rows(self, at: Tensor | slice) -> Tensor:
        """(n, d) float64 rows, centred, in units of ``unit``."""
        return (self.layer.rows(self._ids(at)) - self.middle) / self.unit

    def biases(self, at: Tensor | slice) -> Tensor:
        """(n,) float64 biases, likewise; none below what :meth:`Ends.within` leaves."""
        raised = torch.maximum(self.layer.biases(self._ids(at)), self._bias_floor)
        return (raised - self.bias_middle) / self.unit

    def raised(self, at: Tensor) -> Tensor:
        """Which of the positions ``at`` have a bias that counts as higher; bool, shaped alike."""
        return (self.layer.biases(self.active[at.reshape(-1)]) < self._bias_floor).reshape(at.shape)

    def leads(self, targets: Tensor, points: Tensor) -> Leads:
        """Lead of each target at its point over all other active classes.

        Args:
            targets: (n,) int64 on the CPU.
            points: (n, d) in this evaluator's dtype; their values are taken as exact.
        """
        parts = [
            self._leads(targets[at : at + _GROUP], points[at : at + _GROUP])
            for at in range(0, len(targets), _GROUP)
        ]
        if not parts:
            none = torch.empty(0, dtype=torch.float64, device=self.device)
            return Leads(none, none, none.long(), none, none)
        fields = [
            torch.cat([getattr(part, name) for part in parts])
            for name in Leads.__dataclass_fields__
        ]
        return Leads(*fields)

    def strongest(self, targets: Tensor, points: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The ``count`` strongest rivals at each point and how far each is above the target.

        Returns:
            (n, count) int64 and (n, count) float64, the latter descending.
        """
        count = min(count, self.count - 1)
        own = targets.to(self.device)
        at_once = max(1, _LOGITS // max(self.count, 1))
        parts = [
            self._strongest(part, there, count)
            for part, there in zip(own.split(at_once), points.split(at_once), strict=True)
        ]
        ids = torch.cat([part[0] for part in parts])
        best = torch.cat([part[1] for part in parts])
        mine = (self.rows(own).to(self.dtype) * points).sum(1) + self._bias[own]
        above = best.double() - mine.double()[:, None]
        return ids, above * self.unit

    def _strongest(self, own: Tensor, points: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """(n, count) positions of the highest logits and the logits, the targets' own left out."""
        logits = torch.empty(len(own), self.count, dtype=self.dtype, device=self.device)
        for span, tile in self._each_tile():
            bias = self._bias[span.start : span.stop]
            torch.addmm(bias, points, tile, out=logits[:, span.start : span.stop])
        _mask(logits, own, range(self.count))
        best, ids = logits.topk(count, dim=1)
        return ids, best

    def _leads(self, targets: Tensor, points: Tensor) -> Leads:
        own = targets.to(self.device)
        tile_max = self._tile_maxima(targets, points)
        rows = self.rows(own)
        mine = (rows.to(self.dtype) * points).sum(1).double() + self._bias[own].double()
        lead = mine - tile_max.amax(1).double()
        rival = torch.full_like(own, -1)
        rival_lead = torch.full_like(lead, math.nan)
        losing = (~(lead > 0)).nonzero().squeeze(1)
        if len(losing) and self.count > 1:
            found = self._winners(own[losing], points[losing], tile_max[losing], mine[losing])
            rival[losing], rival_lead[losing] = found
        error, rival_error = self._errors(own, rows, points)
        unit = self.unit
        # The way back to the logits' own scale may underflow.
        least = SMALLEST_NORMAL[torch.float64]
        error, rival_error = error * unit + least, rival_error * unit + least
        return Leads(lead * unit, error, rival, rival_lead * unit, rival_error)

    def _tile_maxima(self, targets: Tensor, points: Tensor) -> Tensor:
        """(n, tiles) highest logit in each tile of classes, the targets' own left out."""
        own = targets.to(self.device)
        order = torch.argsort(targets, stable=True)
        ranks = targets[order]
        # One tensor for all: what a loop keeps beside large temporaries leaves holes in the heap.
        tiles = len(self._spans())
        maxima = torch.empty(len(points), tiles, dtype=self.dtype, device=self.device)
        for column, (span, tile) in enumerate(self._each_tile()):
            first, last = torch.searchsorted(ranks, torch.tensor([span.start, span.stop])).tolist()
            mine = order[first:last]
            for at in range(0, len(points), _POINTS):
                part = points[at : at + _POINTS]
                block = torch.addmm(self._bias[span.start : span.stop], part, tile)
                rows = mine[(mine >= at) & (mine < at + _POINTS)].to(self.device)
                block[rows - at, own[rows] - span.start] = -math.inf
                maxima[at : at + _POINTS, column] = block.amax(1)
        return maxima

    def _winners(
        self, own: Tensor, points: Tensor, tile_max: Tensor, mine: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Who wins where the target does not, and its lead over everybody, the target included."""
        best = tile_max.argmax(1)
        others = tile_max.scatter(1, best[:, None], -math.inf).amax(1)
        winner = torch.empty_like(own)
        lead = torch.empty_like(mine)
        spans = self._spans()
        order = torch.argsort(best, stable=True)
        sizes = torch.bincount(best, minlength=len(spans)).tolist()
        for at, rows in enumerate(order.split(sizes)):
            if not len(rows):
                continue
            logits = torch.addmm(
                self._bias[spans[at].start : spans[at].stop], points[rows], self._tile(at)
            )
            _mask(logits, own[rows], spans[at])
            first, where = _first(logits)
            logits[torch.arange(len(rows), device=logits.device), where] = -math.inf
            second = torch.maximum(others[rows].double(), mine[rows])
            second = torch.maximum(second, logits.amax(1).double())
            winner[rows] = where + spans[at].start
            lead[rows] = first.double() - second
        return winner, lead

    def _errors(self, own: Tensor, rows: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds for the leads of the targets, and for those of any class over any other."""
        reach = points.double().abs()
        length = reach.norm(dim=1) * self._largest_norm
        largest = torch.minimum(length, reach @ self._largest_entry) + self._largest_bias
        mine = (rows.abs() * reach).sum(1) + self._bias[own].abs().double()
        operations = 4 * (self.layer.dim + 4)
        tiny = operations * SMALLEST_NORMAL[self.dtype] * (2 + reach.amax(1))
        # Two more roundings, and the rest of the factor, cover those of this bound itself.
        factor = gamma(self.layer.dim + 6, self.dtype) * (1 + 1e-9)
        # Where a sum might overflow on its way, its value says nothing.
        safe = mine + largest < torch.finfo(self.dtype).max / 8
        error = torch.where(safe, factor * (mine + largest) + tiny, math.inf)
        return error, torch.where(safe, factor * 2 * largest + tiny, math.inf)

    def _spans(self) -> list[range]:
        return [range(at, min(at + _CLASSES, self.count)) for at in range(0, self.count, _CLASSES)]

    def _tile(self, at: int) -> Tensor:
        if self._resident:
            return self._tiles[at]
        span = self._spans()[at]
        return self.rows(slice(span.start, span.stop)).to(self.dtype).T.contiguous()

    def _each_tile(self) -> Iterator[tuple[range, Tensor]]:
        for at, span in enumerate(self._spans()):
            yield span, self._tile(at)

    def _ids(self, at: Tensor | slice) -> Tensor | slice:
        """Class ids of positions: where all classes take part, a slice needs no look-up."""
        return at if self._everyone and isinstance(at, slice) else self.active[at]


def _first(values: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) largest of each row and where it stands first; 0 in a row with NaN.

    ``amax`` and a comparison take a fraction of the time of ``max`` or ``topk`` on a CPU.
    """
    largest = values.amax(1)
    rows, columns = (values == largest[:, None]).nonzero(as_tuple=True)
    where = torch.full_like(largest, values.shape[1], dtype=torch.int64)
    where = where.scatter_reduce(0, rows, columns, "amin")
    return largest, torch.where(where < values.shape[1], where, 0)


def _mask(logits: Tensor, own: Tensor, span: range) -> None:
    """Take the target itself out of the race, where it lies in this tile."""
    rows = ((own >= span.start) & (own < span.stop)).nonzero().squeeze(1)
    logits[rows, own[rows] - span.start] = -math.inf
