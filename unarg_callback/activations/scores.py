"""What every map does before and after: check, compute half precision in float32, mask."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.activations.recording import is_traced
from unarg_callback.errors import UnargError


class ScoresError(UnargError):
    """Scores, mask or dimension do not fit together."""


def checked(z: Tensor, dim: int, mask: Tensor | None) -> Tensor:
    """Return scores to compute with: float64 as they are, all else as float32.

    Args:
        z: scores, floating point, of one or more dimensions.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; True takes part.

    Raises:
        ScoresError: ``z`` isn't floating point or has no such dimension, or the mask isn't bool or
            doesn't broadcast to ``z``.
    """
    given: object = z
    if not isinstance(given, Tensor):
        raise ScoresError(f"scores are a {type(given).__name__}, expected a tensor")
    if not z.is_floating_point():
        raise ScoresError(f"scores are {z.dtype}, expected floating point: convert with .float()")
    if not -z.dim() <= dim < z.dim():
        raise ScoresError(
            f"dim is {dim}, but the scores have {z.dim()} dimensions: name one that they have"
        )
    if mask is not None:
        if mask.dtype != torch.bool:
            raise ScoresError(f"the mask is {mask.dtype}, expected bool, True where a class counts")
        if not broadcasts(mask.shape, z.shape):
            raise ScoresError(
                f"a mask of shape {tuple(mask.shape)} doesn't broadcast to scores of shape "
                f"{tuple(z.shape)}: add dimensions of size 1"
            )
    return z if z.dtype == torch.float64 else z.float()


def returned(p: Tensor, z: Tensor) -> Tensor:
    """Give a result the dtype of the scores; under autocast it stays in float32, as softmax's."""
    # The meta device has no autocast to ask for.
    stays = not z.is_meta and torch.is_autocast_enabled(z.device.type)
    return p if stays else p.to(z.dtype)


def masked(y: Tensor, mask: Tensor | None, value: float = -torch.inf) -> Tensor:
    """Put ``value`` where the mask, if there is one, is False."""
    return y if mask is None else y.masked_fill(~mask, value)


def largest(z: Tensor, dim: int) -> Tensor:
    """The largest score, without gradient; ``dim`` is kept with size 1. It is 0 of no scores."""
    z = z.detach()
    some = is_traced() or z.shape[dim] > 0
    return z.amax(dim, keepdim=True) if some else z.sum(dim, keepdim=True)


def highest(z: Tensor, dim: int, mask: Tensor | None) -> Tensor:
    """The largest score that takes part, without gradient; ``dim`` is kept with size 1."""
    return largest(masked(z.detach(), mask), dim)


def filled(z: Tensor, dim: int, mask: Tensor | None) -> Tensor:
    """Put the highest score that takes part where the mask is False.

    What is computed there is thrown away, but must be defined: NaN times a gradient of 0 is NaN.
    """
    return z if mask is None else torch.where(mask, z, highest(z, dim, mask))


def broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    """Whether a tensor of one shape broadcasts to another; in a trace only lengths are compared."""
    if len(shape) > len(target) or is_traced():
        return len(shape) <= len(target)
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(size in (1, wanted) for size, wanted in pairs)
