"""Sparsehourglass (Laha et al. 2018): between scale and translation invariance."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.activations.module import Map
from unarg_callback.activations.parameters import Parameter, Positive, fitted, valid_q
from unarg_callback.activations.scaling import project_scaled, quotient, ratio, total
from unarg_callback.activations.scores import checked, returned


def sparsehourglass(
    z: Tensor, q: Parameter = 1.0, *, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    """``sparsemax(a z)`` with ``a = (1 + Kq) / (|sum(z)| + Kq)``.

    q = infinity is sparsemax, which ignores shifts; q = 0 is ``sum_normalization_pp``, which
    ignores positive factors. In between it is Lipschitz with constant
    ``sqrt((1 + Kq)^2 + K - 1) / (Kq)`` (the paper's ``1 + 1/(Kq)`` is too small). q is no monotone
    control of sparsity. Where scores sum to 0 there are two one-sided derivatives, and their mean
    is used.

    Args:
        z: scores, floating point.
        q: at least 0, a number or a tensor that broadcasts to ``z`` with size 1 at ``dim``.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out: its probability and gradient
            are 0. If a row has none left it is NaN.
            K is the number of classes left in the row. -inf is no mask here: the sum would be -inf.

    Returns:
        Probabilities, of the shape and dtype of ``z``. A row with NaN or infinity, and for
        q = 0 one with sum 0, is NaN.

    Raises:
        ParameterError: q is negative or NaN, or doesn't fit.
        ScoresError: arguments don't fit together.

    Examples:
        >>> import torch
        >>> sparsehourglass(torch.tensor([100.0, 101.0]), 1.0)
        tensor([0.4926, 0.5074])
    """
    scores = checked(z, dim, mask)
    q = fitted("q", valid_q(q), scores, dim)
    above, below = ratio(total(scores, dim, mask).abs(), q, scores, dim, mask)
    return returned(project_scaled(scores, quotient(above, below), dim, mask), z)


class Sparsehourglass(Map):
    """:func:`sparsehourglass` as a module, with a q that may be learned.

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
        """See :func:`sparsehourglass`."""
        return sparsehourglass(z, self.q, dim=self.dim, mask=mask)
