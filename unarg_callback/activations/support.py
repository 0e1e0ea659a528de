"""How many classes get a nonzero, and the lambda for a wanted number."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.activations.parameters import ParameterError
from unarg_callback.activations.scores import checked
from unarg_callback.activations.transforms import Transform, transformed


def lambda_for_support(
    z: Tensor,
    k: int,
    *,
    g: Transform = "lin",
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The lambda at which ``sparsegen(z, lambda)`` has k nonzeros.

    With ``d_k = sum_{j <= k} (g_(j) - g_(k+1))`` of the sorted scores, there are at most k exactly
    if ``1 - lambda <= d_k``. What is returned is the middle of the lambdas for k, so that rounding
    doesn't matter. Equal scores come and go together: where no lambda gives k, there are as many as
    are possible below k, or, where more than k share the maximum, these.

    Args:
        z: scores, floating point.
        k: from 1 to the number of classes; a row that has fewer gets them all.
        g: the transformation of sparsegen.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; True takes part.

    Returns:
        float64 (float32 on devices without it), ``dim`` with size 1: as ``sparsegen`` takes it.

    Raises:
        ParameterError: k is out of range.
        ScoresError: arguments don't fit together.

    Examples:
        >>> from unarg_callback.activations import sparsegen
        >>> z = torch.tensor([3.0, 2.5, 2.0, 1.0])
        >>> [int((sparsegen(z, lambda_for_support(z, k)) > 0).sum()) for k in (1, 2, 3, 4)]
        [1, 2, 3, 4]
    """
    scores = checked(z, dim, mask)
    classes = scores.shape[dim]
    if not 1 <= k <= classes:
        raise ParameterError(f"k is {k}, expected 1 to {classes}, the number of classes")
    y = transformed(scores, g, dim, mask).movedim(dim, -1)
    # In float32 a lambda near 1, as close scores need it, would be rounded to 1.
    gaps = _gaps(y.to(_finest(y.device)).sort(dim=-1, descending=True).values)
    upper = gaps[..., k - 1 : k]
    positive = gaps.masked_fill(gaps <= 0, torch.inf).amin(-1, keepdim=True)
    upper = torch.where(upper > 0, upper, positive)
    lower = gaps.masked_fill(gaps >= upper, 0).amax(-1, keepdim=True)
    # Beyond the last gap any will do.
    middle = torch.where(upper.isinf(), 2 * lower + 1, (lower + upper) / 2)
    return (1 - middle).movedim(-1, dim)


def _finest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


def _gaps(ordered: Tensor) -> Tensor:
    """``d_k`` for k = 1, ..., K, of which the last, and all that are infinite, stay infinite."""
    steps = -ordered.diff(dim=-1)
    rank = torch.arange(1, ordered.shape[-1], device=ordered.device, dtype=ordered.dtype)
    inner = (rank * steps.nan_to_num(nan=0.0)).cumsum(-1)
    return torch.cat([inner, torch.full_like(ordered[..., :1], torch.inf)], -1)
