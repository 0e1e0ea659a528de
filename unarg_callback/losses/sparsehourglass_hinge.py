"""Sparsehourglass with a hinge loss (Laha et al. 2018, Eq. 6)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unarg_callback.activations.parameters import (
    Parameter,
    Positive,
    classes_last,
    fitted,
    valid_q,
)
from unarg_callback.activations.scaling import ratio, total
from unarg_callback.activations.scores import largest
from unarg_callback.losses.module import Loss
from unarg_callback.losses.pairs import Pairs, pair_sum, within_labels
from unarg_callback.losses.targets import Empty, Reduction, problem


def sparsehourglass_hinge_loss(
    z: Tensor,
    target: Tensor,
    q: Parameter = 1.0,
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
    """What z lacks of the constraints under which ``sparsehourglass(z, q) = eta``: convex.

    With ``a = (1 + Kq) / (|sum(z)| + Kq)``, n labels P and all others N, it is the sum of
    ``|z_i - z_j|`` over pairs in P and of ``max(1 / (n a) - (z_i - z_j), 0)`` over i in P and j in
    N. Time O(K log K), memory O(K). It isn't divided by the number of pairs. For q = 0 it would be
    0 at z = 0, where the map is undefined.

    Args:
        z: scores, floating point.
        target: of the shape of ``z``, label sets: what is above 0 is a label. Or class indices
            (integers), of the shape of ``z`` without ``dim``.
        q: above 0, a number or a tensor that broadcasts to ``z`` with size 1 at ``dim``; infinity
            is sparsemax.
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
        ParameterError: q isn't above 0, or doesn't fit.
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
    q = classes_last(fitted("q", valid_q(q, positive=True), z, dim), z, dim)
    labels = given.eta > 0
    above, below = ratio(total(given.z, -1, given.mask).abs(), q, given.z, -1, given.mask)
    count = labels.sum(-1, keepdim=True).clamp_min(1)
    centred = given.z - largest(given.z, -1)
    eta = labels.to(given.z.dtype) / count
    b = centred - eta * (below / above)
    loss = pair_sum(b, labels, given.mask, within_labels(pairs))
    return given.reduce(loss, reduction, z)


class SparsehourglassHingeLoss(Loss):
    """:func:`sparsehourglass_hinge_loss` as a module.

    Args:
        q: above 0, a number or a tensor that broadcasts to the scores.
        pairs: "ordered" or "unordered".
        options: those of :class:`Loss`.

    Raises:
        ParameterError: q isn't above 0.
        TargetError: an option is unknown.
    """

    def __init__(self, q: Parameter = 1.0, *, pairs: Pairs = "ordered", **options: Any) -> None:
        super().__init__(**options)
        self.anchor = Positive(valid_q(q, positive=True), learnable=False)
        within_labels(pairs)
        self.pairs: Pairs = pairs

    def forward(
        self,
        z: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """See :func:`sparsehourglass_hinge_loss`."""
        return sparsehourglass_hinge_loss(
            z,
            target,
            self.anchor(),
            pairs=self.pairs,
            mask=mask,
            sample_weight=sample_weight,
            **self.options,
        )
