"""Spherical softmax: squares over their sum."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.activations.module import Map
from unarg_callback.activations.scores import checked, filled, highest, masked, returned


def spherical_softmax(z: Tensor, *, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """``p_i = z_i^2 / sum_j z_j^2`` for scores that aren't all 0.

    It ranks by ``|z_i|``: a class can win by a large negative score.

    Args:
        z: scores, floating point.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out: its probability and gradient
            are 0. If a row has none left it is NaN.

    Returns:
        Probabilities, of the shape and dtype of ``z``; a row with NaN or infinity, or of zeros, is
        NaN.

    Raises:
        ScoresError: arguments don't fit together.
    """
    scores = checked(z, dim, mask)
    inside = filled(scores, dim, mask)
    # The map ignores factors, and this one keeps squares in range.
    square = masked((inside / highest(inside.abs(), dim, mask)).square(), mask, 0.0)
    return returned(square / square.sum(dim, keepdim=True), z)


class SphericalSoftmax(Map):
    """:func:`spherical_softmax` as a module.

    Args:
        dim: the dimension of the classes.
    """

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """See :func:`spherical_softmax`."""
        return spherical_softmax(z, dim=self.dim, mask=mask)
