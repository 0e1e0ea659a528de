"""Sparsecone (Laha et al. 2018): the scores drawn towards a point, then projected."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.activations.module import Map
from unarg_callback.activations.parameters import Parameter, Positive, fitted, valid_q
from unarg_callback.activations.scaling import project_scaled, quotient, ratio, total
from unarg_callback.activations.scores import checked, returned


def sparsecone(
    z: Tensor, q: Parameter = 1.0, *, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    """``sparsemax(a z)`` with ``a = (1 + Kq) / (sum(z) + Kq)``, for scores with ``sum(z) > -Kq``.

    Scores on one line through (-q, ..., -q) have one image. q = 0 is sum-normalization where all
    scores are at least 0, q = infinity is sparsemax.

    Args:
        z: scores, floating point.
        q: at least 0, a number or a tensor that broadcasts to ``z`` with size 1 at ``dim``.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out: its probability and gradient
            are 0. If a row has none left it is NaN.
            K is the number of classes left in the row. -inf is no mask here: the sum would be -inf.

    Returns:
        Probabilities, of the shape and dtype of ``z``. A row whose sum is not above
        -Kq is NaN: the formula would turn the order of the scores around.

    Raises:
        ParameterError: q is negative or NaN, or doesn't fit.
        ScoresError: arguments don't fit together.
    """
    scores = checked(z, dim, mask)
    q = fitted("q", valid_q(q), scores, dim)
    above, below = ratio(total(scores, dim, mask), q, scores, dim, mask)
    return returned(project_scaled(scores, quotient(above, below), dim, mask), z)


class Sparsecone(Map):
    """:func:`sparsecone` as a module, with a q that may be learned.

    Args:
        q: at least 0; where it starts, if it is learned. A tensor such as (heads, 1, 1) gives each
            head its own.
        dim: the dimension of the classes.
        learnable: learn q; it is the softplus of what the optimizer moves, so it stays above 0.

    Raises:
        ParameterError: q is negative or NaN; or it is to be learned and isn't finite and above 0.
    """

    def __init__(self, q: Parameter = 1.0, *, dim: int = -1, learnable: bool = False) -> None:
        super().__init__(dim=dim)
        self.anchor = Positive(valid_q(q), learnable=learnable, zero=True)

    @property
    def q(self) -> Parameter:
        """The value of q now."""
        return self.anchor()

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """See :func:`sparsecone`."""
        return sparsecone(z, self.q, dim=self.dim, mask=mask)
