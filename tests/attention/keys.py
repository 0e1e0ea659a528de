"""Keys and masks for tests, and exact answers about them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.label_sets.exact_simplex import rational
from tests.label_sets.oracle import Form, best_in_box
from unarg_callback import Domain

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def integral(rng: np.random.Generator, size: int, width: int) -> Floats:
    """Small integers, so that ties, equal keys and keys of zeros are common."""
    return rng.integers(-2, 3, size=(size, width)).astype(float)


def masks(rng: np.random.Generator, size: int) -> dict[str, Bools | None]:
    """None, causal, padding, both, and arbitrary ones."""
    causal = np.tril(np.ones((size, size), dtype=np.bool_))
    padding = np.broadcast_to(np.arange(size) < max(size - 2, 1), (3, size))
    return {
        "none": None,
        "causal": causal,
        "padding": padding,
        "both": causal & padding[:1],
        "random": rng.random((4, size)) < 0.6,
    }


def can_be_first(keys: Floats, allowed: Bools | None, index: int, by_size: bool) -> bool | None:
    """Whether some query that may see a key scores it above all others it may see; exact.

    None where no query may see it.
    """
    rows = np.ones((1, len(keys)), dtype=np.bool_) if allowed is None else allowed
    views = {tuple(np.flatnonzero(row).tolist()) for row in rows if row[index]}
    if not views:
        return None
    return any(_first_among(keys, index, set(view) - {index}, by_size) for view in views)


def _first_among(keys: Floats, index: int, rivals: set[int], by_size: bool) -> bool:
    form = [Form([rational(v) for v in row], rational(0)) for row in keys.tolist()]
    own, minus = form[index], rational(-1)
    if not rivals:
        return True
    if by_size:
        # With -q for q, a key that scores highest by a negative score does so by a positive one.
        leads = [own]
        for rival in rivals:
            leads += [own.plus(form[rival], minus), own.plus(form[rival], rational(1))]
    else:
        leads = [own.plus(form[rival], minus) for rival in rivals]
    best = best_in_box(leads, None, Domain.box(1.0))
    return best is not None and best > 0
