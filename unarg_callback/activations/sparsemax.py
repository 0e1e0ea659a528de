"""Sparsemax (Martins & Astudillo 2016): the nearest point of the simplex."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.activations.module import Map
from unarg_callback.activations.projection import project
from unarg_callback.activations.scores import checked, masked, returned


def sparsemax(z: Tensor, *, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """``argmin_p |p - z|^2`` over the probability simplex: like softmax, but with exact zeros.

    Args:
        z: scores, floating point.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out: its probability and gradient
            are 0. If a row has none left it is NaN.

    Returns:
        Probabilities, of the shape and dtype of ``z``; a row with NaN or +inf, or of -inf, is NaN.

    Raises:
        ScoresError: arguments don't fit together.

    Examples:
        >>> import torch
        >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    scores = checked(z, dim, mask)
    return returned(project(masked(scores, mask), dim), z)


class Sparsemax(Map):
    """:func:`sparsemax` as a module.

    Args:
        dim: the dimension of the classes.
    """

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """See :func:`sparsemax`."""
        return sparsemax(z, dim=self.dim, mask=mask)
