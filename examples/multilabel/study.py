"""Train every head on every data set, and write down what came of it."""

from __future__ import annotations

import csv
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint

from multilabel.data import Case, CaseData, Source, standardized
from multilabel.model import LinearModel
from unarg_callback.heads import MultilabelHead


@dataclass(frozen=True)
class Grid:
    """A method, and the values of its parameter.

    Attributes:
        method: one of ``unarg_callback.heads.multilabel.METHODS``.
        lambda_: values for sparsegen_lin.
        q: values for sparsehourglass.
    """

    method: str
    lambda_: list[float] = field(default_factory=list)
    q: list[float] = field(default_factory=list)

    @property
    def parameter(self) -> str:
        """The name of what varies; empty if nothing does."""
        return "lambda_" if self.lambda_ else "q" if self.q else ""

    @property
    def values(self) -> list[float]:
        """The values of what varies; NaN if nothing does."""
        return self.lambda_ or self.q or [float("nan")]


@dataclass(frozen=True)
class Training:
    """How heads are trained: all alike.

    Attributes:
        epochs: passes; the one with the best validation F is kept.
        batch_size: rows a batch.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        tune_all: tune the threshold of every map, not of softmax alone as in the paper.
    """

    epochs: int = 40
    batch_size: int = 64
    learning_rate: float = 0.01
    weight_decay: float = 0.1
    tune_all: bool = False


@dataclass(frozen=True)
class Result:
    """One trained head: a line of the CSV. Scores are the test set's, but for ``valid_f_micro``.

    Attributes:
        setting: see :class:`multilabel.data.Case`.
        value: of the setting.
        seed: of data, start and order.
        method: map and loss.
        parameter: name of the method's parameter, or empty.
        parameter_value: NaN if there is none.
        valid_f_micro: by which epochs and parameters are chosen.
        f_micro: micro-averaged F.
        f_macro: macro-averaged F.
        jsd: mean Jensen-Shannon divergence from the label distribution, rows without labels apart.
        support: mean number of nonzero probabilities.
        labels: mean number of predicted labels.
        true_labels: mean number of labels there are.
        threshold: above which labels are predicted.
        selected: whether this parameter has the best validation F of its method.
    """

    setting: str
    value: float
    seed: int
    method: str
    parameter: str
    parameter_value: float
    valid_f_micro: float
    f_micro: float
    f_macro: float
    jsd: float
    support: float
    labels: float
    true_labels: float
    threshold: float
    selected: bool = False


def run_study(
    data: Source, heads: Sequence[Grid], training: Training, seeds: Sequence[int]
) -> Iterator[Result]:
    """Train and test; yield the results of one method on one data set together."""
    for seed in seeds:
        for case in map(standardized, data.cases(seed)):
            for grid in heads:
                tried = [train(case, grid, value, training, seed) for value in grid.values]
                best = max(tried, key=lambda result: result.valid_f_micro)
                yield from (replace(result, selected=result is best) for result in tried)


def train(case: Case, grid: Grid, value: float, training: Training, seed: int) -> Result:
    """Train one head, take its best epoch, and test it."""
    pl.seed_everything(seed, verbose=False)
    head = MultilabelHead.named(
        grid.method,
        in_features=case.train.x.shape[1],
        num_labels=case.train.y.shape[1],
        **({grid.parameter: value} if grid.parameter else {}),
    )
    model = LinearModel(
        head,
        tune=training.tune_all or grid.method.startswith("softmax"),
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
    )
    data = CaseData(case, training.batch_size, seed)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        best = ModelCheckpoint(folder, monitor="valid/f_micro", mode="max", save_weights_only=True)
        trainer = pl.Trainer(
            max_epochs=training.epochs,
            accelerator="cpu",
            logger=False,
            callbacks=[best],
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, datamodule=data)
        (tested,) = trainer.test(model, datamodule=data, ckpt_path="best", verbose=False)
    scores: dict[str, Any] = {name.removeprefix("test/"): x for name, x in tested.items()}
    assert best.best_model_score is not None
    return Result(
        setting=case.setting,
        value=case.value,
        seed=seed,
        method=grid.method,
        parameter=grid.parameter,
        parameter_value=value,
        valid_f_micro=float(best.best_model_score),
        threshold=float(head.threshold),
        **scores,
    )


def write_csv(results: Sequence[Result], path: Path) -> None:
    """Write one line a trained head, under a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [column.name for column in fields(Result)])
        writer.writeheader()
        writer.writerows(asdict(result) for result in results)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Lightning says at the start of each of many short trainings."""
    log = logging.getLogger("pytorch_lightning")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            warnings.filterwarnings("ignore", message=".*LeafSpec.*")
            warnings.filterwarnings("ignore", message=".*is smaller than the logging interval.*")
            yield
    finally:
        log.setLevel(level)
