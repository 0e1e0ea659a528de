"""What users have reported about callbacks that work every so many steps and write to loggers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import LearningRateMonitor
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger, Logger
from torch import nn

from tests.tiny_training import (
    Adversaries,
    Classifier,
    Wide,
    batches,
    events,
    scalar_steps,
    seeded,
    texts,
    trainer,
)
from unarg_callback import UnargmaxabilityMonitor, verify
from unarg_callback.monitoring.background import Background
from unarg_callback.monitoring.budget import OverheadBudget
from unarg_callback.snapshots.snapshot import find_layer, take_snapshot

pytestmark = pytest.mark.usefixtures("time_enough")


def steps_of(monitor: UnargmaxabilityMonitor) -> list[int]:
    return [record.step for record in monitor.records]


def verdicts(model: nn.Module, layer: str = "generator") -> list[int]:
    """Of a check from nothing."""
    found: list[int] = verify(take_snapshot(find_layer(model, layer))).status.tolist()
    return found


def verdicts_of(monitor: UnargmaxabilityMonitor) -> list[int]:
    assert monitor.last_report is not None
    found: list[int] = monitor.last_report.status.tolist()
    return found


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check in the background has ended when the next batch does, however busy the machine is."""
    submit = Background.submit

    def wait(self: Any, work: Any) -> None:
        submit(self, work)
        self._thread.join()

    monkeypatch.setattr(Background, "submit", wait)


class TestOnePointAStep:
    """https://github.com/Lightning-AI/pytorch-lightning/issues/4304 (and 1173)."""

    def require_one_point(self, logger: TensorBoardLogger, steps: list[int]) -> None:
        found = events(logger.log_dir)
        tags = [tag for tag in found.Tags()["scalars"] if tag.startswith("unarg")]
        assert len(tags) > 8
        for tag in tags:
            assert scalar_steps(logger.log_dir, tag) == steps
        for tag in found.Tags()["histograms"]:
            points = [event.step for event in found.Histograms(tag)]
            assert points == sorted(set(points))

    @pytest.mark.usefixtures("waited_for")
    @pytest.mark.parametrize("background", [False, True])
    @pytest.mark.parametrize(
        ("model", "options"),
        [
            (Classifier, {"accumulate_grad_batches": 3}),
            (Classifier, {"accumulate_grad_batches": 8}),
            (Adversaries, {"max_epochs": 1}),
        ],
    )
    def test_many_values_at_one_step(
        self, tmp_path: Path, model: Any, options: dict[str, Any], background: bool
    ) -> None:
        logger = TensorBoardLogger(tmp_path)
        monitor = UnargmaxabilityMonitor(every_n_steps=1, every_n_epochs=1, background=background)
        run = trainer(tmp_path, monitor, logger=logger, **options)
        run.fit(seeded(model), batches(7))
        expected = sorted(set(steps_of(monitor)))
        assert expected[0] == 0
        assert expected[-1] == run.global_step
        self.require_one_point(logger, expected)

    def test_a_last_check_that_is_made_in_two_parts_is_one_point(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first part ran out of its budget; what the tables say is what the second found."""
        monkeypatch.setattr(OverheadBudget, "allowance", property(lambda _: 0.0))
        monkeypatch.setattr(OverheadBudget, "affords", lambda _: True)
        monitor, logger = UnargmaxabilityMonitor(every_n_steps=7), TensorBoardLogger(tmp_path)
        model = seeded(Wide)
        run = trainer(tmp_path, monitor, logger=logger)
        run.fit(model, batches())
        assert steps_of(monitor) == [0, 7, 14, 14]
        assert [record.complete for record in monitor.records] == [False, False, False, True]
        self.require_one_point(logger, [0, 7, 14])
        assert verdicts_of(monitor) == verdicts(model)
        lost = int(monitor.records[-1].provable or 0)
        assert run.callback_metrics["unarg/generator/provable"] == lost
        charted = events(logger.log_dir).Scalars("unarg/generator/provable")
        assert charted[-1].value == lost
        step, table = texts(logger.log_dir, "unarg/generator/unargmaxable")[-1]
        assert step == 14
        assert f"{lost} " in table


class TestCadence:
    def test_a_task_every_so_many_global_steps_repeats_under_accumulation(
        self, tmp_path: Path
    ) -> None:
        """https://github.com/Lightning-AI/pytorch-lightning/issues/6359, 17903 and 21808.

        Seven batches by threes: the last step of an epoch has one batch.
        """
        monitor = UnargmaxabilityMonitor(every_n_steps=1)
        run = trainer(tmp_path, monitor, logger=DummyLogger(), accumulate_grad_batches=3)
        run.fit(seeded(), batches(7))
        assert run.global_step == 6
        assert steps_of(monitor) == list(range(7))

    @pytest.mark.parametrize("every", [3, 4, 5])
    def test_with_two_optimizers_a_modulus_misses_steps(self, tmp_path: Path, every: int) -> None:
        """https://github.com/Lightning-AI/pytorch-lightning/issues/17958."""
        monitor = UnargmaxabilityMonitor(every_n_steps=every)
        run = trainer(tmp_path, monitor, logger=DummyLogger(), max_epochs=1)
        run.fit(seeded(Adversaries), batches(7))
        passed = {-(-due // 2) * 2 for due in range(every, 15, every)}
        assert steps_of(monitor) == sorted({0, *passed, 14})

    @pytest.mark.parametrize("nothing", [{"limit_train_batches": 0}, {"max_steps": 0}])
    @pytest.mark.parametrize("background", [False, True])
    def test_a_training_of_no_step(
        self, tmp_path: Path, nothing: dict[str, Any], background: bool
    ) -> None:
        """Lightning calls neither on_train_start nor on_train_end."""
        monitor = UnargmaxabilityMonitor(background=background, observe=True)
        run = trainer(tmp_path, monitor, logger=DummyLogger(), **nothing)
        run.fit(seeded(), batches())
        assert steps_of(monitor) == []
        assert monitor.last_report is None
        assert monitor.monitor.retired is None

    def test_overfit_batches(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=3)
        run = trainer(tmp_path, monitor, logger=DummyLogger(), overfit_batches=2, max_epochs=4)
        run.fit(seeded(), batches())
        assert steps_of(monitor) == [0, 3, 6, 8]

    def test_hooks_run_in_the_sanity_check_and_pollute_logs(self, tmp_path: Path) -> None:
        """https://github.com/Lightning-AI/pytorch-lightning/issues/1391."""
        logger = TensorBoardLogger(tmp_path)
        monitor = UnargmaxabilityMonitor(every_n_steps=100, observe=True)
        run = trainer(tmp_path, monitor, logger=logger, num_sanity_val_steps=2, max_steps=1)
        run.fit(seeded(), batches(3), batches(3))
        assert steps_of(monitor) == [0, 1]
        # Four rows a batch: of the sanity check nothing was observed.
        assert monitor.activation_ranges["generator"].tokens == 4
        assert scalar_steps(logger.log_dir, "unarg/generator/provable") == [0, 1]

    @pytest.mark.parametrize("before", [False, True])
    def test_validate_test_and_predict_do_not_check(self, tmp_path: Path, before: bool) -> None:
        class Whole(Classifier):
            test_step = Classifier.validation_step

            def predict_step(self, batch: Any, batch_idx: int = 0) -> Any:
                return self.encoder(batch[0])

        model, monitor = seeded(Whole), UnargmaxabilityMonitor(every_n_steps=5)
        run = trainer(tmp_path, monitor, logger=CSVLogger(tmp_path))
        if not before:
            run.fit(model, batches())
        known, report = steps_of(monitor), monitor.last_report
        run.validate(model, batches(2), verbose=False)
        run.test(model, batches(2), verbose=False)
        run.predict(model, batches(2))
        assert steps_of(monitor) == known
        assert monitor.last_report is report
        if before:
            run.fit(model, batches())
            assert steps_of(monitor) == [0, 5, 10, 14]


class Recording(Logger):
    """Keeps every call of ``log_metrics``, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int | None, dict[str, float]]] = []

    @property
    def name(self) -> str:
        return "recording"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """There are none."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.calls.append((step, dict(metrics)))

    def own(self, ours: bool) -> list[tuple[int | None, dict[str, float]]]:
        """Calls of the monitor, or those of all others; none is of both."""
        told = [{tag.startswith("unarg") for tag in metrics} for _, metrics in self.calls]
        assert all(len(kinds) == 1 for kinds in told)
        return [call for call, kinds in zip(self.calls, told, strict=True) if kinds == {ours}]


class TestLoggers:
    @pytest.mark.usefixtures("waited_for")
    @pytest.mark.parametrize("background", [False, True])
    @pytest.mark.parametrize(
        ("model", "options"),
        [
            (Classifier, {"log_every_n_steps": 2}),
            (Classifier, {"accumulate_grad_batches": 3}),
            (Adversaries, {}),
        ],
    )
    def test_the_step_axis_of_other_metrics_changes(
        self, tmp_path: Path, model: Any, options: dict[str, Any], background: bool
    ) -> None:
        """https://github.com/Lightning-AI/pytorch-lightning/issues/13016 (and 4811)."""

        def fit(*callbacks: pl.Callback) -> Recording:
            logger = Recording()
            rates = LearningRateMonitor("step")
            run = trainer(tmp_path, rates, *callbacks, logger=logger, **options)
            run.fit(seeded(model), batches(), batches(2))
            return logger

        monitor = UnargmaxabilityMonitor(every_n_steps=1, background=background)
        plain, watched = fit(), fit(monitor)
        assert len(plain.calls) > 4
        assert watched.own(ours=False) == plain.calls
        assert [step for step, _ in watched.own(ours=True)] == steps_of(monitor)

    def test_what_is_found_at_the_end_can_not_be_logged(self, tmp_path: Path) -> None:
        """https://github.com/Lightning-AI/pytorch-lightning/issues/15143: no ``self.log`` there."""
        logger = Recording()
        monitor = UnargmaxabilityMonitor(every_n_steps=0, at_start=False)
        trainer(tmp_path, monitor, logger=logger).fit(seeded(), batches())
        ((step, metrics),) = logger.own(ours=True)
        assert step == 14
        assert metrics["unarg/generator/provable"] == monitor.records[-1].provable

    def test_the_logger_attribute_crashes_with_several_or_none(self, tmp_path: Path) -> None:
        """https://github.com/pyannote/pyannote-audio/pull/1244; Lightning 939."""
        recording, csv, board = Recording(), CSVLogger(tmp_path), TensorBoardLogger(tmp_path / "b")
        monitor = UnargmaxabilityMonitor(every_n_steps=7)
        run = trainer(tmp_path, monitor, logger=[recording, csv, board])
        run.fit(seeded(), batches())
        assert [step for step, _ in recording.own(ours=True)] == [0, 7, 14]
        assert "unarg/generator/provable" in Path(csv.log_dir, "metrics.csv").read_text()
        assert scalar_steps(board.log_dir, "unarg/generator/provable") == [0, 7, 14]
        alone = UnargmaxabilityMonitor(every_n_steps=7)
        with pytest.warns(UserWarning, match="has no logger"):
            trainer(tmp_path / "none", alone, logger=False).fit(seeded(), batches())
        assert alone.records[-1].provable == monitor.records[-1].provable

    @pytest.mark.parametrize("background", [False, True])
    def test_fast_dev_run_has_a_logger_without_methods(
        self, tmp_path: Path, background: bool
    ) -> None:
        """https://github.com/Lightning-AI/pytorch-lightning/issues/13203."""
        board = TensorBoardLogger(tmp_path)
        options: dict[str, Any] = {"background": background, "on_error": "raise", "observe": True}
        run = trainer(tmp_path, UnargmaxabilityMonitor(**options), logger=board, fast_dev_run=2)
        run.fit(seeded(), batches(), batches(2))
        assert run.callback_metrics["unarg/generator/potential"] >= 0
        assert list(tmp_path.iterdir()) == []
