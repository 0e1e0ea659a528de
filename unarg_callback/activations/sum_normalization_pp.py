"""Sum-normalization++ (Laha et al. 2018): sum-normalization for scores of either sign."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.activations.module import Map
from unarg_callback.activations.sparsehourglass import sparsehourglass


def sum_normalization_pp(z: Tensor, *, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """``sparsemax(z / |sum(z)|)``: sum-normalization where no score is negative.

    Args:
        z: scores, floating point.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out: its probability and gradient
            are 0. If a row has none left it is NaN.

    Returns:
        Probabilities, of the shape and dtype of ``z``; a row with NaN or infinity, or with sum
        0, is NaN.

    Raises:
        ScoresError: arguments don't fit together.
    """
    return sparsehourglass(z, 0.0, dim=dim, mask=mask)


class SumNormalizationPP(Map):
    """:func:`sum_normalization_pp` as a module.

    Args:
        dim: the dimension of the classes.
    """

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """See :func:`sum_normalization_pp`."""
        return sum_normalization_pp(z, dim=self.dim, mask=mask)
