"""The callback in real training runs, read back from what the loggers wrote."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger
from torch import nn

from tests.tiny_training import (
    CLASSES,
    DIM,
    FEATURES,
    Adversaries,
    Classifier,
    batches,
    events,
    scalar_steps,
    seeded,
    texts,
    trainer,
)
from unarg_callback.callback import UnargmaxabilityMonitor
from unarg_callback.errors import DomainError, LayerError, UnargError
from unarg_callback.snapshots.snapshot import find_layer, take_snapshot
from unarg_callback.verification import verify

pytestmark = pytest.mark.usefixtures("time_enough")

NAMES = [f"word{index}" for index in range(CLASSES)]


def checked_steps(monitor: UnargmaxabilityMonitor) -> list[int]:
    return [record.step for record in monitor.records]


class TestWhatIsWritten:
    def test_scalars_and_table_in_tensorboard(self, tmp_path: Path) -> None:
        model, monitor = seeded(), UnargmaxabilityMonitor(every_n_steps=5, labels=NAMES)
        logger = TensorBoardLogger(tmp_path)
        trainer(tmp_path, monitor, logger=logger).fit(model, batches())
        kinds = ("potential", "provable", "undecided", "duplicates")
        tags = [f"unarg/generator/{kind}" for kind in kinds]
        tags += [f"unarg_cost/generator/{kind}" for kind in ("seconds", "reflections")]
        assert all(scalar_steps(logger.log_dir, tag) == [0, 5, 10, 14] for tag in tags)
        found = [
            int(event.value) for event in events(logger.log_dir).Scalars("unarg/generator/provable")
        ]
        assert found == [record.provable for record in monitor.records]
        assert found[-1] > 0
        first_step, first_table = texts(logger.log_dir, "unarg/generator/unargmaxable")[0]
        assert first_step == 0
        assert "| class | token | status | since step | beaten by |" in first_table
        assert "word" in first_table

    def test_the_last_report_is_that_of_the_final_weights(self, tmp_path: Path) -> None:
        model, monitor = seeded(), UnargmaxabilityMonitor("generator", every_n_steps=5)
        trainer(tmp_path, monitor, logger=CSVLogger(tmp_path)).fit(model, batches())
        again = verify(take_snapshot(find_layer(model, "generator")), "box:100")
        assert monitor.last_report is not None
        assert monitor.last_report.status.tolist() == again.status.tolist()

    def test_the_table_is_written_only_when_it_changes(self, tmp_path: Path) -> None:
        monitor, logger = UnargmaxabilityMonitor(every_n_steps=1), TensorBoardLogger(tmp_path)
        still = seeded(Classifier, 0.0)
        trainer(tmp_path, monitor, logger=logger).fit(still, batches())
        assert checked_steps(monitor) == list(range(15))
        assert [step for step, _ in texts(logger.log_dir, "unarg/generator/unargmaxable")] == [0]

    def test_csv_logger_gets_scalars_and_a_file(self, tmp_path: Path) -> None:
        monitor, logger = UnargmaxabilityMonitor(every_n_steps=5, name="a/b"), CSVLogger(tmp_path)
        trainer(tmp_path, monitor, logger=logger).fit(seeded(), batches())
        metrics = Path(logger.log_dir, "metrics.csv").read_text()
        assert "unarg/a/b/provable" in metrics
        table = Path(logger.log_dir, "unargmaxable-a_b.md").read_text(encoding="utf-8")
        assert table.startswith("Step 14: ")

    def test_a_logger_with_log_text_gets_the_rows(self, tmp_path: Path) -> None:
        class TextLogger(CSVLogger):
            calls: list[dict[str, Any]] = []  # noqa: RUF012

            def log_text(self, **arguments: Any) -> None:
                self.calls.append(arguments)

        logger = TextLogger(tmp_path)
        monitor = UnargmaxabilityMonitor(every_n_steps=100, labels=NAMES, at_start=False)
        trainer(tmp_path, monitor, logger=logger).fit(seeded(), batches())
        tables = {call["key"]: call for call in logger.calls}
        assert set(tables) == {"unarg/generator/unargmaxable", "unarg/generator/at_risk"}
        assert all(call["step"] == 14 for call in logger.calls)
        lost = tables["unarg/generator/unargmaxable"]
        assert lost["columns"] == ["class", "token", "status", "since step", "beaten by"]
        assert all(len(row) == 5 for row in lost["data"])
        risky = tables["unarg/generator/at_risk"]
        assert risky["columns"] == ["class", "token", "lead, % of range", "change a check"]
        assert risky["data"]

    def test_several_loggers(self, tmp_path: Path) -> None:
        loggers = [TensorBoardLogger(tmp_path / "a"), TensorBoardLogger(tmp_path / "b")]
        monitor = UnargmaxabilityMonitor(every_n_steps=7)
        trainer(tmp_path, monitor, logger=loggers).fit(seeded(), batches())
        for logger in loggers:
            assert scalar_steps(logger.log_dir, "unarg/generator/provable") == [0, 7, 14]

    def test_no_logger_is_said_once_and_works(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=2)
        with pytest.warns(UserWarning, match="has no logger") as caught:
            trainer(tmp_path, monitor).fit(seeded(), batches())
        assert sum("has no logger" in str(one.message) for one in caught) == 1
        assert checked_steps(monitor) == [0, 2, 4, 6, 8, 10, 12, 14]

    def test_values_are_in_the_callback_metrics(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=5)
        run = trainer(tmp_path, monitor, logger=DummyLogger())
        run.fit(seeded(), batches())
        value = run.callback_metrics["unarg/generator/provable"]
        assert value == monitor.records[-1].provable

    def test_early_stopping_can_watch_it(self, tmp_path: Path) -> None:
        stop = EarlyStopping("unarg/generator/provable", patience=1, mode="min")
        monitor = UnargmaxabilityMonitor(every_n_steps=10)
        run = trainer(tmp_path, stop, monitor, logger=DummyLogger(), max_epochs=30)
        run.fit(seeded(Classifier, 0.0), batches(10), batches(2))
        assert run.global_step == 20

    def test_nothing_is_printed(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        run = trainer(tmp_path, UnargmaxabilityMonitor(every_n_steps=1), logger=DummyLogger())
        capfd.readouterr()
        run.fit(seeded(), batches())
        captured = capfd.readouterr()
        assert "unarg" not in (captured.out + captured.err).lower()


class TestCadence:
    def test_accumulated_batches_are_one_step(self, tmp_path: Path) -> None:
        monitor, logger = UnargmaxabilityMonitor(every_n_steps=2), TensorBoardLogger(tmp_path)
        run = trainer(tmp_path, monitor, logger=logger, accumulate_grad_batches=3, max_epochs=3)
        run.fit(seeded(), batches(7))
        assert run.global_step == 9
        assert scalar_steps(logger.log_dir, "unarg/generator/provable") == [0, 2, 4, 6, 8, 9]

    @pytest.mark.parametrize(("every", "steps"), [(5, [0, 6, 10, 14]), (3, [0, 4, 6, 10, 12, 14])])
    def test_two_optimizers(self, tmp_path: Path, every: int, steps: list[int]) -> None:
        monitor, logger = UnargmaxabilityMonitor(every_n_steps=every), TensorBoardLogger(tmp_path)
        run = trainer(tmp_path, monitor, logger=logger, max_epochs=1)
        run.fit(seeded(Adversaries), batches(7))
        assert run.global_step == 14
        assert scalar_steps(logger.log_dir, "unarg/generator/provable") == steps

    def test_the_final_step_is_not_checked_twice(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=7)
        trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(), batches(7))
        assert checked_steps(monitor) == [0, 7, 14]

    @pytest.mark.parametrize("every", [0, 1000])
    def test_only_at_the_end(self, tmp_path: Path, every: int) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=every, at_start=False)
        trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(), batches(7))
        assert checked_steps(monitor) == [14]

    def test_sanity_checks_and_validation_are_left_alone(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=6)
        run = trainer(tmp_path, monitor, logger=DummyLogger(), val_check_interval=1)
        run.fit(seeded(), batches(7), batches(2))
        assert checked_steps(monitor) == [0, 6, 12, 14]
        run.validate(seeded(), batches(2), verbose=False)
        assert checked_steps(monitor) == [0, 6, 12, 14]

    def test_fast_dev_run(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor()
        run = trainer(tmp_path, monitor, fast_dev_run=True, logger=CSVLogger(tmp_path))
        run.fit(seeded(), batches())
        assert checked_steps(monitor) == [0, 1]
        assert list(tmp_path.iterdir()) == []

    def test_a_second_fit_with_a_new_trainer_begins_again(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=6)
        for _ in range(2):
            run = trainer(tmp_path, monitor, logger=DummyLogger(), max_epochs=1)
            run.fit(seeded(), batches(7))
        assert checked_steps(monitor) == [0, 6, 7, 0, 6, 7]
        assert set(monitor.heads["generator"].provable_since.values()) <= {0, 6, 7}
        assert monitor.records[3].appeared == monitor.records[3].provable


class TestNothingIsDisturbed:
    def run(self, folder: Path, *callbacks: pl.Callback) -> tuple[Classifier, torch.Tensor]:
        model = seeded(Dropping)
        run = trainer(folder, *callbacks, logger=CSVLogger(folder))
        run.fit(model, batches(), batches(2))
        return model, torch.random.get_rng_state()

    def test_the_same_losses_weights_and_random_state(self, tmp_path: Path) -> None:
        plain, state_plain = self.run(tmp_path / "a")
        watched, state_watched = self.run(tmp_path / "b", UnargmaxabilityMonitor(every_n_steps=1))
        assert plain.losses == watched.losses
        assert torch.equal(state_plain, state_watched)
        for before, after in zip(plain.parameters(), watched.parameters(), strict=True):
            assert torch.equal(before, after)

    def test_modes_stay_as_they_were(self, tmp_path: Path) -> None:
        modes = Modes()
        monitor = UnargmaxabilityMonitor(every_n_steps=1)
        trainer(tmp_path, monitor, modes, logger=DummyLogger()).fit(seeded(), batches())
        assert set(modes.seen) == {(True, True, torch.float32)}

    def test_parameters_still_want_gradients(self, tmp_path: Path) -> None:
        model = seeded()
        monitor = UnargmaxabilityMonitor(every_n_steps=1)
        trainer(tmp_path, monitor, logger=DummyLogger()).fit(model, batches())
        assert all(parameter.requires_grad for parameter in model.parameters())


class Dropping(Classifier):
    """Draws random numbers at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, DIM), nn.Dropout(0.5))


class Modes(pl.Callback):
    """Notes the modes after each batch; it comes after the monitor."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, bool, torch.dtype]] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
    ) -> None:
        self.seen.append((pl_module.training, torch.is_grad_enabled(), torch.get_default_dtype()))


class TestLayers:
    def test_layers_made_in_configure_model(self, tmp_path: Path) -> None:
        class Late(Classifier):
            def __init__(self) -> None:
                super().__init__()
                del self.generator

            def configure_model(self) -> None:
                if not hasattr(self, "generator"):
                    self.generator = nn.Linear(DIM, CLASSES)

        monitor = UnargmaxabilityMonitor("generator")
        trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(Late), batches())
        assert checked_steps(monitor) == [0, 14]

    def test_a_compiled_layer_keeps_its_name(self, tmp_path: Path) -> None:
        model, logger = seeded(), TensorBoardLogger(tmp_path)
        model.generator = torch.compile(model.generator, backend="eager")
        trainer(tmp_path, UnargmaxabilityMonitor(), logger=logger).fit(model, batches(2))
        assert "unarg/generator/provable" in events(logger.log_dir).Tags()["scalars"]

    def test_two_heads(self, tmp_path: Path) -> None:
        model, logger = seeded(TwoHeads), TensorBoardLogger(tmp_path)
        monitors = [
            UnargmaxabilityMonitor("generator", every_n_steps=4),
            UnargmaxabilityMonitor("second", every_n_steps=6, exclude="0,2-3", name="tags"),
        ]
        trainer(tmp_path, *monitors, logger=logger).fit(model, batches())
        assert scalar_steps(logger.log_dir, "unarg/generator/provable") == [0, 4, 8, 12, 14]
        assert scalar_steps(logger.log_dir, "unarg/tags/provable") == [0, 6, 12, 14]
        assert [monitor.records[-1].excluded for monitor in monitors] == [0, 3]

    def test_two_heads_and_no_name_given(self, tmp_path: Path) -> None:
        run = trainer(tmp_path, UnargmaxabilityMonitor(), logger=DummyLogger())
        with pytest.raises(LayerError, match=r"2 linear layers .*'second' .*'generator'"):
            run.fit(seeded(TwoHeads), batches())

    def test_a_wrong_name_stops_the_run_before_it_starts(self, tmp_path: Path) -> None:
        model = seeded()
        run = trainer(tmp_path, UnargmaxabilityMonitor("head"), logger=DummyLogger())
        with pytest.raises(LayerError, match="no attribute 'head'.*'generator'"):
            run.fit(model, batches())
        assert model.losses == []

    def test_a_tied_embedding(self, tmp_path: Path) -> None:
        class Tied(Classifier):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(CLASSES, DIM)
                self.generator.weight = self.embedding.weight

        monitor = UnargmaxabilityMonitor()
        trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(Tied), batches())
        assert monitor.head == "generator"


class TwoHeads(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(DIM, CLASSES + 3)


class TestNames:
    def test_a_wrong_number_of_names_stops_the_run(self, tmp_path: Path) -> None:
        run = trainer(tmp_path, UnargmaxabilityMonitor(labels=["a"]), logger=DummyLogger())
        with pytest.raises(LayerError, match="1 names for 12 classes"):
            run.fit(seeded(), batches())

    def test_excluded_ids_out_of_range_stop_the_run(self, tmp_path: Path) -> None:
        run = trainer(tmp_path, UnargmaxabilityMonitor(exclude=[40]), logger=DummyLogger())
        with pytest.raises(LayerError, match="out of range"):
            run.fit(seeded(), batches())

    def test_names_from_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "names.txt"
        path.write_text("\n".join(NAMES) + "\n")
        monitor = UnargmaxabilityMonitor(labels=str(path))
        trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(), batches())
        assert monitor.last_report is not None
        assert monitor.last_report.names == tuple(NAMES)

    def test_names_assigned_later(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor()
        monitor.labels = NAMES
        trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(), batches())
        assert monitor.last_report is not None
        assert monitor.last_report.name(3) == "word3"


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"every_n_steps": -1}, UnargError),
            ({"domain": "box"}, DomainError),
            ({"exclude": "3-1"}, LayerError),
            ({"exclude": "a"}, LayerError),
            ({"time_limit": -1.0}, UnargError),
            ({"patience": -1}, UnargError),
        ],
    )
    def test_bad_ones_are_refused_at_once(
        self, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            UnargmaxabilityMonitor(**arguments)

    def test_one_state_a_head(self, tmp_path: Path) -> None:
        one, two = UnargmaxabilityMonitor("a"), UnargmaxabilityMonitor("a", every_n_steps=3)
        assert one.state_key == two.state_key
        assert UnargmaxabilityMonitor("b").state_key != one.state_key
        assert UnargmaxabilityMonitor("a", name="b").state_key != one.state_key
        with pytest.raises(RuntimeError, match="more than one stateful callback"):
            trainer(tmp_path, one, two)

    def test_it_pickles_after_a_run(self, tmp_path: Path) -> None:
        monitor = UnargmaxabilityMonitor(every_n_steps=5)
        trainer(tmp_path, monitor, logger=DummyLogger()).fit(seeded(), batches())
        assert pickle.loads(pickle.dumps(monitor)).records == monitor.records
