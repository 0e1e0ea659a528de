"""Quantiles of streams of numbers in bounded memory, as counts in bins of relative width.

A sketch in the manner of DDSketch (Masson, Rim and Lee 2019): each number falls into a bin whose
ends differ by a small factor, so that any quantile is known up to a relative error, and sketches
are merged by adding counts. Bins are told by the leading bits of a float32, which is exact and the
same on every device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.errors import UnargError

_MANTISSA_BITS = 23
_EXPONENT_BIAS = 127
_NO_SIGN = 0x7FFFFFFF
_ROWS_AT_ONCE = 256
_NAMES = {torch.int32: "int32", torch.int64: "int64"}


class QuantileSketch:
    """Quantiles of several streams that grow together, each up to a relative error.

    A number of magnitude from ``2**lowest`` to below ``2**highest`` is known up to a relative error
    of ``1 / (2**(bits + 1) + 1)``, plus 2**-24 for those that aren't exact in float32. Smaller
    ones count as 0, an error of at most ``2**lowest``; the place of larger ones is known, but not
    their size.

    Args:
        rows: number of streams.
        bits: leading bits that tell bins apart; ``2**bits`` bins an octave.
        lowest: from -126.
        highest: to 128, the range of float32.
        dtype: of the counts, int32 or int64. Once a sketch is full it takes nothing more in.
        device: where the counts lie.

    >>> sketch = QuantileSketch(1)
    >>> sketch.add(torch.arange(-100.0, 101.0)[:, None])
    >>> sketch.quantile(0.25).round(), f"{sketch.accuracy:.2%}"
    (array([-50.]), '1.54%')
    """

    def __init__(
        self,
        rows: int,
        *,
        bits: int = 5,
        lowest: int = -16,
        highest: int = 16,
        dtype: torch.dtype = torch.int32,
        device: torch.device | str | None = None,
    ) -> None:
        self.rows, self.bits, self.lowest, self.highest = _checked(rows, bits, lowest, highest)
        if dtype not in _NAMES:
            raise UnargError(f"dtype of the counts is {dtype}; expected torch.int32 or torch.int64")
        self._magnitudes = (highest - lowest) << bits
        self.bins = 2 * self._magnitudes + 3
        """Bins a row: both signs, one around 0 and two for what is beyond the range."""
        if rows * self.bins >= 2**31:
            raise UnargError(f"{rows} rows of {self.bins} bins are too many; expected below 2**31")
        self.counts = torch.zeros(rows * self.bins, dtype=dtype, device=device)
        """(rows * bins) int32 or int64, by row and from the most negative bin on."""
        self.taken = torch.zeros((), dtype=torch.int64, device=device)
        """() int64: numbers taken in, the same for each row."""

    @property
    def accuracy(self) -> float:
        """Relative error of a quantile whose magnitude is within the range."""
        return 1.0 / (2 ** (self.bits + 1) + 1)

    def add(self, values: Tensor, mask: Tensor | None = None) -> None:
        """Take in a number for each row, several times. Nothing waits for the device.

        Args:
            values: (n, rows), any floating dtype, on the counts' device. Infinite ones are beyond
                the range; NaN must be masked.
            mask: (n,) bool, which of the n count; None for all.
        """
        kept = torch.ones_like(values[:, 0], dtype=torch.bool) if mask is None else mask
        kept = kept & (self.taken <= torch.iinfo(self.counts.dtype).max - len(values))
        pattern = values.detach().float().view(torch.int32)
        beyond = self._magnitudes + 1
        first = ((_EXPONENT_BIAS + self.lowest) << self.bits) - 1
        shift = _MANTISSA_BITS - self.bits
        size = (((pattern & _NO_SIGN) >> shift) - first).clamp(0, beyond)
        sign = (pattern >> 31) * 2 + 1
        row = torch.arange(self.rows, dtype=torch.int32, device=values.device) * self.bins
        places = size * sign + (row + beyond)
        weights = kept.to(self.counts.dtype)
        self.counts.index_add_(0, places.reshape(-1), weights[:, None].expand_as(places).flatten())
        self.taken.add_(kept.sum())

    def merge(self, other: QuantileSketch) -> None:
        """Take in what another sketch took in; this one widens its counts if it has to.

        Raises:
            UnargError: its rows or bins are others.
        """
        if self.layout != other.layout:
            raise UnargError(
                f"sketches of {other.layout} can't be merged into one of {self.layout}; expected "
                "the same rows and bins"
            )
        if int(self.taken) + int(other.taken) > torch.iinfo(self.counts.dtype).max:
            self.counts = self.counts.long()
        self.counts.add_(other.counts.to(self.counts))
        self.taken.add_(other.taken.to(self.taken))

    def to(self, device: torch.device) -> None:
        """Move the counts."""
        self.counts, self.taken = self.counts.to(device), self.taken.to(device)

    @property
    def layout(self) -> tuple[int, int, int, int]:
        """Rows, bits, lowest and highest: what two sketches must share to be merged."""
        return self.rows, self.bits, self.lowest, self.highest

    def quantile(self, q: float) -> NDArray[np.float64]:
        """(rows,) float64: the number at rank ``floor(q (n - 1))`` of the n taken in, in order.

        That is numpy's ``method="lower"``. Infinite where it is beyond the range, NaN where nothing
        was taken in.

        Raises:
            UnargError: q isn't between 0 and 1.
        """
        if not 0 <= q <= 1:
            raise UnargError(f"q is {q}; expected a number from 0 to 1")
        taken = int(self.taken)
        if not taken:
            return np.full(self.rows, np.nan)
        rank = int(q * (taken - 1))
        found = []
        for part in self.counts.view(self.rows, self.bins).split(_ROWS_AT_ONCE):
            upto = part.cumsum(1, dtype=torch.int64)
            found.append((upto <= rank).sum(1).cpu())
        middle: NDArray[np.float64] = self._edges()[2][torch.cat(found).numpy()]
        return middle

    def surely_beyond(self, low: float, high: float) -> NDArray[np.int64]:
        """(rows,) int64: how many numbers are, for all the bins tell, below low or above high."""
        lower, upper, _ = self._edges()
        outside = torch.from_numpy((lower > high) | (upper < low))
        counts = self.counts.view(self.rows, self.bins)
        beyond: NDArray[np.int64] = counts[:, outside.to(counts.device)].sum(1).cpu().numpy()
        return beyond

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins; only bins that some row has used."""
        counts = self.counts.view(self.rows, self.bins).cpu()
        used = (counts != 0).any(0).nonzero().flatten()
        return {
            "layout": list(self.layout),
            "dtype": _NAMES[self.counts.dtype],
            "bins": used.int(),
            "counts": counts[:, used].contiguous(),
            "taken": int(self.taken),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QuantileSketch:
        """A sketch on the CPU from what :meth:`state_dict` gave.

        Raises:
            UnargError: the state is damaged.
        """
        rows, bits, lowest, highest = state["layout"]
        dtype = {name: dtype for dtype, name in _NAMES.items()}[state["dtype"]]
        sketch = cls(rows, bits=bits, lowest=lowest, highest=highest, dtype=dtype, device="cpu")
        used, counts, taken = state["bins"].long(), state["counts"], state["taken"]
        if (
            used.ndim != 1
            or counts.shape != (rows, len(used))
            or counts.dtype != dtype
            or type(taken) is not int
            or bool((used.diff() <= 0).any() | (used < 0).any() | (used >= sketch.bins).any())
            or bool((counts < 0).any() | (counts.sum(1) != taken).any())
        ):
            raise UnargError(
                "the saved state of a quantile sketch is damaged: its counts don't fit its bins"
            )
        sketch.counts.view(rows, sketch.bins)[:, used] = counts.cpu()
        sketch.taken.fill_(taken)
        return sketch

    def _edges(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        return _edges(self.bits, self.lowest, self.highest)


def _edges(
    bits: int, lowest: int, highest: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(bins,) float64 lower and upper end of each bin, and what stands for it."""
    steps = np.arange(((highest - lowest) << bits) + 1)
    ends = np.ldexp(1 + (steps & ((1 << bits) - 1)) / (1 << bits), lowest + (steps >> bits))
    below, above = ends[:-1], ends[1:]
    # Equally far, relative to its size, from either end: below (1 + a) = above (1 - a).
    middle = 2 * below * (above / (below + above))
    lower = np.concatenate([[-np.inf], -above[::-1], [-ends[0]], below, ends[-1:]])
    upper = np.concatenate([-ends[-1:], -below[::-1], [ends[0]], above, [np.inf]])
    return lower, upper, np.concatenate([[-np.inf], -middle[::-1], [0.0], middle, [np.inf]])


def _checked(rows: int, bits: int, lowest: int, highest: int) -> tuple[int, int, int, int]:
    given = {"rows": rows, "bits": bits, "lowest": lowest, "highest": highest}
    for name, value in given.items():
        if type(value) is not int:
            raise UnargError(f"{name} is {value!r}; expected a whole number")
    if rows < 1 or not 0 <= bits <= 12 or not -126 <= lowest < highest <= 128:
        raise UnargError(
            f"a sketch of {given} can't be made; expected rows from 1, bits from 0 to 12 and "
            "-126 <= lowest < highest <= 128"
        )
    return rows, bits, lowest, highest
