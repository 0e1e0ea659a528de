"""What the callback does with proofs, time and events from one check to the next."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger

from tests import tiny_training
from tests.independent import check_proofs
from tests.tiny_training import Wide, batches, events, scalar_steps, seeded, texts
from unarg_callback import OutputLayer, Report, Status, UnargmaxabilityMonitor, verify
from unarg_callback.incremental import IncrementalVerifier
from unarg_callback.monitoring.budget import OverheadBudget
from unarg_callback.monitoring.events import Event

ROOT = Path(__file__).parent.parent
HEAD = "generator"


def trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    """A quiet trainer that logs to nowhere unless told."""
    return tiny_training.trainer(folder, *callbacks, **{"logger": DummyLogger(), **options})


def final_layer(model: Any) -> OutputLayer:
    return OutputLayer(model.generator.weight.detach(), model.generator.bias.detach())


def notify(event: Event) -> None:
    """What an import path leads to."""
    HEARD.append(event)


HEARD: list[Event] = []


class TestReuse:
    def test_checks_after_the_first_are_warm_and_right(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=2, max_overhead=None)
        model = seeded()
        trainer(tmp_path, monitor, logger=TensorBoardLogger(tmp_path)).fit(model, batches())
        assert [record.warm for record in monitor.records] == [False] + 7 * [True]
        layer = final_layer(model)
        report = monitor.last_report
        assert report is not None
        assert report.status.tolist() == verify(layer).status.tolist()
        assert layer.bias is not None
        check_proofs(vars(report.proofs), layer.weight.numpy(), layer.bias.numpy())

    def test_the_first_check_after_a_resume_is_warm(self, tmp_path: Path) -> None:
        save = ModelCheckpoint(tmp_path / "saved", save_last=True, every_n_train_steps=6)
        first = UnargmaxabilityMonitor(every_n_steps=4, max_overhead=None)
        run = trainer(tmp_path, first, save, enable_checkpointing=True, max_steps=8, max_epochs=-1)
        run.fit(seeded(), batches())
        second = UnargmaxabilityMonitor(every_n_steps=4, max_overhead=None)
        model = seeded()
        again = trainer(tmp_path, second, max_steps=12, max_epochs=-1)
        again.fit(model, batches(), ckpt_path=tmp_path / "saved" / "last.ckpt")
        new = [record for record in second.records if record.step > 6]
        assert [(record.step, record.warm) for record in new] == [(8, True), (12, True)]
        report = second.last_report
        assert report is not None
        assert report.status.tolist() == verify(final_layer(model)).status.tolist()

    def test_killed_in_a_check_and_resumed(self, tmp_path: Path) -> None:
        def script(killed: bool) -> subprocess.CompletedProcess[str]:
            code = KILLED.format(folder=str(tmp_path), killed=killed)
            return subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
            )

        assert script(killed=True).returncode == -signal.SIGKILL
        resumed = script(killed=False)
        assert resumed.returncode == 0, resumed.stderr
        assert "resumed from step 14, checks after it at [15, 18, 21]" in resumed.stdout
        model = seeded()
        whole = UnargmaxabilityMonitor(every_n_steps=3, max_overhead=None)
        trainer(tmp_path, whole, max_epochs=3).fit(model, batches())
        found = np.load(tmp_path / "status.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "weight.npy"), model.generator.weight.data)
        assert whole.last_report is not None
        np.testing.assert_array_equal(found, whole.last_report.status)

    def test_what_was_found_can_be_monitored_from_the_first_step_after_a_resume(
        self, tmp_path: Path
    ) -> None:
        def run(steps: int) -> Trainer:
            stop = EarlyStopping(
                f"unarg/{HEAD}/provable", patience=100, check_on_train_epoch_end=True
            )
            monitor = UnargmaxabilityMonitor(every_n_steps=6)
            return trainer(tmp_path, monitor, stop, max_steps=steps, max_epochs=-1)

        first = run(10)
        first.fit(seeded(), batches(7))
        first.save_checkpoint(tmp_path / "last.ckpt")
        again = run(16)
        again.fit(seeded(), batches(3), ckpt_path=tmp_path / "last.ckpt")
        assert again.global_step == 16


KILLED = """
import os, signal
import numpy as np
from pathlib import Path
from pytorch_lightning.callbacks import ModelCheckpoint
from tests.tiny_training import batches, seeded, trainer
from unarg_callback import UnargmaxabilityMonitor
from unarg_callback.search.renewal import Renewal

folder, killed = Path({folder!r}), {killed!r}
if killed:
    run, calls = Renewal.run, []

    def kill(self, urgency):
        calls.append(1)
        if len(calls) == 6:  # the check of step 18: the one of step 0 is not a renewal
            os.kill(os.getpid(), signal.SIGKILL)
        run(self, urgency)

    Renewal.run = kill
save = ModelCheckpoint(folder / "saved", save_last=True, every_n_epochs=1)
monitor = UnargmaxabilityMonitor(every_n_steps=3, max_overhead=None)
model = seeded()
last = folder / "saved" / "last.ckpt"
training = trainer(folder, monitor, save, enable_checkpointing=True, max_epochs=3)
training.fit(model, batches(), ckpt_path=last if last.exists() else None)
print("resumed from step 14, checks after it at", [r.step for r in monitor.records if r.step > 14])
np.save(folder / "status.npy", monitor.last_report.status)
np.save(folder / "weight.npy", model.generator.weight.detach().numpy())
"""


class TestBudget:
    @staticmethod
    def slow(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        update = IncrementalVerifier.update

        def wait(self: IncrementalVerifier, layer: OutputLayer, **options: Any) -> Report:
            time.sleep(seconds)
            return update(self, layer, **options)

        monkeypatch.setattr(IncrementalVerifier, "update", wait)

    def test_checks_that_cost_too_much_are_thinned_out_and_it_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.slow(monkeypatch, 0.6)
        monitor = UnargmaxabilityMonitor(every_n_steps=2)
        with pytest.warns(UserWarning, match="due at step 2 was made at step 14") as caught:
            trainer(tmp_path, monitor, logger=TensorBoardLogger(tmp_path)).fit(seeded(), batches())
        assert [(record.due, record.step) for record in monitor.records] == [(0, 0), (2, 14)]
        assert sum("thinned out" in str(one.message) for one in caught) == 1

    def test_how_late_is_on_a_chart(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slow(monkeypatch, 0.6)
        logger = TensorBoardLogger(tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            trainer(tmp_path, UnargmaxabilityMonitor(every_n_steps=2), logger=logger).fit(
                seeded(), batches()
            )
        late = events(logger.log_dir).Scalars(f"unarg_cost/{HEAD}/late_steps")
        assert [(event.step, event.value) for event in late] == [(0, 0.0), (14, 12.0)]

    def test_no_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slow(monkeypatch, 0.6)
        monitor = UnargmaxabilityMonitor(every_n_steps=7, max_overhead=None)
        trainer(tmp_path, monitor).fit(seeded(), batches())
        assert [record.step for record in monitor.records] == [0, 7, 14]

    @pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
    def test_no_such_share(self, share: float) -> None:
        with pytest.raises(ValueError, match="max_overhead"):
            UnargmaxabilityMonitor(max_overhead=share)

    def test_the_last_check_finishes_what_the_budget_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=14, time_limit=None)
        monkeypatch.setattr(OverheadBudget, "allowance", property(lambda _: 0.0))
        monkeypatch.setattr(OverheadBudget, "affords", lambda _: True)
        model = seeded(Wide)
        trainer(tmp_path, monitor).fit(model, batches())
        assert [record.complete for record in monitor.records] == [False, False, True]
        assert [record.step for record in monitor.records] == [0, 14, 14]
        report = monitor.last_report
        assert report is not None
        assert report.status.tolist() == verify(final_layer(model)).status.tolist()


class TestEvents:
    @pytest.fixture
    def moving(self) -> Any:
        """A model that loses classes in training."""
        return seeded()

    def test_a_function_hears_of_each(self, tmp_path: Path, moving: Any) -> None:
        heard: list[Event] = []
        monitor = UnargmaxabilityMonitor(every_n_steps=1, max_overhead=None, on_event=heard.append)
        trainer(tmp_path, monitor, max_epochs=6).fit(moving, batches())
        lost = [index for event in heard if event.kind == "unargmaxable" for index in event.classes]
        assert lost
        assert sum(record.lost for record in monitor.records) == len(lost)
        assert all(event.head == HEAD for event in heard)

    def test_an_import_path(self, tmp_path: Path, moving: Any) -> None:
        HEARD.clear()
        monitor = UnargmaxabilityMonitor(
            every_n_steps=1, max_overhead=None, on_event="tests.test_callback_incremental:notify"
        )
        trainer(tmp_path, monitor, max_epochs=6).fit(moving, batches())
        assert HEARD

    def test_stop(self, tmp_path: Path, moving: Any) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=1, max_overhead=None, on_event="stop")
        run = trainer(tmp_path, monitor, max_epochs=6)
        run.fit(moving, batches())
        assert run.global_step < 42
        assert monitor.records[-1].lost + monitor.records[-2].lost > 0

    def test_log(self, tmp_path: Path, moving: Any, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "unarg_callback")
        monitor = UnargmaxabilityMonitor(every_n_steps=1, max_overhead=None)
        trainer(tmp_path, monitor, max_epochs=6).fit(moving, batches())
        assert any("became provably unargmaxable" in text for text in caplog.messages)

    def test_nan(self, tmp_path: Path, moving: Any) -> None:
        heard: list[Event] = []
        with torch.no_grad():
            moving.generator.weight[3] = torch.nan
        monitor = UnargmaxabilityMonitor(every_n_steps=7, on_event=heard.append)
        with pytest.warns(UserWarning, match="NaN or inf"):
            trainer(tmp_path, monitor).fit(moving, batches())
        assert [(event.kind, event.step) for event in heard] == [
            ("not_finite", 0),
            ("not_finite", 7),
            ("not_finite", 14),
        ]


class TestEarlyWarning:
    def test_who_is_at_risk_is_shown_with_leads(self, tmp_path: Path) -> None:
        logger = TensorBoardLogger(tmp_path)
        names = [f"token{index}" for index in range(12)]
        monitor = UnargmaxabilityMonitor(every_n_steps=7, labels=names)
        trainer(tmp_path, monitor, logger=logger).fit(seeded(), batches())
        assert scalar_steps(logger.log_dir, f"unarg_lead/{HEAD}/min") == [0, 7, 14]
        step, text = texts(logger.log_dir, f"unarg/{HEAD}/at_risk")[-1]
        assert step == 14
        report = monitor.last_report
        assert report is not None
        alive = report.ids(Status.ARGMAXABLE)
        lowest = alive[np.argsort(report.lead[alive])][0]
        listed = text[text.index("| class") :].splitlines()[2:]
        assert len(listed) == len(alive)
        assert any(f"| {lowest} | token{lowest} |" in line for line in listed[:2])
