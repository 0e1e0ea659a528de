"""A head that predicts sets of labels: linear layer, map, loss and rule of prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unarg_callback.activations import ParameterError
from unarg_callback.heads.named_maps import named_map
from unarg_callback.heads.rule import rule_of
from unarg_callback.heads.threshold import best_threshold
from unarg_callback.label_sets import LabelHead
from unarg_callback.losses import (
    SoftmaxLogLoss,
    SparsegenHingeLoss,
    SparsegenHuberLoss,
    SparsehourglassHingeLoss,
    SparsemaxHuberLoss,
)

METHODS = (
    "softmax+log",
    "sparsemax+huber",
    "sparsemax+hinge",
    "sparsegen_lin+huber",
    "sparsegen_lin+hinge",
    "sparsehourglass+hinge",
)
"""Pairs of map and loss that :meth:`MultilabelHead.named` knows."""


class MultilabelHead(nn.Module):
    """A linear layer whose scores a map turns into probabilities (Laha et al. 2018, section 4).

    Labels with a probability above ``threshold`` are predicted. At 0, the rule for sparse maps,
    these are the nonzeros: at least one label. Softmax has no zeros and needs a tuned threshold;
    where F counts, tuning raises that of sparse maps too.

    Args:
        in_features: d, features of the input.
        num_labels: K.
        map: (..., K) scores to probabilities.
        loss: of (..., K) scores and label sets.
        threshold: at least 0.

    Raises:
        ParameterError: the threshold is negative.

    Examples:
        >>> import torch
        >>> head = MultilabelHead.named("sparsemax+huber", in_features=4, num_labels=3)
        >>> x, labels = torch.randn(2, 4), torch.tensor([[1, 0, 0], [0, 1, 1]])
        >>> z = head(x)
        >>> head.loss(z, labels).shape, head.predict(z).shape
        (torch.Size([]), torch.Size([2, 3]))
    """

    threshold: Tensor

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        map: nn.Module,
        loss: nn.Module,
        *,
        threshold: float = 0.0,
    ) -> None:
        super().__init__()
        if not threshold >= 0:
            raise ParameterError(f"the threshold is {threshold}, expected at least 0")
        self.linear = nn.Linear(in_features, num_labels)
        self.map = map
        self.loss = loss
        self.register_buffer("threshold", torch.tensor(threshold, dtype=torch.float64))

    @classmethod
    def named(
        cls,
        method: str,
        *,
        in_features: int,
        num_labels: int,
        lambda_: float = 0.0,
        q: float = 1.0,
        **options: Any,
    ) -> MultilabelHead:
        """Make one of the paper's heads, or one of its relatives with sparsegen-lin.

        Softmax starts with the threshold 1/K, what labels have if nothing is known of them.

        Args:
            method: one of ``METHODS``.
            in_features: d, features of the input.
            num_labels: K.
            lambda_: of sparsegen-lin, below 1.
            q: of sparsehourglass, above 0.
            options: of the loss, such as ``weight``, ``empty`` and for hinge losses ``pairs``.

        Raises:
            ParameterError: there is no such method, or a parameter is outside of its range.
        """
        losses = {
            "softmax+log": lambda: SoftmaxLogLoss(**options),
            "sparsemax+huber": lambda: SparsemaxHuberLoss(**options),
            "sparsemax+hinge": lambda: SparsegenHingeLoss(**options),
            "sparsegen_lin+huber": lambda: SparsegenHuberLoss(lambda_, **options),
            "sparsegen_lin+hinge": lambda: SparsegenHingeLoss(lambda_, **options),
            "sparsehourglass+hinge": lambda: SparsehourglassHingeLoss(q, **options),
        }
        if method not in losses:
            raise ParameterError(f"there is no {method!r}; expected one of {', '.join(METHODS)}")
        map_ = named_map(method.split("+")[0], lambda_=lambda_, q=q)
        threshold = 1 / num_labels if method == "softmax+log" else 0.0
        return cls(in_features, num_labels, map_, losses[method](), threshold=threshold)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (..., K) of inputs (..., d)."""
        z: Tensor = self.linear(x)
        return z

    def probabilities(self, z: Tensor) -> Tensor:
        """Probabilities (..., K) of scores."""
        p: Tensor = self.map(z)
        return p

    def predict(self, z: Tensor) -> Tensor:
        """Label sets (..., K), bool, of scores."""
        # In float64, or a threshold just below a probability could be rounded up to it.
        return self.probabilities(z).double() > self.threshold

    @torch.no_grad()
    def tune_threshold(self, z: Tensor, target: Tensor) -> float:
        """Set the threshold that gives validation data the highest micro-averaged F; return it.

        Args:
            z: (N, K) scores.
            target: (N, K) bool or 0/1.

        Raises:
            TargetError: shapes differ, or there isn't a single label.
        """
        self.threshold.fill_(best_threshold(self.probabilities(z), target))
        return float(self.threshold)

    def label_head(self, names: Sequence[str] | None = None) -> LabelHead:
        """This head as it is now, for :func:`~unarg_callback.label_sets.verify_label_sets`.

        Its rule is exact for sparsemax, sparsegen-lin, sparsehourglass and sum-normalization++ with
        threshold 0, and for ``nn.Sigmoid``. For other maps that keep the order of the scores it is
        :class:`~unarg_callback.label_sets.TopRule`, which they obey: what it proves out of reach
        is, but what it calls attainable need not be.

        Args:
            names: K label names, or None.

        Raises:
            RuleError: the map ranks by ``|z|``, or its order isn't known.

        Examples:
            >>> from unarg_callback.label_sets import verify_label_sets
            >>> head = MultilabelHead.named("sparsemax+huber", in_features=4, num_labels=3)
            >>> verify_label_sets(head.label_head(), [[0, 2]]).counts["attainable"]
            1
        """
        rule, _ = rule_of(self.map, float(self.threshold))
        bias = None if self.linear.bias is None else self.linear.bias.detach()
        return LabelHead(self.linear.weight.detach(), bias, rule, names=names)
