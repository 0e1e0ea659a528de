"""Where the layer's input x may lie: a box, or all of R^d."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unarg_callback.errors import DomainError

_FORMS = "box:R, box:LO,HI, nonnegative:HI or free"


@dataclass(frozen=True, eq=False)
class Domain:
    """The set ``X = {x : low_k <= x_k <= high_k}`` that a layer's input comes from.

    ``low`` and ``high`` are float64 scalars (the same for every dimension) or have shape (d,).
    Bounds are either all finite (a box) or all infinite (free).

    >>> Domain.parse("box:100")
    Domain(box:-100,100)
    >>> Domain.parse("free").is_free
    True
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    is_free: bool = False

    @classmethod
    def box(cls, low_or_radius: ArrayLike, high: ArrayLike | None = None) -> Domain:
        """``|x_k| <= R`` from one argument, ``low_k <= x_k <= high_k`` from two.

        Args:
            low_or_radius: R or low; a number or shape (d,).
            high: a number or shape (d,).

        Raises:
            DomainError: a bound is NaN or infinite, low > high, or shapes differ.
        """
        first = np.asarray(low_or_radius, dtype=np.float64)
        lo, hi = (-first, first) if high is None else (first, np.asarray(high, dtype=np.float64))
        if lo.ndim > 1 or hi.ndim > 1 or (lo.ndim == hi.ndim == 1 and lo.shape != hi.shape):
            raise DomainError(
                f"bounds have shapes {lo.shape} and {hi.shape}; expected numbers or vectors of one "
                "length"
            )
        if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
            raise DomainError(
                "a box has a bound that is NaN or infinite; expected finite bounds (use "
                "Domain.free() for all of R^d)"
            )
        if (lo > hi).any():
            raise DomainError("a box has low > high; expected low <= high in every dimension")
        lo, hi = np.broadcast_arrays(lo, hi)
        return cls(lo.copy(), hi.copy())

    @classmethod
    def free(cls) -> Domain:
        """All of R^d."""
        return cls(np.asarray(-np.inf), np.asarray(np.inf), is_free=True)

    @classmethod
    def nonnegative(cls, high: ArrayLike) -> Domain:
        """``0 <= x_k <= high``."""
        return cls.box(np.zeros_like(np.asarray(high, dtype=np.float64)), high)

    @classmethod
    def relu(cls, high: ArrayLike) -> Domain:
        """Inputs behind a ReLU whose outputs stay below ``high``."""
        return cls.nonnegative(high)

    @classmethod
    def tanh(cls) -> Domain:
        """Inputs behind a tanh: ``|x_k| <= 1``."""
        return cls.box(1.0)

    @classmethod
    def layer_norm(cls, gain: ArrayLike, bias: ArrayLike | None = None) -> Domain:
        """Smallest box around ``gain * n + bias`` for every LayerNorm output n.

        n has mean 0 and mean square at most 1 over its d entries, so ``|n_k| <= sqrt(d - 1)``,
        attained by one entry against all others.

        Args:
            gain: (d,).
            bias: (d,) or None.
        """
        return cls._normalised(gain, bias, below=1)

    @classmethod
    def rms_norm(cls, gain: ArrayLike) -> Domain:
        """Smallest box around ``gain * n`` for every RMSNorm output n: ``|n_k| <= sqrt(d)``."""
        return cls._normalised(gain, None, below=0)

    @classmethod
    def _normalised(cls, gain: ArrayLike, bias: ArrayLike | None, below: int) -> Domain:
        scale = np.abs(np.asarray(gain, dtype=np.float64))
        if scale.ndim != 1 or not len(scale):
            raise DomainError(f"gain has shape {scale.shape}; expected (d,)")
        shift = np.zeros_like(scale) if bias is None else np.asarray(bias, dtype=np.float64)
        if shift.shape != scale.shape:
            raise DomainError(f"bias has shape {shift.shape}; expected {scale.shape} as gain has")
        # Two roundings, sqrt and product, then one in the sum: step outwards over all of them.
        reach = scale * math.sqrt(len(scale) - below) * (1 + 2.0**-50)
        return cls.box(np.nextafter(shift - reach, -np.inf), np.nextafter(shift + reach, np.inf))

    @classmethod
    def parse(cls, text: str) -> Domain:
        """Read ``box:R``, ``box:LO,HI``, ``nonnegative:HI`` or ``free``.

        Raises:
            DomainError: the text has another form.
        """
        kind, _, numbers = text.strip().partition(":")
        try:
            values = [float(part) for part in numbers.split(",")] if numbers else []
        except ValueError:
            values = [math.nan] * 3
        if kind == "free" and not values and ":" not in text:
            return cls.free()
        if kind == "box" and len(values) == 1:
            if values[0] < 0:
                raise DomainError(f"domain {text!r} has a negative radius; expected box:R, R >= 0")
            return cls.box(values[0])
        if kind == "box" and len(values) == 2:
            return cls.box(values[0], values[1])
        if kind == "nonnegative" and len(values) == 1:
            return cls.nonnegative(values[0])
        raise DomainError(f"domain {text!r} can't be read; expected {_FORMS}")

    @classmethod
    def of(cls, value: Domain | str | float | ArrayLike) -> Domain:
        """A domain from itself, its text, or a radius."""
        if isinstance(value, Domain):
            return value
        return cls.parse(value) if isinstance(value, str) else cls.box(value)

    def bounds(self, dim: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(d,) low and (d,) high.

        Raises:
            DomainError: the domain has bounds for another number of dimensions.
        """
        if self.low.ndim and len(self.low) != dim:
            raise DomainError(
                f"the domain has bounds for {len(self.low)} dimensions; expected {dim}, the layer's"
            )
        return np.broadcast_to(self.low, dim).copy(), np.broadcast_to(self.high, dim).copy()

    def contains(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(n,) whether each of (n, d) points lies in X, compared exactly; NaN and inf do not."""
        inside = np.isfinite(points) & (points >= self.low) & (points <= self.high)
        return np.asarray(inside.all(axis=1))

    def __str__(self) -> str:
        if self.is_free:
            return "free"
        if self.low.ndim == 0:
            return f"box:{_shortest(self.low)},{_shortest(self.high)}"
        return f"box of {len(self.low)} dimensions within {self.low.min():g},{self.high.max():g}"

    def __repr__(self) -> str:
        return f"Domain({self})"

    def __eq__(self, other: Any) -> bool:
        return (
            isinstance(other, Domain)
            and np.array_equal(self.low, other.low)
            and np.array_equal(self.high, other.high)
        )

    def __hash__(self) -> int:
        return hash((self.low.tobytes(), self.high.tobytes()))


def _shortest(value: NDArray[np.float64]) -> str:
    """Shortest text that reads back as the same float64."""
    return repr(float(value)).removesuffix(".0")
