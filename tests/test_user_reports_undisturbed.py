"""Trainings are the same bit for bit, with and without the monitor, in each of its modes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.tiny_training import CLASSES, DIM, FEATURES, Classifier, batches, seeded, trainer
from unarg_callback import Monitor, UnargmaxabilityMonitor

pytestmark = [
    pytest.mark.usefixtures("time_enough"),
    # A check in the background of a run this short is late.
    pytest.mark.filterwarnings("ignore:UnargmaxabilityMonitor. the check due"),
]

MODES: dict[str, dict[str, Any]] = {
    "in line": {},
    "background": {"background": True},
    "observe": {"observe": True},
    "observed": {"domain": "observed", "background": True},
    "within a budget": {"max_overhead": 0.03, "every_n_epochs": 1},
    "names and events": {"exclude": [0], "on_event": lambda event: None},
}


class Random(Classifier):
    """Draws from every global generator at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, DIM), nn.Dropout(0.5))
        self.generator = nn.utils.parametrizations.weight_norm(nn.Linear(DIM, CLASSES))
        self.modes: list[Any] = []

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        noise = random.random() * float(np.random.rand())
        bias: Tensor = self.generator.get_parameter("bias")
        return super().loss(batch) + noise * bias.square().sum()

    def on_train_batch_end(self, *_: Any) -> None:
        """After the callbacks."""
        self.modes.append((self.training, torch.is_grad_enabled(), torch.get_default_dtype()))


def shuffled(workers: int) -> DataLoader[Any]:
    return DataLoader(
        batches(6).dataset,
        batch_size=4,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )


def fit(folder: Path, workers: int, accumulate: int, *callbacks: pl.Callback) -> dict[str, Any]:
    """All that a training leaves behind."""
    pl.seed_everything(5, verbose=False)
    model = Random()
    run = trainer(
        folder,
        *callbacks,
        logger=CSVLogger(folder),
        accumulate_grad_batches=accumulate,
        gradient_clip_val=1.0,
    )
    run.fit(model, shuffled(workers), batches(2))
    legacy: Any = np.random.get_state()
    return {
        "losses": model.losses,
        "weights": {name: value.tolist() for name, value in model.state_dict().items()},
        "optimizer": str(run.optimizers[0].state_dict()),
        "modes": model.modes,
        "torch": torch.get_rng_state().tolist(),
        "numpy": [str(part) for part in legacy] + [np.asarray(legacy[1]).tolist()],
        "python": random.getstate(),
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "metrics": {
            tag: float(value)
            for tag, value in run.callback_metrics.items()
            if not tag.startswith("unarg")
        },
    }


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
def test_losses_weights_and_random_states(tmp_path: Path, workers: int, accumulate: int) -> None:
    """https://github.com/pytorch/pytorch/issues/17199: workers are forked while a thread runs."""
    plain = fit(tmp_path / "plain", workers, accumulate)
    assert len(plain["losses"]) == 12
    assert len(set(plain["losses"])) == 12
    for name, options in MODES.items():
        monitor = UnargmaxabilityMonitor(
            **{"every_n_steps": 1, "max_overhead": None, "on_error": "raise", **options}
        )
        watched = fit(tmp_path / name, workers, accumulate, monitor)
        assert monitor.records[-1].step == 12 // accumulate
        for what, expected in plain.items():
            assert watched[what] == expected, (name, what)


def test_the_comparison_sees_a_single_draw(tmp_path: Path) -> None:
    class Drawing(pl.Callback):
        def on_train_end(self, *_: Any) -> None:
            torch.rand(1)

    plain, other = fit(tmp_path, 0, 1), fit(tmp_path, 0, 1, Drawing())
    assert plain["losses"] == other["losses"]
    assert plain["torch"] != other["torch"]


@pytest.mark.parametrize("mode", list(MODES))
def test_a_plain_loop(mode: str) -> None:
    def loop(monitor: Monitor | None) -> tuple[list[float], list[float], list[int]]:
        model = seeded(Random)
        np.random.seed(1)
        random.seed(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        losses, step = [], 0
        if monitor is not None:
            monitor.start(model)
        for epoch in range(2):
            for batch in shuffled(0):
                optimizer.zero_grad()
                loss = model.loss(batch)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                step += 1
                if monitor is not None:
                    monitor.step(model, step)
            if monitor is not None:
                monitor.epoch_end(model, step, epoch)
        if monitor is not None:
            monitor.finish(model, step)
        weights = torch.cat([value.reshape(-1) for value in model.parameters()])
        return losses, weights.tolist(), torch.get_rng_state().tolist()

    monitor = Monitor(**{"every_n_steps": 1, "on_error": "raise", **MODES[mode]})
    assert loop(monitor) == loop(None)
    assert monitor.records[-1].step == 12
