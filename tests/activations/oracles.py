"""All maps a second time, as the paper defines them: NumPy, extended precision, bisection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.longdouble]
_GAP = 1 - np.longdouble(0.3)


def halved(y: Row) -> Row:
    """Projection of one row by halving an interval around tau."""
    y = y - y.max()
    # tau is at least -1.
    near = y[y > -1]
    low, high = np.longdouble(-1), np.longdouble(0)
    for _ in range(80):
        middle = (low + high) / 2
        if np.maximum(near - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.maximum(y - (low + high) / 2, 0)


def _exponentials(z: Row) -> Row:
    """``e^z``, less the highest where that overflows."""
    if z.max() < 10_000:
        return np.exp(z)
    return np.where(z == z.max(), 0, -np.inf).astype(np.longdouble)


def _softmax(z: Row) -> Row:
    e = np.exp(z - z.max())
    return e / e.sum()


def _logarithms(z: Row) -> Row:
    with np.errstate(divide="ignore"):
        return np.log(z)


ORACLES: dict[str, Callable[[Row], Row]] = {
    "softmax": _softmax,
    "sum_normalization": lambda z: z / z.sum(),
    "spherical_softmax": lambda z: z**2 / (z**2).sum(),
    "sparsemax": halved,
    "sparsegen_lin": lambda z: halved(z / _GAP),
    "sparsegen_exp": lambda z: halved(_exponentials(z) / _GAP),
    "sparsegen_sq": lambda z: halved(z**2 / _GAP),
    "sparsegen_log": lambda z: halved(_logarithms(z) / _GAP),
    "sparsegen_tanh": lambda z: halved(np.tanh(z) / _GAP),
    "sparsecone": lambda z: halved(z * _scale(z.sum(), len(z))),
    "sparsehourglass": lambda z: halved(z * _scale(abs(z.sum()), len(z))),
    "sum_normalization_pp": lambda z: halved(z / abs(z.sum())),
}
"""By the names, and with the parameters, of ``tests.activations.maps.CASES``."""


def _scale(total: Any, classes: int) -> Any:
    return (1 + classes * np.longdouble(0.5)) / (total + classes * np.longdouble(0.5))


def condition(name: str, z: Row) -> float:
    """How many times over rounding of the scores' sum shows in the probabilities."""
    if name == "sum_normalization_pp":
        return float(np.abs(z).sum() / abs(z.sum()))
    if name in ("sparsecone", "sparsehourglass"):
        return float(np.abs(z).sum() / (abs(z.sum()) + len(z) / 2))
    return 1.0
