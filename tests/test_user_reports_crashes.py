"""What users have reported about callbacks in trainings that crash, or are begun again."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning.callbacks import OnExceptionCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger
from torch import nn

from tests.test_user_reports import steps_of, verdicts, verdicts_of
from tests.tiny_training import (
    CLASSES,
    DIM,
    Classifier,
    batches,
    events,
    scalar_steps,
    seeded,
    trainer,
)
from unarg_callback import UnargmaxabilityMonitor
from unarg_callback.dashboards.json_lines import read_json_lines
from unarg_callback.incremental import IncrementalVerifier

pytestmark = [
    pytest.mark.usefixtures("time_enough"),
    # A check in the background of a run this short is late.
    pytest.mark.filterwarnings("ignore:UnargmaxabilityMonitor. the check due"),
]

ROOT = Path(__file__).parent.parent


class Crashing(Classifier):
    """Raises in the middle of a training."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause: BaseException | None = cause

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.global_step == 6 and self.cause is not None:
            raise self.cause
        return super().training_step(batch, batch_idx)


class TestCrashes:
    @pytest.mark.parametrize("background", [False, True])
    @pytest.mark.parametrize("cause", [KeyboardInterrupt(), RuntimeError("a bad batch")])
    def test_what_was_found_is_kept_and_nothing_runs_on(
        self, tmp_path: Path, cause: BaseException, background: bool
    ) -> None:
        """teardown is not called after an exception, on_exception is."""
        logger = TensorBoardLogger(tmp_path)
        monitor = UnargmaxabilityMonitor(every_n_steps=3, background=background, observe=True)
        model = seeded(Crashing, cause)
        run = trainer(tmp_path, monitor, logger=logger)
        expected = SystemExit if isinstance(cause, KeyboardInterrupt) else RuntimeError
        with pytest.raises(expected):
            run.fit(model, batches())
        assert not [one for one in threading.enumerate() if one.name == "unarg_callback"]
        steps = steps_of(monitor)
        assert steps[0] == 0
        assert background or steps == [0, 3, 6]
        # Read before anything is closed by this process.
        assert scalar_steps(logger.log_dir, "unarg/generator/provable") == steps
        assert [line["step"] for line in read_json_lines(logger.log_dir)] == steps
        assert not model.generator._forward_pre_hooks
        assert all(parameter.requires_grad for parameter in model.parameters())
        # The same objects go on.
        model.cause = None
        more = trainer(tmp_path, monitor, logger=DummyLogger(), max_steps=5)
        more.fit(model, batches())
        assert steps_of(monitor)[-1] == 5
        assert verdicts_of(monitor) == verdicts(model)

    @pytest.mark.parametrize("background", [False, True])
    def test_a_checkpoint_on_exception(self, tmp_path: Path, background: bool) -> None:
        save = OnExceptionCheckpoint(tmp_path)
        options: dict[str, Any] = {"logger": DummyLogger(), "enable_checkpointing": True}
        monitor = UnargmaxabilityMonitor(every_n_steps=3, background=background)
        run = trainer(tmp_path, save, monitor, **options)
        with pytest.raises(RuntimeError, match="a bad batch"):
            run.fit(seeded(Crashing, RuntimeError("a bad batch")), batches())
        known = steps_of(monitor)
        again = UnargmaxabilityMonitor(every_n_steps=3, background=background)
        model = seeded()
        file = tmp_path / "on_exception.ckpt"
        trainer(tmp_path, again, **options).fit(model, batches(), ckpt_path=file, weights_only=True)
        # What the interrupted training had found is there, the last of it included.
        assert steps_of(again)[: len(known)] == known
        assert steps_of(again)[-1] == 14
        assert verdicts_of(again) == verdicts(model)

    def test_an_interrupt_during_a_check(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        update = IncrementalVerifier.update
        calls: list[int] = []

        def interrupted(self: Any, *arguments: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return update(self, *arguments, **options)

        monkeypatch.setattr(IncrementalVerifier, "update", interrupted)
        logger, model = TensorBoardLogger(tmp_path), seeded()
        monitor = UnargmaxabilityMonitor(every_n_steps=3)
        save = OnExceptionCheckpoint(tmp_path)
        run = trainer(tmp_path, monitor, save, logger=logger, enable_checkpointing=True)
        with pytest.raises(SystemExit):
            run.fit(model, batches())
        assert scalar_steps(logger.log_dir, "unarg/generator/provable") == [0, 3]
        again = UnargmaxabilityMonitor(every_n_steps=3)
        more = trainer(tmp_path, again, logger=DummyLogger())
        more.fit(seeded(), batches(), ckpt_path=tmp_path / "on_exception.ckpt")
        assert steps_of(again)[:2] == [0, 3]
        assert steps_of(again)[-1] == 14

    def test_control_c_ends_the_process(self, tmp_path: Path) -> None:
        """https://github.com/pytorch/pytorch/issues/17199, 40403: threads, forks and a process that
        doesn't end. The signal comes while the check of step 4 runs in its thread.
        """
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=300,
        )
        assert done.returncode == 1, done.stderr
        assert "trained on after step 4" in done.stdout
        assert "Traceback" not in done.stderr
        (folder,) = tmp_path.glob("lightning_logs/version_*")
        assert scalar_steps(str(folder), "unarg/generator/provable") == [0, 4]
        assert [line["step"] for line in read_json_lines(folder)] == [0, 4]


INTERRUPTED = """
import os, signal, sys, threading
from pathlib import Path
from pytorch_lightning.loggers import TensorBoardLogger
from tests.tiny_training import Classifier, batches, seeded, trainer
from unarg_callback import UnargmaxabilityMonitor
from unarg_callback.incremental import IncrementalVerifier

# A shell starts what runs in the background without it.
signal.signal(signal.SIGINT, signal.default_int_handler)
update, monitor = IncrementalVerifier.update, None
released = threading.Event()

def slow(self, *arguments, **options):
    if threading.current_thread() is not threading.main_thread() and monitor.records:
        released.wait()
    return update(self, *arguments, **options)

IncrementalVerifier.update = slow

class Interrupted(Classifier):
    def training_step(self, batch, batch_idx):
        while not monitor.records:  # The check of step 0 has ended.
            monitor.monitor._collect(wait=True)
        if self.global_step == 6:
            print("trained on after step 4", flush=True)
            threading.Timer(0.5, released.set).start()
            os.kill(os.getpid(), signal.SIGINT)
        return super().training_step(batch, batch_idx)

folder = Path(sys.argv[1])
monitor = UnargmaxabilityMonitor(every_n_steps=4, background=True)
run = trainer(folder, monitor, logger=TensorBoardLogger(folder))
run.fit(seeded(Interrupted), batches(2000))
"""


class Sized(Classifier):
    """Has so many classes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.generator = nn.Linear(DIM, classes)

    def loss(self, batch: Any) -> Any:
        return super().loss((batch[0], batch[1] % self.generator.out_features))


class TestFitAgain:
    def test_the_same_trainer_trains_on(self, tmp_path: Path) -> None:
        logger, model = TensorBoardLogger(tmp_path), seeded()
        monitor = UnargmaxabilityMonitor(every_n_steps=5)
        run = trainer(tmp_path, monitor, logger=logger)
        run.fit(model, batches())
        run.fit(model, batches())
        assert steps_of(monitor) == [0, 5, 10, 14]
        run.fit_loop.max_epochs = 4
        run.fit(model, batches())
        assert steps_of(monitor) == [0, 5, 10, 14, 15, 20, 25, 28]
        written = scalar_steps(logger.log_dir, "unarg/generator/provable")
        assert sorted(written) == steps_of(monitor)
        assert verdicts_of(monitor) == verdicts(model)
        layouts = events(logger.log_dir).Tensors("custom_scalars__config__")
        assert len(layouts) == 2  # One a training.

    def test_another_model_of_another_size(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=5, on_error="raise")
        for size in (CLASSES, CLASSES + 3, CLASSES - 3):
            model = seeded(Sized, size)
            trainer(tmp_path, monitor, logger=DummyLogger()).fit(model, batches())
            assert monitor.records[-1].classes == size
            assert verdicts_of(monitor) == verdicts(model)


def spawned(folder: Path) -> tuple[list[int], Any]:
    monitor = UnargmaxabilityMonitor(every_n_steps=5)
    options: dict[str, Any] = {"strategy": "ddp_spawn", "devices": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = trainer(folder, monitor, logger=TensorBoardLogger(folder), **options)
        run.fit(seeded(), batches())
    return steps_of(monitor), dict(run.callback_metrics)


def test_what_changes_in_spawned_processes_is_lost(tmp_path: Path) -> None:
    """https://github.com/Lightning-AI/pytorch-lightning/issues/14075: it pickles, and what was
    found is on disk.
    """
    steps, metrics = spawned(tmp_path)
    assert steps == []
    assert "unarg/generator/provable" in metrics
    (folder,) = tmp_path.glob("lightning_logs/version_*")
    assert [line["step"] for line in read_json_lines(folder)] == [0, 5, 10, 14]
    assert scalar_steps(str(folder), "unarg/generator/provable") == [0, 5, 10, 14]
