"""What users have reported about callbacks in checkpoints, resumed trainings and LightningCLI."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers.logger import DummyLogger
from torch import Tensor, nn

from tests.test_user_reports import steps_of, waited_for
from tests.tiny_training import CLASSES, DIM, Classifier, batches, seeded, trainer
from unarg_callback import UnargmaxabilityMonitor
from unarg_callback.incremental import IncrementalVerifier

__all__ = ["waited_for"]

pytestmark = pytest.mark.usefixtures("time_enough")


class TwoHeads(Classifier):
    """Both heads are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(DIM, CLASSES)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        logits = self.second(self.encoder(batch[0]))
        return super().loss(batch) + nn.functional.cross_entropy(logits, batch[1])


def head(model: Any) -> Any:
    """A head that is computed."""
    return model.generator.weight.clone(), model.generator.bias


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "several heads": {
        "layer": ["generator", "second"],
        "domain": {"generator": "free", "second": "observed"},
        "exclude": {"second": "0,2"},
    },
    "a function": {"layer": {"one": head, "two": "second"}},
    "observed": {"layer": "generator", "domain": "observed:2"},
    "observe": {"layer": "generator", "observe": True},
    "background": {"layer": "generator", "background": True},
    "names": {"layer": "generator", "labels": [f"w{i}" for i in range(CLASSES)], "exclude": "0,3"},
    "epochs": {"layer": "generator", "every_n_epochs": 1, "name": "a/b", "on_event": print},
    "limits": {"layer": "generator", "time_limit": 9.0, "max_overhead": None, "patience": 3},
}


class TestCheckpoints:
    @pytest.mark.usefixtures("waited_for")
    @pytest.mark.parametrize("kind", list(OPTIONS))
    def test_a_resume_dies_of_what_weights_only_forbids(self, tmp_path: Path, kind: str) -> None:
        """https://github.com/galilai-group/stable-pretraining/issues/388, Lightning 21757,
        matgl pull 802: with torch 2.6 a checkpoint may hold tensors and builtins only. Saved at
        each step; https://github.com/Lightning-AI/pytorch-lightning/issues/13816: and restored.
        """
        options = {"every_n_steps": 2, **OPTIONS[kind]}
        model = Classifier if kind == "plain" else TwoHeads
        save = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=1, save_top_k=-1)
        monitor = UnargmaxabilityMonitor(**options)
        arguments: dict[str, Any] = {"logger": DummyLogger(), "enable_checkpointing": True}
        run = trainer(tmp_path, save, monitor, max_steps=5, **arguments)
        run.fit(seeded(model), batches())
        files = sorted((tmp_path / "saved").glob("*.ckpt"))
        assert len(files) == 5
        for file in files:
            saved = torch.load(file, weights_only=True)["callbacks"][monitor.state_key]
            assert saved["heads"].keys() == monitor.heads.keys()
        again = UnargmaxabilityMonitor(**options)
        more = trainer(tmp_path, again, max_steps=9, **arguments)
        more.fit(seeded(model), batches(), ckpt_path=files[2], weights_only=True)
        for name, resumed in again.heads.items():
            steps = [record.step for record in resumed.records]
            assert steps == sorted(set(steps))
            assert steps[-1] == 9
            assert steps[0] == monitor.heads[name].records[0].step
            assert resumed.records[-1].warm

    def test_state_is_restored_and_then_reset_when_training_starts(self, tmp_path: Path) -> None:
        """https://github.com/Lightning-AI/pytorch-lightning/issues/1463 and 11110."""
        model, monitor = seeded(), UnargmaxabilityMonitor(every_n_steps=4)
        run = trainer(tmp_path, monitor, logger=DummyLogger())
        run.fit(model, batches())
        run.save_checkpoint(tmp_path / "end.ckpt")
        resumed = UnargmaxabilityMonitor(every_n_steps=4)
        more = trainer(tmp_path, resumed, logger=DummyLogger(), max_epochs=3)
        more.fit(seeded(), batches(), ckpt_path=tmp_path / "end.ckpt")
        assert steps_of(resumed)[:5] == steps_of(monitor) == [0, 4, 8, 12, 14]
        since = resumed.heads["generator"].provable_since
        assert set(since.values()) & {0, 4, 8, 12, 14}

    def test_checkpoints_of_weights_only_have_no_callbacks(self, tmp_path: Path) -> None:
        save = ModelCheckpoint(tmp_path / "saved", save_weights_only=True, save_last=True)
        monitor = UnargmaxabilityMonitor(every_n_steps=4)
        arguments: dict[str, Any] = {"logger": DummyLogger(), "enable_checkpointing": True}
        model = seeded()
        trainer(tmp_path, save, monitor, **arguments).fit(model, batches())
        saved = torch.load(tmp_path / "saved" / "last.ckpt", weights_only=True)
        assert "callbacks" not in saved
        again = seeded()
        again.load_state_dict(saved["state_dict"])
        fresh = UnargmaxabilityMonitor(every_n_steps=100)
        trainer(tmp_path, fresh, logger=DummyLogger(), max_steps=1).fit(again, batches())
        assert fresh.records[0].provable == monitor.records[-1].provable

    def test_a_checkpoint_is_chosen_by_what_was_found(self, tmp_path: Path) -> None:
        tag = "unarg/generator/potential"
        best = ModelCheckpoint(tmp_path / "best", monitor=tag, every_n_train_steps=2)
        monitor = UnargmaxabilityMonitor(every_n_steps=2)
        arguments: dict[str, Any] = {"logger": DummyLogger(), "enable_checkpointing": True}
        trainer(tmp_path, best, monitor, **arguments).fit(seeded(), batches())
        lowest = min(int(record.potential or 0) for record in monitor.records)
        assert best.best_model_score == lowest


@pytest.mark.parametrize("kind", [EarlyStopping, ModelCheckpoint])
def test_a_metric_that_is_not_there_yet_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Both raise where they find no metric, and the first check may take longer than an epoch."""
    update = IncrementalVerifier.update

    def slow(self: Any, *arguments: Any, **options: Any) -> Any:
        time.sleep(1)
        return update(self, *arguments, **options)

    monkeypatch.setattr(IncrementalVerifier, "update", slow)
    watching = kind(monitor="unarg/generator/potential")
    monitor = UnargmaxabilityMonitor(every_n_steps=0, background=True)
    run = trainer(
        tmp_path, monitor, watching, logger=DummyLogger(), enable_checkpointing=True, max_epochs=2
    )
    run.fit(seeded(), batches(), batches(2))
    assert run.global_step == 14
    assert steps_of(monitor) == [0, 14]


class TestCommandLine:
    """https://github.com/Lightning-AI/pytorch-lightning/issues/17263: a callback that a CLI always
    has fails where no argument is given.
    """

    @pytest.fixture(autouse=True)
    def no_arguments(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.argv", ["train"])

    @pytest.mark.parametrize("arguments", [[], ["--unarg.layer=generator", "--unarg.name=words"]])
    def test_a_forced_callback(self, tmp_path: Path, arguments: list[str]) -> None:
        pytest.importorskip("jsonargparse", minversion="4.39")
        from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

        class Forced(LightningCLI):
            def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
                parser.add_lightning_class_args(UnargmaxabilityMonitor, "unarg")
                parser.set_defaults({"unarg.every_n_steps": 5})

        defaults: dict[str, Any] = {
            "accelerator": "cpu",
            "max_epochs": 2,
            "logger": {
                "class_path": "pytorch_lightning.loggers.CSVLogger",
                "init_args": {"save_dir": str(tmp_path)},
            },
            "enable_progress_bar": False,
            "enable_checkpointing": False,
            "default_root_dir": str(tmp_path),
        }
        cli = Forced(Classifier, args=arguments, run=False, trainer_defaults=defaults)
        cli.trainer.fit(cli.model, batches())
        (monitor,) = [
            one
            for one in cli.trainer.callbacks  # type: ignore[attr-defined]
            if isinstance(one, UnargmaxabilityMonitor)
        ]
        assert steps_of(monitor) == [0, 5, 10, 14]
        assert monitor.head == ("words" if arguments else "generator")
        assert "every_n_steps: 5" in Path(cli.trainer.log_dir or "", "config.yaml").read_text()
