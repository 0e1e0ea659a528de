"""The maps' parameters: checked where they come in, and constrained where they are learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unarg_callback.activations.recording import is_readable
from unarg_callback.activations.scores import ScoresError

Parameter = float | Tensor
"""One number, or a tensor that broadcasts to the scores and has size 1 along the classes."""


class ParameterError(ScoresError):
    """A parameter of a map is outside of its range, or of a shape that doesn't fit."""


def checked_lambda(lambda_: Parameter, z: Tensor, dim: int) -> Parameter:
    """Return lambda; tensors in the precision that maps compute in.

    Values are checked where that costs no synchronisation: numbers, and tensors on the CPU outside
    of ``torch.compile`` and ``torch.func``. Elsewhere the rows of bad values become NaN.

    Raises:
        ParameterError: it is not finite and below 1, or doesn't fit the scores.
    """
    if not isinstance(lambda_, Tensor):
        if not (math.isfinite(lambda_) and lambda_ < 1):
            raise ParameterError(f"lambda is {lambda_}, expected a finite number below 1")
        return lambda_
    lambda_ = _shaped("lambda", lambda_, z, dim)
    good = (lambda_ < 1) & lambda_.isfinite()
    if is_readable(good) and not bool(good.all()):
        worst = lambda_.detach()[~good].flatten()[0].item()
        raise ParameterError(f"lambda has {worst}, expected finite values below 1")
    return torch.where(good, lambda_, torch.nan)


def checked_q(q: Parameter, z: Tensor, dim: int, *, positive: bool = False) -> Parameter:
    """Return q as :func:`checked_lambda` does lambda.

    Args:
        q: at least 0; infinity is sparsemax.
        z: the scores.
        dim: the dimension of the classes.
        positive: whether 0 is an error too.

    Raises:
        ParameterError: it is negative or NaN, or doesn't fit the scores.
    """
    wanted = "above 0" if positive else "of at least 0"
    if not isinstance(q, Tensor):
        if not (q > 0 or (q == 0 and not positive)):
            raise ParameterError(f"q is {q}, expected a number {wanted}")
        return q
    q = _shaped("q", q, z, dim)
    good = q > 0 if positive else q >= 0
    if is_readable(good) and not bool(good.all()):
        worst = q.detach()[~good].flatten()[0].item()
        raise ParameterError(f"q has {worst}, expected values {wanted}")
    return torch.where(good, q, torch.nan)


def classes_last(value: Parameter, z: Tensor, dim: int) -> Parameter:
    """Move the dimension of the classes of a checked parameter to the end, as ``z.movedim``."""
    if not isinstance(value, Tensor):
        return value
    return value.reshape((1,) * (z.dim() - value.dim()) + value.shape).movedim(dim, -1)


class Positive(nn.Module):
    """A number or tensor above 0 that may be learned: ``softplus`` of what the optimizer moves.

    Args:
        value: where it starts.
        learnable: whether it is an ``nn.Parameter``; else it is fixed, and a number stays one.

    Raises:
        ParameterError: a value isn't above 0, or is to be learned and infinite.
    """

    fixed: Parameter | None

    def __init__(self, value: Parameter, *, learnable: bool) -> None:
        super().__init__()
        tensor = torch.as_tensor(value, dtype=torch.get_default_dtype())
        if learnable:
            if not bool(((tensor > 0) & tensor.isfinite()).all()):
                raise ParameterError(f"{value} can't be learned: expected finite, above 0")
            # The inverse of softplus.
            raw = tensor + torch.log(-torch.expm1(-tensor))
            self.raw = nn.Parameter(raw.detach().clone())
            self.fixed = None
        elif isinstance(value, Tensor):
            self.register_buffer("fixed", value.detach().clone())
        else:
            self.fixed = value

    def forward(self) -> Parameter:
        """Return the value, never below the rounding unit of its dtype."""
        if self.fixed is not None:
            return self.fixed
        return F.softplus(self.raw).clamp_min(torch.finfo(self.raw.dtype).eps)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return "learned" if self.fixed is None else f"{self.fixed}"


def _shaped(name: str, value: Tensor, z: Tensor, dim: int) -> Tensor:
    along = dim % z.dim() - z.dim()
    fits = value.dim() <= z.dim() and all(
        size in (1, wanted) for size, wanted in zip(value.shape[::-1], z.shape[::-1], strict=False)
    )
    if not fits or (value.dim() >= -along and value.shape[along] != 1):
        raise ParameterError(
            f"{name} has shape {tuple(value.shape)}, expected one that broadcasts to the scores' "
            f"{tuple(z.shape)}, with size 1 at dimension {dim}, such as (heads, 1, 1)"
        )
    return value.double() if z.dtype == torch.float64 else value.float()
