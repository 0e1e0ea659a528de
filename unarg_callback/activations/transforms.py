"""The transformations g of sparsegen, less their highest value: the projection ignores shifts.

Subtracting before anything can overflow keeps them exact near the top, where the support is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from unarg_callback.activations.parameters import ParameterError
from unarg_callback.activations.scores import filled, masked

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
    if isinstance(g, str):
        named = {"lin": _lin, "exp": _exp, "sq": _sq, "log": _log}
        if g not in named:
            raise ParameterError(f"g is {g!r}, expected one of {sorted(named)} or a function")
        return masked(named[g](filled(z, dim, mask), dim), mask)
    value = g(filled(z, dim, mask))
    return masked(_less_highest(value, dim), mask)


def _less_highest(z: Tensor, dim: int) -> Tensor:
    return z - z.amax(dim, keepdim=True).detach()


_lin = _less_highest


def _exp(z: Tensor, dim: int) -> Tensor:
    top = z.amax(dim, keepdim=True).detach()
    # Above the largest number the support is a single class anyway, and 0 * inf would be NaN.
    largest = torch.finfo(z.dtype).max
    return top.exp().clamp_max(largest) * torch.expm1(z - top)


def _sq(z: Tensor, dim: int) -> Tensor:
    top = z.abs().amax(dim, keepdim=True).detach()
    return (z - top) * (z + top)


def _log(z: Tensor, dim: int) -> Tensor:
    inside = z > 0
    logarithm = torch.where(inside, z, 1).log()
    outside = torch.where(z == 0, -torch.inf, torch.nan).to(z.dtype)
    return _less_highest(torch.where(inside, logarithm, outside), dim)
