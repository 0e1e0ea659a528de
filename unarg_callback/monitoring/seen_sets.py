"""The label sets that a training has seen, each once, with how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

MOST_SETS = 20_000
"""Most different sets that are remembered: it bounds time, memory and checkpoints."""


class SeenSets:
    """Counts different label sets, in the order in which they first came.

    Args:
        labels: K.

    >>> seen = SeenSets(3)
    >>> seen.add(np.array([[True, False, True], [False, True, False], [True, False, True]]))
    >>> seen.sets.tolist(), seen.times.tolist()
    ([[True, False, True], [False, True, False]], [2, 1])
    """

    def __init__(self, labels: int) -> None:
        self.labels = labels
        self.left_out = 0
        """Rows with a set that came after there were ``MOST_SETS``."""
        self._times: dict[bytes, int] = {}

    @property
    def sets(self) -> NDArray[np.bool_]:
        """(m, K) bool."""
        packed = np.frombuffer(b"".join(self._times), dtype=np.uint8)
        rows = packed.reshape(len(self._times), -1) if self._times else packed.reshape(0, 1)
        return np.unpackbits(rows, axis=1, count=self.labels).astype(np.bool_)

    @property
    def times(self) -> NDArray[np.int64]:
        """(m,) int64, rows with each set."""
        return np.fromiter(self._times.values(), dtype=np.int64, count=len(self._times))

    def add(self, rows: NDArray[np.bool_], times: NDArray[np.int64] | None = None) -> None:
        """Take in sets.

        Args:
            rows: (n, K) bool.
            times: (n,) how often each was seen; once each if None.
        """
        packed = np.packbits(rows, axis=1)
        if times is None:
            # In their order, which np.unique changes.
            _, first, counted = np.unique(packed, axis=0, return_index=True, return_counts=True)
            order = first.argsort()
            packed, times = packed[first[order]], counted[order]
        for row, count in zip(packed, times.tolist(), strict=True):
            key = row.tobytes()
            if key in self._times:
                self._times[key] += count
            elif len(self._times) < MOST_SETS:
                self._times[key] = count
            else:
                self.left_out += count

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins."""
        return {
            "labels": self.labels,
            "sets": torch.from_numpy(np.packbits(self.sets, axis=1)),
            "times": torch.from_numpy(self.times),
            "left_out": self.left_out,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SeenSets:
        """Inverse of :meth:`state_dict`.

        Raises:
            ValueError: its parts don't fit together. What else a damaged state may raise is in
                :data:`~unarg_callback.continuity.DAMAGED`.
        """
        seen = cls(int(state["labels"]))
        packed, times = state["sets"].cpu().numpy(), state["times"].cpu().numpy()
        if packed.dtype != np.uint8 or packed.ndim != 2 or times.shape != (len(packed),):
            raise ValueError("the sets and how often they came don't fit together")
        if len(packed) and packed.shape[1] != -(-seen.labels // 8):
            raise ValueError(f"the sets are not of {seen.labels} labels")
        seen.add(
            np.unpackbits(packed, axis=1, count=seen.labels).astype(np.bool_)
            if len(packed)
            else np.zeros((0, seen.labels), dtype=np.bool_),
            times.astype(np.int64),
        )
        seen.left_out = int(state["left_out"])
        return seen
