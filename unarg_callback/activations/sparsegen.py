"""Sparsegen (Laha et al. 2018): sparsemax of transformed scores, with a control of sparsity."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.activations.module import Map
from unarg_callback.activations.parameters import (
    Parameter,
    Positive,
    fitted,
    gap_of,
    valid_gap,
)
from unarg_callback.activations.scaling import project_divided
from unarg_callback.activations.scores import checked, returned
from unarg_callback.activations.transforms import Transform, transformed, valid_transform


def sparsegen(
    z: Tensor,
    lambda_: Parameter = 0.0,
    *,
    g: Transform = "lin",
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """``sparsemax(g(z) / (1 - lambda))``, the ``argmin_p |p - g(z)|^2 - lambda |p|^2``.

    The larger lambda, the fewer nonzeros: as it falls all classes come to share alike, and towards
    1 only the largest are left. ``lambda_for_support`` returns the lambda for a wanted number.

    Args:
        z: scores, floating point.
        lambda_: below 1, a number or a tensor that broadcasts to ``z`` with size 1 at ``dim``.
        g: ``"lin"``, ``"exp"`` (e^z), ``"sq"`` (z^2), ``"log"`` (for scores of at least 0), or a
            function that works on each score by itself.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out: its probability and gradient
            are 0. If a row has none left it is NaN. -inf is no mask for
            ``"exp"``, for which it is an ordinary score of 0.

    Returns:
        Probabilities, of the shape and dtype of ``z``. A row where g(z) has NaN or +inf, or is -inf
        throughout, is NaN.

    Raises:
        ParameterError: lambda isn't finite and below 1, or doesn't fit; g is unknown.
        ScoresError: arguments don't fit together.

    Examples:
        >>> import torch
        >>> z = torch.tensor([1.0, 0.5, -1.0])
        >>> sparsegen(z, 0.75)
        tensor([1., 0., 0.])
        >>> sparsegen(z, -3.0)
        tensor([0.5417, 0.4167, 0.0417])
    """
    return _sparsegen(z, gap_of(lambda_), g, dim, mask)


class Sparsegen(Map):
    """:func:`sparsegen` as a module, with a lambda that may be learned.

    Args:
        lambda_: below 1; where it starts, if it is learned. A tensor such as (heads, 1, 1) gives
            each head its own.
        g: the transformation.
        dim: the dimension of the classes.
        learnable: learn lambda; ``1 - lambda`` is the softplus of what the optimizer moves.

    Raises:
        ParameterError: lambda isn't finite and below 1, or g is unknown.
    """

    def __init__(
        self,
        lambda_: Parameter = 0.0,
        *,
        g: Transform = "lin",
        dim: int = -1,
        learnable: bool = False,
    ) -> None:
        super().__init__(dim=dim)
        self.gap = Positive(valid_gap(gap_of(lambda_)), learnable=learnable)
        self.g: Transform = valid_transform(g)

    @property
    def lambda_(self) -> Parameter:
        """The value of lambda now."""
        return 1 - self.gap()

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """See :func:`sparsegen`."""
        return _sparsegen(z, self.gap(), self.g, self.dim, mask)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"g={self.g!r}, dim={self.dim}"


def _sparsegen(z: Tensor, gap: Parameter, g: Transform, dim: int, mask: Tensor | None) -> Tensor:
    scores = checked(z, dim, mask)
    gap = fitted("lambda", valid_gap(gap), scores, dim)
    return returned(project_divided(transformed(scores, g, dim, mask), gap, dim), z)
