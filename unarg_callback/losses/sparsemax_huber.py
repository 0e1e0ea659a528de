"""Sparsemax with its Fenchel-Young loss, of Huber's shape."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.losses.module import Loss
from unarg_callback.losses.sparsegen_huber import sparsegen_huber_loss
from unarg_callback.losses.targets import Empty, Reduction


def sparsemax_huber_loss(
    z: Tensor,
    target: Tensor,
    *,
    dim: int = -1,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    empty: Empty = "ignore",
    reduction: Reduction = "mean",
) -> Tensor:
    """The sparsemax loss, :func:`sparsegen_huber_loss` with lambda = 0.

    Args:
        z: scores, floating point.
        target: of the shape of ``z``, label sets (bool or 0/1) or distributions: what is given is
            divided by its sum. Or class indices (integers), of the shape of ``z`` without ``dim``.
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
    """
    return sparsegen_huber_loss(
        z,
        target,
        dim=dim,
        mask=mask,
        weight=weight,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        empty=empty,
        reduction=reduction,
    )


class SparsemaxHuberLoss(Loss):
    """:func:`sparsemax_huber_loss` as a module; its arguments are those of :class:`Loss`."""

    def forward(
        self,
        z: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """See :func:`sparsemax_huber_loss`."""
        return sparsemax_huber_loss(
            z, target, mask=mask, sample_weight=sample_weight, **self.options
        )
