"""The callback in trainings of two real processes."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger

from tests.distributed.processes import in_processes
from tests.tiny_training import Classifier, batches, scalar_steps, seeded, trainer
from unarg_callback import UnargmaxabilityMonitor, verify
from unarg_callback.dashboards.json_lines import read_json_lines
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.head_monitor import HeadMonitor


def fit(
    folder: Path, monitor: UnargmaxabilityMonitor, *callbacks: pl.Callback, **options: Any
) -> dict[str, Any]:
    """Train in the processes that were started; return what this rank's monitor knows."""
    model = options.pop("model", None) or seeded()
    outputs: list[int] = []
    run = trainer(
        folder,
        monitor,
        Outputs(outputs),
        *callbacks,
        **{"logger": DummyLogger(), "devices": 2, "strategy": "ddp", **options},
    )
    run.fit(model, batches(14), batches(2))
    report = monitor.last_report
    weight, bias = model.generator.weight.detach(), model.generator.bias.detach()
    torch.save(monitor.state_dict(), folder / f"state{run.global_rank}.pt")
    return {
        "steps": [record.step for record in monitor.records],
        "warm": [record.warm for record in monitor.records],
        "retired": monitor.monitor.retired,
        "status": None if report is None else report.status.tolist(),
        "expected": None if report is None else verify(OutputLayer(weight, bias)).status.tolist(),
        "metrics": {k: float(v) for k, v in run.callback_metrics.items() if "unarg/" in k},
        "outputs": outputs[0],
        "global_step": run.global_step,
    }


class Outputs(pl.Callback):
    """Counts to how much a rank writes."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
    ) -> None:
        (monitor,) = [c for c in trainer.callbacks if isinstance(c, UnargmaxabilityMonitor)]  # type: ignore[attr-defined]
        self.counts.append(len(monitor.monitor.publisher.outputs))


class Failing(HeadMonitor):
    """Fails on the second rank alone, at the second check."""

    def check(self, *arguments: Any, **options: Any) -> Any:
        record = super().check(*arguments, **options)
        if os.environ.get("LOCAL_RANK") == "1" and len(self.records) == 2:
            raise MemoryError("no more")
        return record


class Heard:
    """Appends to a file what it hears."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        with self.path.open("a") as file:
            file.write(f"{event.kind} {event.step} {event.classes}\n")


class Breaking(Classifier):
    """The layer gets NaN on the second rank alone."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        if self.global_step == 4 and self.global_rank == 1:
            with torch.no_grad():
                self.get_parameter("generator.weight")[0] = torch.nan


SCENARIOS = ("divided", "early", "failing", "heard", "nan", "background", "state on one rank")


def scenario(name: str, folder: Path) -> dict[str, Any]:
    folder = folder / name
    if name == "divided":
        monitor = UnargmaxabilityMonitor(every_n_steps=5, max_overhead=None)
        return fit(folder, monitor, logger=TensorBoardLogger(folder, version="v"))
    if name == "early":
        # Otherwise one rank would miss the metric, and the run hang.
        monitor = UnargmaxabilityMonitor(every_n_steps=3)
        stop = EarlyStopping("unarg/generator/provable", patience=0, strict=True)
        return fit(folder, monitor, stop, max_epochs=30)
    if name == "failing":
        monitor = UnargmaxabilityMonitor(every_n_steps=3, max_overhead=None)
        monitor.heads["output"].__class__ = Failing
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fit(folder, monitor)
    if name == "heard":
        monitor = UnargmaxabilityMonitor(
            every_n_steps=1, max_overhead=None, on_event=Heard(folder / "heard")
        )
        return fit(folder, monitor, logger=CSVLogger(folder), max_epochs=4)
    if name == "nan":
        monitor = UnargmaxabilityMonitor(every_n_steps=4, max_overhead=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fit(folder, monitor, model=seeded(Breaking), max_epochs=1)
    if name == "state on one rank":
        monitor = UnargmaxabilityMonitor("generator", every_n_steps=4, max_overhead=None)
        if dist.get_rank() == 0:
            saved = folder.parent / "divided" / "state0.pt"
            state = torch.load(saved, weights_only=True)
            monitor.load_state_dict({**state, "last_step": 0})
        return fit(folder, monitor, max_epochs=1)
    monitor = UnargmaxabilityMonitor(every_n_steps=100, background=True)
    return fit(folder, monitor, logger=CSVLogger(folder, version="v"))


def everything(folder: Path) -> dict[str, dict[str, Any]]:
    rank, size = dist.get_rank(), dist.get_world_size()
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        TORCHELASTIC_RUN_ID="test",
        GROUP_RANK="0",
    )
    import unarg_callback.monitoring.monitor as module

    module._CREDIT = 3600.0
    return {name: scenario(name, folder) for name in SCENARIOS}


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two processes that train again and again; what each rank tells of each training."""
    folder = tmp_path_factory.mktemp("ranks")
    for name in SCENARIOS:
        (folder / name).mkdir()
    first, second = in_processes(everything, folder)
    return folder, {name: (first[name], second[name]) for name in SCENARIOS}


def test_a_check_is_divided_and_its_verdicts_are_the_same(trainings: Any) -> None:
    folder, told = trainings
    for rank in told["divided"]:
        assert rank["steps"] == [0, 5, 10, 14]
        assert rank["warm"] == [False, True, True, True]
        assert rank["status"] == rank["expected"]
    first, second = told["divided"]
    assert first["metrics"] == second["metrics"]
    assert (first["outputs"], second["outputs"]) == (2, 0)


def test_only_the_first_writes(trainings: Any) -> None:
    (logs,) = trainings[0].glob("divided/lightning_logs/v")
    assert scalar_steps(str(logs), "unarg/generator/provable") == [0, 5, 10, 14]
    lines = read_json_lines(logs / "unargmaxability.jsonl")
    assert [line["step"] for line in lines] == [0, 5, 10, 14]


def test_every_rank_can_be_resumed_from(trainings: Any) -> None:
    for rank in range(2):
        state = torch.load(trainings[0] / "divided" / f"state{rank}.pt", weights_only=True)
        monitor = UnargmaxabilityMonitor("generator")
        monitor.load_state_dict(state)
        assert [record.step for record in monitor.records] == [0, 5, 10, 14]


def test_they_stop_early_by_the_same_number(trainings: Any) -> None:
    first, second = trainings[1]["early"]
    assert first["global_step"] == second["global_step"]
    assert "unarg/generator/provable" in first["metrics"]


def test_a_failure_on_one_rank_retires_all_and_training_goes_on(trainings: Any) -> None:
    first, second = trainings[1]["failing"]
    assert first["global_step"] == second["global_step"] == 14
    assert first["retired"] == "rank 1 failed: MemoryError: no more"
    assert second["retired"] == "MemoryError: no more"
    assert first["status"] is second["status"] is None


def test_events_are_heard_once(trainings: Any) -> None:
    heard = (trainings[0] / "heard" / "heard").read_text().splitlines()
    assert heard
    assert len(set(heard)) == len(heard)


def test_nan_on_one_rank_skips_the_check_on_all(trainings: Any) -> None:
    first, second = trainings[1]["nan"]
    assert first["retired"] is second["retired"] is None
    assert first["status"] is second["status"] is None
    assert first["steps"] == second["steps"] == [0, 4, 7]


def test_in_the_background_the_first_checks_alone(trainings: Any) -> None:
    folder, told = trainings
    first, second = told["background"]
    assert first["status"] == first["expected"]
    assert first["steps"] == [0, 14]
    assert second["steps"] == []
    assert first["metrics"] == second["metrics"]
    (logs,) = folder.glob("background/lightning_logs/v")
    lines = read_json_lines(logs / "unargmaxability.jsonl")
    assert [line["step"] for line in lines] == [0, 14]


def test_a_state_that_reached_one_rank_only(trainings: Any) -> None:
    first, second = trainings[1]["state on one rank"]
    assert first["steps"][-2:] == second["steps"] == [4, 7]
    assert first["status"] == second["status"] == first["expected"]
    assert first["retired"] is second["retired"] is None
