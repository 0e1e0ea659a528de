"""The factor by which sparsecone and sparsehourglass scale the scores, ``(1 + Kq) / (t + Kq)``."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.activations.parameters import Parameter
from unarg_callback.activations.projection import project
from unarg_callback.activations.scores import filled, highest, masked


def total(z: Tensor, dim: int, mask: Tensor | None) -> Tensor:
    """The sum of the scores that take part; ``dim`` is kept with size 1."""
    return masked(z, mask, 0.0).sum(dim, keepdim=True)


def ratio(
    t: Tensor, q: Parameter, z: Tensor, dim: int, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return ``1 + Kq`` and ``t + Kq``, both over ``max(1, Kq)``: exact for q = 0 and infinity.

    K is the number of scores that take part, so it can differ from row to row.
    """
    count = z.shape[dim] if mask is None else mask.expand(z.shape).sum(dim, keepdim=True)
    product = count * q
    anchor = product if isinstance(product, Tensor) else torch.full_like(t, product)
    anchor = anchor.to(z.dtype)
    unit = anchor.detach().clamp_min(1)
    share = torch.where(anchor.isinf(), 1, anchor / unit)
    return 1 / unit + share, t / unit + share


def project_scaled(z: Tensor, scale: Tensor, dim: int, mask: Tensor | None) -> Tensor:
    """``sparsemax(scale z)`` of the scores that take part; ``scale`` is positive or NaN."""
    centred = filled(z, dim, mask) - highest(z, dim, mask)
    return project(masked(scale * centred, mask), dim)


def project_divided(y: Tensor, gap: Parameter, dim: int) -> Tensor:
    """``sparsemax(y / gap)`` of scores whose highest is 0; -inf stays out of the support."""
    if isinstance(gap, Tensor):
        # What is further below the highest than this is out anyway, and its quotient could be
        # infinite, so that the gradient of lambda would be 0 * inf.
        outside = y <= -2 * gap
        y = (y.masked_fill(outside, 0) / gap).masked_fill(outside, -torch.inf)
    elif gap != 1:
        y = y / gap
    return project(y, dim)


def quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return the quotient where the denominator is positive and finite, elsewhere NaN.

    There it has no gradient. A sum of scores can overflow.
    """
    defined = (denominator > 0) & denominator.isfinite()
    return torch.where(defined, numerator / torch.where(defined, denominator, 1), torch.nan)
