"""Softmax with the logarithmic loss."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.activations.scores import masked
from unarg_callback.losses.module import Loss
from unarg_callback.losses.targets import Empty, Reduction, at_least_zero, problem


def softmax_log_loss(
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
    """Kullback-Leibler divergence of ``softmax(z)`` from the target distribution eta.

    For class indices this is the cross-entropy; for others it is less by the entropy of eta, so
    that it is 0 exactly if ``softmax(z) = eta``. The gradient is ``softmax(z) - eta``.

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
    p_log = masked(given.z, given.mask).log_softmax(-1)
    p_log = masked(p_log, given.mask, 0.0)
    loss = (torch.xlogy(given.eta, given.eta) - given.eta * p_log).sum(-1)
    return given.reduce(at_least_zero(loss), reduction, z)


class SoftmaxLogLoss(Loss):
    """:func:`softmax_log_loss` as a module; its arguments are those of :class:`Loss`."""

    def forward(
        self,
        z: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """See :func:`softmax_log_loss`."""
        return softmax_log_loss(z, target, mask=mask, sample_weight=sample_weight, **self.options)
