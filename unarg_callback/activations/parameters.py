"""The maps' parameters: checked where they come in, and constrained where they are learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unarg_callback.activations.recording import is_readable, is_traced
from unarg_callback.activations.scores import ScoresError, broadcasts

Parameter = float | Tensor
"""One number, or a tensor that broadcasts to the scores and has size 1 along the classes."""


class ParameterError(ScoresError):
    """A parameter of a map is outside of its range, or of a shape that doesn't fit."""


def gap_of(lambda_: Parameter) -> Parameter:
    """Return ``1 - lambda``, what sparsegen divides by.

    It is taken before anything is rounded to the precision of the scores, where a lambda just below
    1 could become 1.
    """
    return 1 - _wide(lambda_) if isinstance(lambda_, Tensor) else 1 - lambda_


def valid_gap(gap: Parameter) -> Parameter:
    """Return ``1 - lambda`` as it is.

    Values are checked where that costs no synchronisation: numbers, and tensors on the CPU outside
    of ``torch.compile`` and ``torch.func``. Elsewhere bad values become NaN.

    Raises:
        ParameterError: lambda is not finite and below 1.
    """
    if not isinstance(gap, Tensor):
        if not 0 < gap < math.inf:
            raise ParameterError(f"lambda is {1 - gap}, expected a finite number below 1")
        return gap
    good = (gap > 0) & gap.isfinite()
    if is_readable(good) and not bool(good.all()):
        worst = 1 - gap.detach()[~good].flatten()[0].item()
        raise ParameterError(f"lambda has {worst}, expected finite values below 1")
    return torch.where(good, gap, torch.nan)


def valid_q(q: Parameter, *, positive: bool = False) -> Parameter:
    """Return q as it is, checked as :func:`valid_gap` does.

    Args:
        q: at least 0; infinity is sparsemax.
        positive: whether 0 is an error too.

    Raises:
        ParameterError: it is negative or NaN.
    """
    wanted = "above 0" if positive else "of at least 0"
    if not isinstance(q, Tensor):
        if not (q > 0 or (q == 0 and not positive)):
            raise ParameterError(f"q is {q}, expected a number {wanted}")
        return q
    good = q > 0 if positive else q >= 0
    if is_readable(good) and not bool(good.all()):
        worst = q.detach()[~good].flatten()[0].item()
        raise ParameterError(f"q has {worst}, expected values {wanted}")
    return torch.where(good, q, torch.nan)


def fitted(name: str, value: Parameter, z: Tensor, dim: int) -> Parameter:
    """Return a parameter, if a tensor then in the precision that maps compute ``z`` in.

    Raises:
        ParameterError: its shape doesn't broadcast to the scores, or isn't 1 along the classes.
    """
    if not isinstance(value, Tensor):
        return value
    along = dim % z.dim() - z.dim()
    fits = broadcasts(value.shape, z.shape)
    if not fits or (value.dim() >= -along and not is_traced() and value.shape[along] != 1):
        raise ParameterError(
            f"{name} has shape {tuple(value.shape)}, expected one that broadcasts to the scores' "
            f"{tuple(z.shape)}, with size 1 at dimension {dim}, such as (heads, 1, 1)"
        )
    return value.double() if z.dtype == torch.float64 else value.float()


def classes_last(value: Parameter, z: Tensor, dim: int) -> Parameter:
    """Move the dimension of the classes of a checked parameter to the end, as ``z.movedim``."""
    if not isinstance(value, Tensor):
        return value
    return value.reshape((1,) * (z.dim() - value.dim()) + value.shape).movedim(dim, -1)


class Positive(nn.Module):
    """A number or tensor above 0 that may be learned: ``softplus`` of what the optimizer moves.

    Args:
        value: where it starts; what may be fixed is checked by who calls.
        learnable: whether it is an ``nn.Parameter``; else it is fixed, and a number stays one.
        zero: whether it may be 0, if it is fixed.

    Raises:
        ParameterError: a value is to be learned that isn't finite and above 0.
    """

    fixed: Parameter | None

    def __init__(self, value: Parameter, *, learnable: bool, zero: bool = False) -> None:
        super().__init__()
        tensor = torch.as_tensor(value, dtype=torch.get_default_dtype())
        self.zero = zero
        if learnable:
            good = (tensor > 0) & tensor.isfinite()
            if is_readable(good) and not bool(good.all()):
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
        """Return the value; tensors as float32, or float64 if that is what the module is in.

        Whatever the optimizer makes of it, what is learned stays finite and is never below the
        rounding unit.
        """
        if self.fixed is None:
            raw = _wide(self.raw)
            limits = torch.finfo(raw.dtype)
            return F.softplus(raw).clamp(limits.eps, limits.max)
        if not isinstance(self.fixed, Tensor):
            return self.fixed
        value = _wide(self.fixed)
        # module.half() may have rounded it to 0.
        return value if self.zero else value.clamp_min(torch.finfo(self.fixed.dtype).tiny)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return "learned" if self.fixed is None else f"{self.fixed}"


def _wide(value: Tensor) -> Tensor:
    return value if value.dtype == torch.float64 else value.float()
