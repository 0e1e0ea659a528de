"""A domain that follows what was observed: it seldom changes, and only outwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.continuity import DAMAGED
from unarg_callback.errors import DomainError, UnargError
from unarg_callback.geometry.domain import Domain

Bounds = NDArray[np.float64]

_ROUNDING = 1 + 2.0**-50
"""More than what a difference and two products are rounded by."""
_LARGEST = np.finfo(np.float64).max


def widened(low: Bounds, high: Bounds, margin: float) -> tuple[Bounds, Bounds]:
    """Widen a box to ``margin`` times its width about its middle, rounded outwards.

    Args:
        low: (d,) float64, finite.
        high: (d,) float64, finite, from ``low``.
        margin: from 1; with 1 the box stays exactly what it is, as does a point with any.

    Raises:
        DomainError: the margin is below 1 or not finite.

    >>> widened(np.array([-1.0, 3.0]), np.array([3.0, 3.0]), 1.5)
    (array([-2.,  3.]), array([4., 3.]))
    """
    if not (np.isfinite(margin) and margin >= 1):
        raise DomainError(f"margin is {margin}; expected a number from 1")
    with np.errstate(over="ignore"):
        pad = (high / 2 - low / 2) * (margin - 1) * _ROUNDING
        lower = np.where(pad > 0, np.nextafter(low - pad, -np.inf), low)
        upper = np.where(pad > 0, np.nextafter(high + pad, np.inf), high)
    return np.maximum(lower, -_LARGEST), np.minimum(upper, _LARGEST)


class ObservedDomain:
    """The domain for each check of a layer whose inputs are being observed.

    It stays as it is while the observations lie inside. When any leaves it, it becomes the box
    around itself and around the observations widened by the margin, in all dimensions at once, so
    that it changes seldom. It only grows: witnesses stay what they are.

    Args:
        margin: from 1; how much wider than the observations it becomes.

    >>> domain = ObservedDomain(margin=2.0)
    >>> first = domain.cover(np.array([-1.0]), np.array([1.0]))
    >>> domain.cover(np.array([-1.5]), np.array([1.5])) is first
    True
    >>> domain.cover(np.array([-1.5]), np.array([4.0])).contains(np.array([[6.5]]))
    array([ True])
    """

    def __init__(self, margin: float = 1.5) -> None:
        widened(np.zeros(1), np.zeros(1), margin)  # Refuses what is no margin.
        self.margin = margin
        self.domain: Domain | None = None
        """What :meth:`cover` gave last, or None before."""

    def cover(self, low: Bounds, high: Bounds) -> Domain:
        """Return the domain to use, the very object of the last time if it still holds.

        Args:
            low: (d,) float64, the lowest observed of each dimension, so far or since the last time.
            high: (d,) float64, the highest.

        Raises:
            DomainError: these aren't the bounds of a box, or of another number of dimensions.
        """
        Domain.box(low, high)  # Refuses what is no box.
        before = self.domain
        if before is None:
            self.domain = Domain.box(*widened(low, high, self.margin))
            return self.domain
        floor, ceiling = before.bounds(len(low))
        if (low >= floor).all() and (high <= ceiling).all():
            return before
        lower, upper = widened(low, high, self.margin)
        self.domain = Domain.box(np.minimum(floor, lower), np.maximum(ceiling, upper))
        return self.domain

    def state_dict(self) -> dict[str, Any]:
        """The bounds as (d,) float64 tensors, or None of both."""
        known = self.domain
        bounds = (None, None) if known is None else map(torch.tensor, (known.low, known.high))
        return dict(zip(("low", "high"), bounds, strict=True))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave.

        Raises:
            UnargError: the state is damaged; the domain stays as it was.
        """
        try:
            low, high = state["low"], state["high"]
            known = None
            if low is not None or high is not None:
                known = Domain.box(*(b.detach().cpu().double().numpy() for b in (low, high)))
        except DAMAGED as cause:
            raise UnargError(
                f"the saved observed domain can't be used ({type(cause).__name__}: {cause}); "
                "expected what state_dict() gave"
            ) from cause
        self.domain = known
