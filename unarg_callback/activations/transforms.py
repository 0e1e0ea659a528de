"""The transformations g of sparsegen, less their highest value: the projection ignores shifts.

Subtracting before anything can overflow keeps them exact near the top, where the support is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from unarg_callback.activations.parameters import ParameterError
from unarg_callback.activations.scores import filled, largest, masked

Transform = Literal["lin", "exp", "sq", "log"] | Callable[[Tensor], Tensor]
"""The name of a transformation, or any function that works on each score by itself."""


def transformed(z: Tensor, g: Transform, dim: int, mask: Tensor | None) -> Tensor:
    """Return ``g(z) - max g(z)``, and -inf where the mask is False.

    Args:
        z: float32 or float64 scores.
        g: ``"lin"`` z; ``"exp"`` e^z; ``"sq"`` z^2; ``"log"`` ln z, -inf at 0 and NaN below; or a
            function.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``.

    Raises:
        ParameterError: ``g`` is neither a name of these nor a function.
    """
    inside = filled(z, dim, mask)
    if isinstance(valid_transform(g), str):
        return masked(_named()[g](inside, dim), mask)  # type: ignore[index]
    return masked(_less_highest(g(inside), dim), mask)  # type: ignore[operator]


def valid_transform(g: Transform) -> Transform:
    """Return ``g`` as it is.

    Raises:
        ParameterError: it is neither a name of a transformation nor a function.
    """
    if not callable(g) and g not in _named():
        raise ParameterError(f"g is {g!r}, expected one of {sorted(_named())} or a function")
    return g


def _named() -> dict[str, Callable[[Tensor, int], Tensor]]:
    return {"lin": _lin, "exp": _exp, "sq": _sq, "log": _log}


def _less_highest(z: Tensor, dim: int) -> Tensor:
    return z - largest(z, dim)


_lin = _less_highest


def _exp(z: Tensor, dim: int) -> Tensor:
    limits = torch.finfo(z.dtype)
    # Of scores that are all -inf the difference would be NaN, though e^z is 0 for all of them.
    top = largest(z, dim).clamp_min(limits.min)
    # Above the largest number the support is a single class anyway, and 0 * inf would be NaN.
    return top.exp().clamp_max(limits.max) * torch.expm1(z - top)


def _sq(z: Tensor, dim: int) -> Tensor:
    top = largest(z.abs(), dim)
    return (z - top) * (z + top)


def _log(z: Tensor, dim: int) -> Tensor:
    top = largest(z, dim)
    inside = z > 0
    x = torch.where(inside, z, top)
    # The logarithms' difference would lose the digits that both have before the point; but small
    # quotients are 0.
    ratio = x / top
    far = ratio < torch.finfo(z.dtype).tiny
    logarithm = torch.where(far, x, ratio).log() - torch.where(far, top.log(), 0)
    outside = torch.where(z == 0, -torch.inf, torch.nan).to(z.dtype)
    return torch.where(inside, logarithm, outside)
