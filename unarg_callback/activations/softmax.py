"""Softmax, with the arguments that all maps have."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.activations.module import Map
from unarg_callback.activations.scores import checked, masked, returned


def softmax(z: Tensor, *, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """``p_i = exp(z_i) / sum_j exp(z_j)``.

    Args:
        z: scores, floating point.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out: its probability and gradient
            are 0. If a row has none left it is NaN.

    Returns:
        Probabilities, of the shape and dtype of ``z``; a row with NaN or +inf, or of -inf, is NaN.

    Raises:
        ScoresError: arguments don't fit together.
    """
    scores = checked(z, dim, mask)
    return returned(masked(scores, mask).softmax(dim), z)


class Softmax(Map):
    """:func:`softmax` as a module.

    Args:
        dim: the dimension of the classes.
    """

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """See :func:`softmax`."""
        return softmax(z, dim=self.dim, mask=mask)
