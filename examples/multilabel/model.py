"""A linear model with a multilabel head."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from torch import Tensor

from multilabel.data import Batch
from unarg_callback.heads import MultilabelHead
from unarg_callback.heads.metrics import multilabel_metrics


class LinearModel(pl.LightningModule):
    """Train a head alone; its threshold, if it needs one, is tuned at each validation.

    Args:
        head: what is trained.
        tune: whether to tune the threshold.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
    """

    def __init__(
        self, head: MultilabelHead, *, tune: bool, learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__()
        self.head = head
        self.tune = tune
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.metrics = multilabel_metrics(head.linear.out_features)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of a batch."""
        x, y = batch
        loss: Tensor = self.head.loss(self.head(x), y)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Tune the threshold on all validation rows, and log their metrics."""
        x, y = batch
        if self.tune:
            self.head.tune_threshold(self.head(x), y)
        self._log("valid", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Log the metrics of all test rows."""
        self._log("test", batch)
        size = batch[1].sum(-1).float().mean()
        self.log("test/true_labels", size, batch_size=len(batch[0]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW: the losses differ in scale, to which its steps are insensitive."""
        return torch.optim.AdamW(
            self.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
        )

    def _log(self, stage: str, batch: Batch) -> None:
        x, y = batch
        z = self.head(x)
        self.metrics.reset()
        self.metrics.update(
            preds=self.head.predict(z).int(),
            probabilities=self.head.probabilities(z),
            target=y.int(),
        )
        scores = {f"{stage}/{name}": value for name, value in self.metrics.compute().items()}
        self.log_dict(scores, batch_size=len(x))
