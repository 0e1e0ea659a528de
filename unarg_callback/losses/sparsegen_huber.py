"""Sparsegen-lin with its Fenchel-Young loss, of Huber's shape."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unarg_callback.activations.parameters import (
    Parameter,
    Positive,
    classes_last,
    fitted,
    gap_of,
    valid_gap,
)
from unarg_callback.activations.scaling import project_divided
from unarg_callback.activations.scores import largest, masked
from unarg_callback.losses.module import Loss
from unarg_callback.losses.targets import Empty, Reduction, at_least_zero, problem


def sparsegen_huber_loss(
    z: Tensor,
    target: Tensor,
    lambda_: Parameter = 0.0,
    *,
    dim: int = -1,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    empty: Empty = "ignore",
    reduction: Reduction = "mean",
) -> Tensor:
    """Fenchel-Young loss of sparsegen-lin: convex, and 0 exactly if ``sparsegen(z) = eta``.

    ``z.p - z.eta - (1 - lambda) / 2 (|p|^2 - |eta|^2)`` with ``p = sparsegen(z, lambda)``; its
    gradient is ``p - eta``. For lambda = 0 this is the sparsemax loss (Martins & Astudillo 2016,
    for label sets their section 3.3).

    Args:
        z: scores, floating point.
        target: of the shape of ``z``, label sets (bool or 0/1) or distributions: what is given is
            divided by its sum. Or class indices (integers), of the shape of ``z`` without ``dim``.
        lambda_: below 1, a number or a tensor that broadcasts to ``z`` with size 1 at ``dim``.
        dim: the dimension of the classes.
        mask: bool, broadcastable to ``z``; False takes a class out. A score of -inf does so too.
        weight: (K,) weights of the classes; a row weighs ``sum(eta * weight)``.
        sample_weight: weights of the rows, of the shape of ``z`` without ``dim``.
        ignore_index: the class index of rows to ignore.
        empty: a row without labels that take part has no target distribution: "ignore" leaves it
            out of sum and mean, "error" raises.
        reduction: "mean" (by weight; 0 if no row counts), "sum", or "none" for one loss a row.

    Returns:
        The loss, in the dtype of ``z``. It is infinite where a label's score is -inf.

    Raises:
        TargetError: targets, weights or options don't fit.
        ScoresError: scores, dimension or mask don't fit together.
        ParameterError: lambda isn't finite and below 1, or doesn't fit.
    """
    given = problem(
        z,
        target,
        dim=dim,
        mask=mask,
        weight=weight,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        empty=empty,
    )
    gap = fitted("lambda", valid_gap(gap_of(lambda_)), z, dim)
    gap = classes_last(gap, z, dim)
    y = given.z - largest(given.z, -1)
    p = project_divided(masked(y, given.mask), gap, -1)
    loss = ((p - given.eta) * (y - gap / 2 * (p + given.eta))).sum(-1)
    return given.reduce(at_least_zero(loss), reduction, z)


class SparsegenHuberLoss(Loss):
    """:func:`sparsegen_huber_loss` as a module.

    Args:
        lambda_: below 1, a number or a tensor that broadcasts to the scores.
        options: those of :class:`Loss`.

    Raises:
        ParameterError: lambda isn't finite and below 1.
        TargetError: an option is unknown.
    """

    def __init__(self, lambda_: Parameter = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.gap = Positive(valid_gap(gap_of(lambda_)), learnable=False)

    def forward(
        self,
        z: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """See :func:`sparsegen_huber_loss`."""
        return sparsegen_huber_loss(
            z,
            target,
            1 - self.gap(),
            mask=mask,
            sample_weight=sample_weight,
            **self.options,
        )
