"""The callback where a run goes wrong, stops and goes on, or has other processes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger

from tests.tiny_training import Classifier, batches, scalar_steps, seeded, texts, trainer
from unarg_callback import UnargError
from unarg_callback.callback import UnargmaxabilityMonitor

pytestmark = pytest.mark.usefixtures("time_enough")


def checked_steps(monitor: UnargmaxabilityMonitor) -> list[int]:
    return [record.step for record in monitor.records]


class TestBadWeights:
    def test_nan_is_said_once_and_training_goes_on(self, tmp_path: Path) -> None:
        class Breaking(Classifier):
            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loss = super().training_step(batch, batch_idx)
                return loss * float("nan") if self.global_step >= 4 else loss

        monitor, logger = UnargmaxabilityMonitor(every_n_steps=3), TensorBoardLogger(tmp_path)
        run = trainer(tmp_path, monitor, logger=logger)
        with pytest.warns(UserWarning, match="no check at step 6: weight has NaN") as caught:
            run.fit(seeded(Breaking), batches())
        assert sum("no check at step" in str(one.message) for one in caught) == 1
        assert run.global_step == 14
        assert [record.skipped is None for record in monitor.records] == [True] * 2 + [False] * 4
        assert scalar_steps(logger.log_dir, "unarg/generator/provable") == [0, 3]
        assert [step for step, _ in texts(logger.log_dir, "unarg/generator/unargmaxable")] == [
            0,
            3,
            6,
        ]

    def test_nan_at_the_start_is_no_reason_to_stop(self, tmp_path: Path) -> None:
        model = seeded()
        with torch.no_grad():
            model.generator.weight[0, 0] = float("nan")
        monitor = UnargmaxabilityMonitor(every_n_steps=5)
        with pytest.warns(UserWarning, match="NaN"):
            trainer(tmp_path, monitor, logger=DummyLogger()).fit(model, batches())
        assert all(record.skipped for record in monitor.records)

    def test_nan_in_an_excluded_class_does_not_matter(self, tmp_path: Path) -> None:
        class Unused(Classifier):
            def loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
                loss: torch.Tensor = self.encoder(batch[0]).square().mean()
                return loss

        model = seeded(Unused)
        with torch.no_grad():
            model.generator.weight[0, 0] = float("nan")
        monitor = UnargmaxabilityMonitor(every_n_steps=5, exclude="0")
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="UnargmaxabilityMonitor")
            trainer(tmp_path, monitor, logger=DummyLogger()).fit(model, batches())
        assert monitor.records[-1].excluded == 1


class TestResume:
    def test_cadence_and_history_go_on(self, tmp_path: Path) -> None:
        whole = UnargmaxabilityMonitor(every_n_steps=4)
        trainer(tmp_path, whole, logger=DummyLogger(), max_epochs=3).fit(seeded(), batches())

        path = self.train_and_save(tmp_path, epochs=2)
        resumed = UnargmaxabilityMonitor(every_n_steps=4)
        run = trainer(tmp_path, resumed, logger=DummyLogger(), max_epochs=3)
        run.fit(seeded(), batches(), ckpt_path=path)
        # The first run ended at 14, with a check that the whole run had no reason for.
        assert [step for step in checked_steps(resumed) if step != 14] == checked_steps(whole)
        assert resumed.last_report is not None
        assert whole.last_report is not None
        assert resumed.last_report.status.tolist() == whole.last_report.status.tolist()
        since, expected = (m.heads["generator"].provable_since for m in (resumed, whole))
        assert since.keys() == expected.keys()

    def test_the_checkpoint_loads_without_pickle(self, tmp_path: Path) -> None:
        path = self.train_and_save(tmp_path, epochs=2)
        checkpoint = torch.load(path, weights_only=True)
        (state,) = [
            state for key, state in checkpoint["callbacks"].items() if "Unargmaxability" in key
        ]
        assert [record["step"] for record in state["heads"]["generator"]["records"]] == [
            0,
            4,
            8,
            12,
        ]

    def test_a_checkpoint_of_a_run_without_the_monitor(self, tmp_path: Path) -> None:
        path = self.train_and_save(tmp_path, epochs=1, monitored=False)
        monitor = UnargmaxabilityMonitor(every_n_steps=10)
        run = trainer(tmp_path, monitor, logger=DummyLogger(), max_epochs=3)
        run.fit(seeded(), batches(), ckpt_path=path)
        assert checked_steps(monitor) == [7, 10, 20, 21]

    def train_and_save(self, folder: Path, epochs: int, monitored: bool = True) -> Path:
        save = ModelCheckpoint(folder / "saved", save_last=True, every_n_epochs=1)
        callbacks = [save, *([UnargmaxabilityMonitor(every_n_steps=4)] if monitored else [])]
        run = trainer(
            folder, *callbacks, logger=DummyLogger(), max_epochs=epochs, enable_checkpointing=True
        )
        run.fit(seeded(), batches())
        return folder / "saved" / "last.ckpt"


class TestWhatMustNotEndARun:
    def test_a_check_that_fails_is_one_warning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError("out of memory")

        monkeypatch.setattr(
            "unarg_callback.monitoring.head_monitor.IncrementalVerifier.update", fail
        )
        monitor = UnargmaxabilityMonitor(every_n_steps=3)
        run = trainer(tmp_path, monitor, logger=DummyLogger())
        with pytest.warns(UserWarning, match="RuntimeError: out of memory") as caught:
            run.fit(seeded(), batches())
        assert sum("out of memory" in str(one.message) for one in caught) == 1
        assert run.global_step == 14
        assert monitor.last_report is None

    def test_a_table_that_can_not_be_written_is_one_warning(self, tmp_path: Path) -> None:
        logger = CSVLogger(tmp_path)
        (Path(logger.log_dir) / "unargmaxable-generator.md").mkdir(parents=True)
        monitor = UnargmaxabilityMonitor(every_n_steps=3)
        with pytest.warns(UserWarning, match="LoggerOutput can't write what was found"):
            trainer(tmp_path, monitor, logger=logger).fit(seeded(), batches())
        assert monitor.last_report is not None

    def test_no_report_stands_for_weights_that_were_not_checked(self, tmp_path: Path) -> None:
        class Breaking(Classifier):
            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loss = super().training_step(batch, batch_idx)
                return loss * float("nan") if self.global_step >= 4 else loss

        monitor = UnargmaxabilityMonitor(every_n_steps=3)
        with pytest.warns(UserWarning, match="NaN"):
            trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(Breaking), batches())
        assert monitor.last_report is None
        assert monitor.records[0].skipped is None


class TestRefusedAtTheStart:
    @pytest.mark.parametrize("device", ["meta", "no such device", "cuda:99"])
    def test_a_device_that_can_not_compute(self, tmp_path: Path, device: str) -> None:
        monitor = UnargmaxabilityMonitor(device=device)
        with pytest.raises(UnargError, match="can't be used"):
            trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(), batches())

    def test_two_monitors_for_one_tag(self, tmp_path: Path) -> None:
        both = [UnargmaxabilityMonitor(), UnargmaxabilityMonitor("generator", domain="box:1")]
        with pytest.raises(UnargError, match="two monitors write to unarg/generator"):
            trainer(tmp_path, *both, logger=DummyLogger()).fit(seeded(), batches())
