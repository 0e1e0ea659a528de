"""Sparsegen-lin with a hinge loss (Laha et al. 2018, Eq. 7)."""

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
from unarg_callback.activations.scores import largest
from unarg_callback.losses.module import Loss
from unarg_callback.losses.pairs import Pairs, pair_sum, within_labels
from unarg_callback.losses.targets import Empty, Reduction, problem


def sparsegen_hinge_loss(
    z: Tensor,
    target: Tensor,
    lambda_: Parameter = 0.0,
    *,
    pairs: Pairs = "ordered",
    dim: int = -1,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    empty: Empty = "ignore",
    reduction: Reduction = "mean",
) -> Tensor:
    """What z lacks of the constraints under which ``sparsegen(z, lambda) = eta``: convex.

    With ``s = z / (1 - lambda)``, labels P and all others N, it is the sum of
    ``|(s_i - s_j) - (eta_i - eta_j)|`` over pairs in P and of ``max(eta_i - (s_i - s_j), 0)`` over
    i in P and j in N; the paper has label sets, where eta is the same throughout P. Time
    O(K log K), memory O(K). lambda = 0 is the paper's sparsemax+hinge. It isn't divided by the
    number of pairs.

    Args:
        z: scores, floating point.
        target: of the shape of ``z``, label sets (bool or 0/1) or distributions: what is given is
            divided by its sum. Or class indices (integers), of the shape of ``z`` without ``dim``.
        lambda_: below 1, a number or a tensor that broadcasts to ``z`` with size 1 at ``dim``.
        pairs: whether a pair of labels counts twice, "ordered", as printed in the paper, or once,
            "unordered", as in its authors' code.
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
    labels = given.eta > 0
    centred = given.z - largest(given.z, -1)
    b = centred / gap - given.eta
    loss = pair_sum(b, labels, given.mask, within_labels(pairs))
    return given.reduce(loss, reduction, z)


class SparsegenHingeLoss(Loss):
    """:func:`sparsegen_hinge_loss` as a module.

    Args:
        lambda_: below 1, a number or a tensor that broadcasts to the scores.
        pairs: "ordered" or "unordered".
        options: those of :class:`Loss`.

    Raises:
        ParameterError: lambda isn't finite and below 1.
        TargetError: an option is unknown.
    """

    def __init__(
        self, lambda_: Parameter = 0.0, *, pairs: Pairs = "ordered", **options: Any
    ) -> None:
        super().__init__(**options)
        self.gap = Positive(valid_gap(gap_of(lambda_)), learnable=False)
        within_labels(pairs)
        self.pairs: Pairs = pairs

    def forward(
        self,
        z: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """See :func:`sparsegen_hinge_loss`."""
        return sparsegen_hinge_loss(
            z,
            target,
            1 - self.gap(),
            pairs=self.pairs,
            mask=mask,
            sample_weight=sample_weight,
            **self.options,
        )
