"""What a check of an attention layer's keys found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report


@dataclass(frozen=True, eq=False)
class KeyReport:
    """The verdict on each key, with the proof behind it.

    Args:
        status: (S,) int8, values of :class:`Status`: argmaxable if some query that may see the key
            scores it above all others that it may see, unargmaxable if none does, excluded if no
            query may see it. As in :func:`~unarg_callback.verify`, "above" is by more than 1e-9 of
            the range of the scores, for dot products.
        complete: False if the time limit cut the check short.
        checks: for scaled dot products, the keys that were checked against each other, (n,) int64,
            and the report on them as classes of a layer. A key is argmaxable if it is in one of
            them, unargmaxable if it is so in the smallest sets of keys that a query sees with it.
        dominated_by: for additive scores, (S, S) bool: whether column i scores at least as much as
            row j for every query.
        witness: for additive scores, (S, d) float64 queries; NaN where there is none.
    """

    status: NDArray[np.int8]
    complete: bool
    checks: tuple[tuple[NDArray[np.int64], Report], ...] = ()
    dominated_by: NDArray[np.bool_] | None = None
    witness: NDArray[np.float64] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How many keys have each status."""
        return {one.name.lower(): int((self.status == one).sum()) for one in Status}
