"""Sum-normalization: scores over their sum."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.activations.module import Map
from unarg_callback.activations.scores import checked, filled, highest, masked, returned


def sum_normalization(z: Tensor, *, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """``p_i = z_i / sum_j z_j`` for scores of at least 0, not all of them 0.

    Args:
        z: scores, floating point.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out: its probability and gradient
            are 0. If a row has none left it is NaN.

    Returns:
        Probabilities, of the shape and dtype of ``z``. A row with a negative score, NaN or +inf, or
        with sum 0, is NaN.

    Raises:
        ScoresError: arguments don't fit together.
    """
    scores = checked(z, dim, mask)
    top = highest(scores, dim, mask)
    inside = filled(scores, dim, mask)
    undefined = (inside < 0).any(dim, keepdim=True)
    # The map ignores positive factors, and this one keeps sums in range.
    share = masked(inside / top, mask, 0.0)
    p = share / share.sum(dim, keepdim=True)
    return returned(torch.where(undefined, torch.nan, p), z)


class SumNormalization(Map):
    """:func:`sum_normalization` as a module.

    Args:
        dim: the dimension of the classes.
    """

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """See :func:`sum_normalization`."""
        return sum_normalization(z, dim=self.dim, mask=mask)
