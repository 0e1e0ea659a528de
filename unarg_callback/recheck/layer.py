"""An output layer in exact arithmetic: its leads at points, and bounds on them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unarg_callback.recheck.barycentric import combination
from unarg_callback.recheck.errors import RecheckError
from unarg_callback.recheck.integers import integers, integers_at, lowest_exponent, power

_TILE = 256
"""Points at a time, and fewer where there are many classes."""
_ENTRIES = 1 << 23


class ExactLayer:
    """A layer ``z = W x + b`` whose entries are integers times one power of two each.

    Args:
        weight: (C, d) finite in every class that takes part; exact in float64.
        bias: (C,), (C, 1), (1, C) or None.
        excluded: ids that take no part.

    Raises:
        RecheckError: these make no layer.

    >>> layer = ExactLayer([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0.0, 0.0, 0.25])
    >>> layer.lead(0, [1.0, 0.5])
    Fraction(1, 2)
    """

    def __init__(
        self, weight: ArrayLike, bias: ArrayLike | None, excluded: Iterable[int] = ()
    ) -> None:
        self.weight: NDArray[np.float64] = np.array(weight, dtype=np.float64)
        if self.weight.ndim != 2 or 0 in self.weight.shape:
            raise RecheckError(
                f"weight has shape {self.weight.shape}; expected (classes, features)"
            )
        self.classes, self.dim = self.weight.shape
        self.bias: NDArray[np.float64] = (
            np.zeros(self.classes) if bias is None else np.array(bias, np.float64).ravel()
        )
        if self.bias.shape != (self.classes,):
            raise RecheckError(f"bias has {self.bias.size} entries for {self.classes} classes")
        self.excluded = frozenset(int(i) for i in excluded)
        out = sorted(self.excluded)
        if out and not 0 <= out[0] <= out[-1] < self.classes:
            raise RecheckError(f"excluded ids {out[0]} to {out[-1]} for {self.classes} classes")
        self.weight[out] = 0.0
        self.bias[out] = 0.0
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise RecheckError("the layer has NaN or inf in a class that takes part")
        self.active: NDArray[np.int64] = np.setdiff1d(np.arange(self.classes), out)
        self._row_exponent = lowest_exponent(self.weight)
        self._biases, self._bias_exponent = integers(self.bias)
        with np.errstate(over="ignore"):
            self._largest = float(np.abs(self.weight).max()), float(np.abs(self.bias).max())

    def difference(self, index: int, rival: int, point: ArrayLike) -> Fraction:
        """``z_index - z_rival`` at a (d,) point, exactly."""
        steps, exponent = integers(point)
        return self._differences(index, [rival], steps.tolist(), exponent)[0]

    def lead(self, index: int, point: ArrayLike) -> Fraction | None:
        """Exact lead of a class at a (d,) point; None if it has no rival."""
        return self.leads([index], np.asarray(point, dtype=np.float64)[None])[0][0]

    def leads(
        self, classes: Iterable[int], points: NDArray[np.float64]
    ) -> tuple[list[Fraction | None], int]:
        """Exact leads of n classes at (n, d) points, and how many rivals were compared exactly."""
        ids = np.asarray(list(classes), dtype=np.int64)
        found: list[Fraction | None] = []
        redone = 0
        tile = min(_TILE, max(_ENTRIES // self.classes, 1))
        for start in range(0, len(ids), tile):
            some, inputs = ids[start : start + tile], points[start : start + tile]
            doubtful = self._doubtful(some, inputs)
            for index, point, rivals in zip(some.tolist(), inputs, doubtful, strict=True):
                steps, exponent = integers(point)
                gaps = self._differences(index, rivals, steps.tolist(), exponent)
                found.append(min(gaps, default=None))
                redone += len(gaps)
        return found, redone

    def box_bound(
        self,
        index: int,
        support: NDArray[np.int64],
        weight: NDArray[np.floating],
        low: NDArray[Any],
        high: NDArray[Any],
    ) -> Fraction:
        """``max over the box of sum_i lambda_i (z_index - z_i) / sum lambda``, exactly.

        Args:
            index: the class.
            support: (m,) its rivals i.
            weight: (m,) lambda, nonnegative and not all zero.
            low: (d,) of the box.
            high: (d,) of the box.
        """
        lam, _ = integers(weight)
        total = sum(lam.tolist())
        corners, corner_exponent = integers(np.stack([low, high]))
        slope = total * self._rows([index])[0] - lam @ self._rows(support)
        over_box = sum(np.maximum(corners[0] * slope, corners[1] * slope).tolist())
        offset = total * self._biases[index] - lam @ self._biases[support]
        bound = over_box * power(self._row_exponent + corner_exponent)
        bound += int(offset) * power(self._bias_exponent)
        return bound / total

    def free_bound(
        self, index: int, support: NDArray[np.int64], weight: NDArray[np.floating]
    ) -> Fraction:
        """``sum_i mu_i (b_index - b_i)`` for exact barycentric coordinates mu of the class's row.

        Args:
            index: the class.
            support: (m,) its rivals i.
            weight: (m,) float64 near the coordinates, none negative.

        Raises:
            InexactError: no such coordinates >= 0 were found.
        """
        order = np.argsort(-np.asarray(weight), kind="stable")
        ids = np.asarray(support)[order]
        stored = integers(np.asarray(weight)[order])[0].tolist()
        shares, total = combination(self._rows(ids), self._rows([index])[0], stored)
        gaps = (self._biases[index] - self._biases[ids]).tolist()
        return Fraction(sum(map(mul, shares, gaps)), total) * power(self._bias_exponent)

    def _rows(self, ids: NDArray[np.int64] | list[int]) -> NDArray[Any]:
        """(n, d) Python integers; the rows are they times ``2**row_exponent``."""
        return integers_at(self.weight[ids], self._row_exponent)

    def _differences(
        self, index: int, rivals: list[int], steps: list[int], exponent: int
    ) -> list[Fraction]:
        """``z_index - z_rival`` at a point of integers times ``2**exponent``, for each rival."""
        own, *rows = self._rows([index, *rivals]).tolist()
        both = self._row_exponent + exponent
        base = min(both, self._bias_exponent)
        by_row, by_bias = 1 << (both - base), 1 << (self._bias_exponent - base)
        logit = sum(map(mul, own, steps)) * by_row + self._biases[index] * by_bias
        scale = power(base)
        return [
            (logit - sum(map(mul, row, steps)) * by_row - self._biases[rival] * by_bias) * scale
            for row, rival in zip(rows, rivals, strict=True)
        ]

    def _doubtful(self, classes: NDArray[np.int64], points: NDArray[np.float64]) -> list[list[int]]:
        """For each class and point, all rivals that could be the highest, by exact logits.

        ``fl(w . x + b)`` is within ``E = gamma(d + 1) (max|w_k| sum|x_k| + |b|)`` plus d underflows
        of ``w . x + b`` (Higham 2002, section 3.1), so a rival more than 2 E below the highest
        float is below the highest rival. The factors that follow cover the rounding of E itself.
        """
        unit = 2.0**-53 * (self.dim + 4)
        with np.errstate(over="ignore", invalid="ignore"):
            every = len(self.active) == self.classes
            weight = self.weight if every else self.weight[self.active]
            logits = points @ weight.T + self.bias[self.active]
            reach = np.abs(points).sum(1) * self._largest[0] + self._largest[1]
            error = (unit / (1 - unit)) * reach * (1 + 2.0**-20) + (self.dim + 4) * 2.0**-1000
        own = np.searchsorted(self.active, classes)
        lines = np.arange(len(classes))
        logits[lines, own] = -np.inf
        # Where something overflows, E does too, no comparison holds and every rival is doubtful.
        with np.errstate(invalid="ignore"):
            clear = logits < (logits.max(1) - 3 * error)[:, None]
        clear[lines, own] = True
        at, rival = np.nonzero(~clear)
        found: list[list[int]] = [[] for _ in classes]
        for line, i in zip(at.tolist(), self.active[rival].tolist(), strict=True):
            found[line].append(i)
        return found
