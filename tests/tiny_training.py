"""Models and trainers so small that a whole run takes a fraction of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, DIM, CLASSES = 6, 2, 12


class Classifier(pl.LightningModule):
    """Two features below twelve classes: some of them are bound to be out of reach."""

    def __init__(self, learning_rate: float = 0.5) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.losses: list[float] = []
        self.encoder: nn.Module = nn.Linear(FEATURES, DIM)
        self.generator: nn.Module = nn.Linear(DIM, CLASSES)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        return F.cross_entropy(self.generator(self.encoder(inputs)), targets)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.losses.append(float(loss.detach()))
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)


class Wide(Classifier):
    """So many classes that a check without time leaves some undecided."""

    def __init__(self) -> None:
        super().__init__(3.0)
        self.generator = nn.Linear(DIM, 400)


class Adversaries(Classifier):
    """Manual optimization: two optimizers, a step of each in every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Any:
        optimizers: Any = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        parts = (self.encoder, self.generator)
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in parts]


def batches(count: int = 7, size: int = 4) -> DataLoader[Any]:
    """The same ``count`` batches every time, in the same order."""
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(count * size, FEATURES, generator=draw)
    targets = torch.randint(CLASSES, (count * size,), generator=draw)
    return DataLoader(TensorDataset(inputs, targets), batch_size=size)


def trainer(folder: Path, *callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    """A quiet trainer on the CPU that writes below ``folder`` only."""
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "default_root_dir": folder,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "log_every_n_steps": 1,
        "logger": False,
        "max_epochs": 2,
    }
    return pl.Trainer(callbacks=list(callbacks), **{**quiet, **options})


def seeded(model_class: Any = Classifier, *arguments: Any) -> Any:
    """A model whose weights are the same every time."""
    torch.manual_seed(0)
    return model_class(*arguments)


def events(folder: str | None) -> EventAccumulator:
    """Everything that was written to TensorBoard there."""
    assert folder is not None
    accumulator = EventAccumulator(folder, STORE_EVERYTHING_SIZE_GUIDANCE)
    accumulator.Reload()
    return accumulator


def scalar_steps(folder: str | None, tag: str) -> list[int]:
    """Steps at which a scalar was written."""
    return [event.step for event in events(folder).Scalars(tag)]


def texts(folder: str | None, tag: str) -> list[tuple[int, str]]:
    """(step, text) of a text tag."""
    found = events(folder).Tensors(f"{tag}/text_summary")
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in found]
