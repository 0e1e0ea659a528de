"""An exact layer that tells how many proofs have been tried on it, for a progress bar.

What decides about a proof is :class:`~unarg_callback.recheck.ExactLayer` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unarg_callback.recheck import ExactLayer

_TILE = 64
"""Witnesses between two steps of the bar."""


class WatchedLayer(ExactLayer):
    """As :class:`ExactLayer`.

    Args:
        weight: likewise.
        bias: likewise.
        excluded: likewise.
        tried: called with the number of proofs that have been tried since the last call.

    >>> layer = WatchedLayer([[1.0], [0.0]], None, (), lambda count: print(count, "tried"))
    >>> layer.lead(0, [0.5])
    1 tried
    Fraction(1, 2)
    """

    def __init__(
        self,
        weight: ArrayLike,
        bias: ArrayLike | None,
        excluded: Iterable[int],
        tried: Callable[[int], object],
    ) -> None:
        super().__init__(weight, bias, excluded)
        self._tried = tried

    def leads(
        self, classes: Iterable[int], points: NDArray[np.float64]
    ) -> tuple[list[Fraction | None], int]:
        """As there, some at a time."""
        ids, found, redone = list(classes), [], 0
        for start in range(0, len(ids), _TILE):
            span = slice(start, start + _TILE)
            leads, compared = super().leads(ids[span], points[span])
            found += leads
            redone += compared
            self._tried(len(leads))
        return found, redone

    def box_bound(self, *arguments: Any) -> Fraction:
        """As there."""
        try:
            return super().box_bound(*arguments)
        finally:
            self._tried(1)

    def free_bound(self, *arguments: Any) -> Fraction:
        """As there."""
        try:
            return super().free_bound(*arguments)
        finally:
            self._tried(1)
