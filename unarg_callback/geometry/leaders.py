"""Who wins at these points, and by how much: the one costly operation, with its error bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.rounding import SMALLEST_NORMAL, gamma

_POINTS = 512
_CLASSES = 1024
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
    most the smallest normal number for each operation.

    Args:
        layer: the layer, on the device where products run.
        dtype: float32 or float64.
    """

    def __init__(self, layer: OutputLayer, dtype: torch.dtype) -> None:
        self.layer = layer
        self.dtype = dtype
        self.device = layer.device
        self.active = layer.active.to(layer.device)
        self.count = len(self.active)
        self.middle, self.bias_middle = self._middle()
        self.unit = self._unit()
        """The power of two that rows and logits are measured in here; dividing by it is exact."""
        self._largest_norm = 0.0
        self._largest_entry = torch.zeros(layer.dim, dtype=torch.float64, device=self.device)
        self._bias = torch.empty(self.count, dtype=dtype, device=self.device)
        size = self.count * layer.dim * dtype.itemsize
        self._resident = dtype == torch.float32 or size <= _RESIDENT_BYTES
        self._tiles: list[Tensor] = []
        for span in self._spans():
            centred = self.rows(slice(span.start, span.stop))
            self._largest_entry = torch.maximum(self._largest_entry, centred.abs().amax(0))
            self._largest_norm = max(self._largest_norm, float(centred.norm(dim=1).amax()))
            self._bias[span.start : span.stop] = self.biases(slice(span.start, span.stop))
            if self._resident:
                self._tiles.append(centred.to(dtype).T.contiguous())
        self._largest_bias = self._max(self._bias.abs().double())

    def rows(self, at: Tensor | slice) -> Tensor:
        """(n, d) float64 rows, centred, in units of ``unit``."""
        return (self.layer.rows(self.active[at]) - self.middle) / self.unit

    def biases(self, at: Tensor | slice) -> Tensor:
        """(n,) float64 biases, likewise."""
        return (self.layer.biases(self.active[at]) - self.bias_middle) / self.unit

    def leads(self, targets: Tensor, points: Tensor) -> Leads:
        """Lead of each target at its point over all other active classes.

        Args:
            targets: (n,) int64 on the CPU.
            points: (n, d) in this evaluator's dtype; their values are taken as exact.
        """
        parts = [
            self._block(targets[at : at + _POINTS], points[at : at + _POINTS])
            for at in range(0, len(targets), _POINTS)
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
        best = torch.full((len(targets), count), -math.inf, dtype=self.dtype, device=self.device)
        ids = torch.zeros(len(targets), count, dtype=torch.int64, device=self.device)
        for span, tile in self._each_tile():
            logits = torch.addmm(self._bias[span.start : span.stop], points, tile)
            _mask(logits, own, span)
            top, where = logits.topk(min(count, len(span)), dim=1)
            best, order = torch.cat([best, top], 1).topk(count, dim=1)
            ids = torch.cat([ids, where + span.start], 1).gather(1, order)
        mine = (self.rows(own).to(self.dtype) * points).sum(1) + self._bias[own]
        above = best.double() - mine.double()[:, None]
        return ids, above * self.unit

    def _block(self, targets: Tensor, points: Tensor) -> Leads:
        own = targets.to(self.device)
        maxima: list[Tensor] = []
        order = torch.argsort(targets, stable=True)
        ranks = targets[order]
        for span, tile in self._each_tile():
            block = torch.addmm(self._bias[span.start : span.stop], points, tile)
            first, last = torch.searchsorted(ranks, torch.tensor([span.start, span.stop])).tolist()
            if last > first:
                rows = order[first:last].to(self.device)
                block[rows, own[rows] - span.start] = -math.inf
            maxima.append(block.amax(1))
        tile_max = torch.stack(maxima, 1)
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

    def _winners(
        self, own: Tensor, points: Tensor, tile_max: Tensor, mine: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Who wins where the target does not, and its lead over everybody, the target included."""
        best = tile_max.argmax(1)
        others = tile_max.scatter(1, best[:, None], -math.inf).amax(1)
        winner = torch.empty_like(own)
        lead = torch.empty_like(mine)
        spans = self._spans()
        for at in best.unique().tolist():
            rows = (best == at).nonzero().squeeze(1)
            logits = torch.addmm(
                self._bias[spans[at].start : spans[at].stop], points[rows], self._tile(at)
            )
            _mask(logits, own[rows], spans[at])
            top, where = logits.topk(min(2, logits.shape[1]), dim=1)
            second = torch.maximum(others[rows].double(), mine[rows])
            if top.shape[1] == 2:
                second = torch.maximum(second, top[:, 1].double())
            winner[rows] = where[:, 0] + spans[at].start
            lead[rows] = top[:, 0].double() - second
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
        return factor * (mine + largest) + tiny, factor * 2 * largest + tiny

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

    def _middle(self) -> tuple[Tensor, Tensor]:
        low = torch.full((self.layer.dim,), math.inf, dtype=torch.float64, device=self.device)
        high = -low
        for span in self._spans():
            rows = self.layer.rows(self.active[span.start : span.stop])
            low = torch.minimum(low, rows.amin(0))
            high = torch.maximum(high, rows.amax(0))
        bias = self.layer.biases(self.active)
        if not self.count:
            return torch.zeros_like(low), bias.sum()
        return low / 2 + high / 2, bias.amin() / 2 + bias.amax() / 2

    def _unit(self) -> float:
        """Smallest power of two above every centred weight."""
        largest = 0.0
        for span in self._spans():
            rows = self.layer.rows(self.active[span.start : span.stop]) - self.middle
            largest = max(largest, float(rows.abs().amax()))
        return 2.0 ** min(max(math.frexp(largest)[1], -1000), 1000) if largest else 1.0

    @staticmethod
    def _max(values: Tensor) -> float:
        return float(values.amax()) if len(values) else 0.0


def _mask(logits: Tensor, own: Tensor, span: range) -> None:
    """Take the target itself out of the race, where it lies in this tile."""
    rows = ((own >= span.start) & (own < span.stop)).nonzero().squeeze(1)
    logits[rows, own[rows] - span.start] = -math.inf
