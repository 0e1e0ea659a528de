"""Rows with sets of labels: where they come from, and how they are split, scaled and batched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

Batch = tuple[Tensor, ...]
"""(N, d) features, float32, and (N, K) label sets, bool."""


class DataError(ValueError):
    """There is no data to train on; the message is one line a person can act on."""


class Rows(NamedTuple):
    """Features and label sets.

    Attributes:
        x: (N, d) float32.
        y: (N, K) bool.
    """

    x: Tensor
    y: Tensor

    def take(self, index: Tensor) -> Rows:
        """Return the rows at an index or mask."""
        return Rows(self.x[index], self.y[index])


class Case(NamedTuple):
    """One data set of a study.

    Attributes:
        setting: what varies, such as "mean"; the name of a data set where nothing does.
        value: of what varies.
        train: rows to train on; all have labels.
        valid: rows to choose epochs, thresholds and parameters by.
        test: rows to report on.
    """

    setting: str
    value: float
    train: Rows
    valid: Rows
    test: Rows


class Source(ABC):
    """Where the data sets of a study come from."""

    @abstractmethod
    def cases(self, seed: int) -> Iterator[Case]:
        """Return data sets that depend on the seed."""


def standardized(case: Case) -> Case:
    """Give each feature mean 0 and variance 1 in training; a constant one becomes 0 there."""
    mean, deviation = case.train.x.mean(0), case.train.x.std(0, correction=0)
    scale = torch.where(deviation > 1e-6 * mean.abs().clamp_min(1e-30), deviation, 1.0)

    def scaled(rows: Rows) -> Rows:
        return Rows((rows.x - mean) / scale, rows.y)

    return case._replace(train=scaled(case.train), valid=scaled(case.valid), test=scaled(case.test))


class CaseData(pl.LightningDataModule):
    """Batches of a case; validation and test are one batch each.

    Args:
        case: the data set.
        batch_size: training rows a batch; the last may have fewer.
        seed: of the batches' order.
    """

    def __init__(self, case: Case, batch_size: int, seed: int) -> None:
        super().__init__()
        self.case = case
        self.batch_size = batch_size
        self._order = torch.Generator().manual_seed(seed)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled batches."""
        rows = TensorDataset(*self.case.train)
        # The sampler's batches are taken in one indexing, in place of row by row.
        batches = BatchSampler(
            RandomSampler(rows, generator=self._order), self.batch_size, drop_last=False
        )
        return DataLoader(rows, sampler=batches, batch_size=None)

    def val_dataloader(self) -> DataLoader[Batch]:
        """All validation rows."""
        return _whole(self.case.valid)

    def test_dataloader(self) -> DataLoader[Batch]:
        """All test rows."""
        return _whole(self.case.test)


def _whole(rows: Rows) -> DataLoader[Batch]:
    return DataLoader(TensorDataset(*rows), sampler=[list(range(len(rows.x)))], batch_size=None)
