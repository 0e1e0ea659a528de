"""Metrics of predicted label sets and probabilities, for torchmetrics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MultilabelF1Score
from torchmetrics.regression import JensenShannonDivergence


class LabelSetDivergence(JensenShannonDivergence):
    """Mean Jensen-Shannon divergence, in nats, of probabilities from uniform label distributions.

    Rows without labels have no such distribution, and are left out.

    Examples:
        >>> metric = LabelSetDivergence()
        >>> metric.update(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([[1, 1], [0, 1]]))
        >>> metric.compute()  # 0 and log(2)
        tensor(0.3466)
    """

    def update(self, probabilities: Tensor, target: Tensor) -> None:
        """Take in (N, K) probabilities and (N, K) label sets, bool or 0/1."""
        labelled = target.bool().any(-1)
        super().update(probabilities[labelled].float(), target[labelled].float())

    def compute(self) -> Tensor:
        """The mean; NaN where no row had a label."""
        return super().compute() if self.total > 0 else torch.tensor(torch.nan, device=self.device)


class _MeanCount(Metric):
    full_state_update = False
    count: Tensor
    rows: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("rows", torch.tensor(0), dist_reduce_fx="sum")

    def _take(self, chosen: Tensor) -> None:
        self.count = self.count + chosen.sum()
        self.rows = self.rows + chosen.shape[:-1].numel()

    def compute(self) -> Tensor:
        """The mean; NaN before the first row."""
        return self.count / self.rows


class SupportSize(_MeanCount):
    """Mean number of nonzero probabilities."""

    def update(self, probabilities: Tensor) -> None:
        """Take in (..., K) probabilities."""
        self._take(probabilities > 0)


class LabelSetSize(_MeanCount):
    """Mean number of predicted labels."""

    def update(self, preds: Tensor) -> None:
        """Take in (..., K) label sets, bool or 0/1."""
        self._take(preds > 0)


def multilabel_metrics(num_labels: int, prefix: str | None = None) -> MetricCollection:
    """Micro- and macro-averaged F, divergence, support size and number of labels predicted.

    To update it, name the arguments: ``preds``, predicted sets as integers, ``probabilities`` and
    ``target``, all (N, K). F counts rows without labels too; a label that neither occurs nor is
    predicted counts 0 in the macro average.

    Args:
        num_labels: K, at least 2.
        prefix: put before the names ``f_micro``, ``f_macro``, ``jsd``, ``support``, ``labels``.

    Examples:
        >>> metrics = multilabel_metrics(2)
        >>> p, target = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[1, 0], [0, 1]])
        >>> metrics.update(preds=(p > 0).int(), probabilities=p, target=target)
        >>> {name: round(float(value), 2) for name, value in metrics.compute().items()}
        {'f_macro': 0.83, 'f_micro': 0.8, 'jsd': 0.11, 'labels': 1.5, 'support': 1.5}
    """
    options: dict[str, Any] = {"num_labels": num_labels, "validate_args": False}
    return MetricCollection(
        {
            "f_micro": MultilabelF1Score(average="micro", **options),
            "f_macro": MultilabelF1Score(average="macro", **options),
            "jsd": LabelSetDivergence(),
            "support": SupportSize(),
            "labels": LabelSetSize(),
        },
        prefix=prefix,
        compute_groups=False,
    )
