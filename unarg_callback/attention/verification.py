"""Decide which keys of an attention layer some query can put first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unarg_callback.attention.additive import verify_additive
from unarg_callback.attention.dot import verify_dot
from unarg_callback.attention.report import KeyReport
from unarg_callback.errors import UnargError
from unarg_callback.search.limits import Limits
from unarg_callback.verification import require_options


class KeysError(UnargError):
    """Keys, masks or options don't fit together."""


def verify_keys(
    keys: Tensor | ArrayLike,
    allowed: Tensor | ArrayLike | None = None,
    *,
    direction: Tensor | ArrayLike | None = None,
    by_size: bool = False,
    time_limit: float | None = None,
    stop: Callable[[], bool] | None = None,
) -> KeyReport:
    """Decide for each key of one sequence and head whether some query of R^d scores it highest.

    What a query can't put first it can't give most of its attention, whatever the map, as long as
    the map keeps the order of the scores.

    Args:
        keys: (S, d) projected keys, any floating dtype; used as they are.
        allowed: (T, S) bool, which keys each query may see; None for all. With a causal mask a key
            competes with those before it.
        direction: (d,) of additive scores ``v . tanh(q + k)``; None for scaled dot products.
        by_size: whether the map ranks by ``|score|``, as spherical softmax and sparsegen-sq do.
        time_limit: seconds; what is left is undecided.
        stop: asked now and then; once it says yes, the rest is undecided.

    Raises:
        KeysError: shapes don't fit, keys aren't finite, or additive scores are ranked by size, for
            which there is no check.

    >>> verify_keys([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [-0.1, 0.0]]).counts["unargmaxable"]
    1
    >>> causal = torch.ones(4, 4, dtype=torch.bool).tril()
    >>> verify_keys([[0.1, 0.0], [1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]], causal).counts
    {'undecided': 0, 'argmaxable': 4, 'unargmaxable': 0, 'excluded': 0}
    """
    require_options(patience=None, time_limit=time_limit, exact="interior_point")
    k = _real(keys, "keys", 2)
    size, width = k.shape
    if not bool(k.isfinite().all()):
        raise KeysError("keys have NaN or infinite values; expected finite ones")
    views = _views(allowed, size)
    limits = Limits(time_limit, stop=stop)
    if direction is None:
        with torch.no_grad():
            return verify_dot(k, views, by_size=by_size, limits=limits)
    if by_size:
        raise KeysError("there is no check of additive scores ranked by size")
    v = _real(direction, "direction", 1)
    if v.shape != (width,) or not bool(v.isfinite().all()):
        raise KeysError(
            f"direction has shape {tuple(v.shape)}, or isn't finite; expected ({width},), as the "
            "keys, and finite"
        )
    with torch.no_grad():
        return verify_additive(k, v, views, limits=limits)


def _real(value: Tensor | ArrayLike, what: str, dims: int) -> Tensor:
    try:
        tensor = value.detach() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as cause:
        raise KeysError(f"{what} are of type {type(value).__name__}; expected numbers") from cause
    if tensor.is_meta:
        raise KeysError(f"{what} are on the meta device, where there are no numbers")
    if tensor.dim() != dims or not tensor.is_floating_point():
        raise KeysError(
            f"{what} are {tensor.dtype} of shape {tuple(tensor.shape)}; expected floating point in "
            f"{dims} dimension{'s' * (dims > 1)}"
        )
    return tensor.cpu()


def _views(allowed: Tensor | ArrayLike | None, size: int) -> NDArray[np.bool_]:
    """(V, S) bool: the different sets of keys that some query may see."""
    if isinstance(allowed, Tensor):
        allowed = allowed.detach().cpu().numpy()
    mask = np.ones((1, size), dtype=np.bool_) if allowed is None else np.asarray(allowed)
    if mask.ndim != 2 or mask.shape[1] != size or mask.dtype != np.bool_:
        raise KeysError(
            f"allowed is {mask.dtype} of shape {mask.shape}; expected bool of shape (T, {size})"
        )
    different = np.unique(mask, axis=0)
    return different[different.any(1)]
