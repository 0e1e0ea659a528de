"""The callback from a YAML configuration, as a LightningCLI builds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny_training import CLASSES, Classifier, batches
from unarg_callback.callback import UnargmaxabilityMonitor

pytest.importorskip("jsonargparse", minversion="4.39")

from pytorch_lightning.cli import LightningCLI  # noqa: E402

pytestmark = pytest.mark.usefixtures("time_enough")

CONFIG = """
trainer:
  accelerator: cpu
  max_epochs: 1
  logger:
    class_path: pytorch_lightning.loggers.CSVLogger
    init_args:
      save_dir: {folder}
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
  default_root_dir: {folder}
  callbacks:
    - class_path: unarg_callback.callback.UnargmaxabilityMonitor
      init_args:
{arguments}
"""


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line that pytest was started with is not the CLI's."""
    monkeypatch.setattr("sys.argv", ["train"])


def build(folder: Path, arguments: str, *more: str) -> Any:
    indented = "\n".join(f"        {line}" for line in arguments.strip().splitlines())
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(folder=folder, arguments=indented), encoding="utf-8")
    return LightningCLI(
        Classifier,
        args=["--config", str(path), *more],
        run=False,
        save_config_callback=None,
    )


def monitor_of(cli: Any) -> UnargmaxabilityMonitor:
    (monitor,) = [one for one in cli.trainer.callbacks if isinstance(one, UnargmaxabilityMonitor)]
    return monitor


def test_every_argument(tmp_path: Path) -> None:
    cli = build(
        tmp_path,
        f"""
layer: generator
every_n_steps: 3
labels: [{", ".join(f"w{index}" for index in range(CLASSES))}]
domain: nonnegative:5
exclude: 0,2-3
patience: 10
time_limit: 5
device: cpu
name: words
""",
    )
    cli.trainer.fit(cli.model, batches())
    monitor = monitor_of(cli)
    assert [record.step for record in monitor.records] == [0, 3, 6, 7]
    assert monitor.head == "words"
    assert monitor.last_report is not None
    assert monitor.last_report.name(1) == "w1"
    assert str(monitor.last_report.domain) == "box:0,5"
    assert monitor.records[-1].excluded == 3


@pytest.mark.parametrize(
    ("exclude", "count"), [("[0, 2, 3]", 3), ("'0,2-3'", 3), ("0,2-3", 3), ("5", 1), ("null", 0)]
)
def test_excluded_ids(tmp_path: Path, exclude: str, count: int) -> None:
    cli = build(tmp_path, f"exclude: {exclude}")
    cli.trainer.fit(cli.model, batches())
    assert monitor_of(cli).records[-1].excluded == count


def test_names_from_a_file(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"w{index}" for index in range(CLASSES)), encoding="utf-8")
    cli = build(tmp_path, f"labels: {names}")
    cli.trainer.fit(cli.model, batches())
    report = monitor_of(cli).last_report
    assert report is not None
    assert report.name(2) == "w2"


def test_from_the_command_line(tmp_path: Path) -> None:
    cli = LightningCLI(
        Classifier,
        args=[
            "--trainer.accelerator=cpu",
            "--trainer.logger=false",
            f"--trainer.default_root_dir={tmp_path}",
            "--trainer.callbacks+=UnargmaxabilityMonitor",
            "--trainer.callbacks.every_n_steps=9",
            "--trainer.callbacks.layer=generator",
        ],
        run=False,
        save_config_callback=None,
    )
    assert monitor_of(cli).head == "generator"


def test_the_configuration_can_be_saved_and_read_again(tmp_path: Path) -> None:
    cli = build(tmp_path, "every_n_steps: 4")
    text = cli.parser.dump(cli.config)
    assert "every_n_steps: 4" in text
    path = tmp_path / "again.yaml"
    path.write_text(text, encoding="utf-8")
    again = LightningCLI(
        Classifier, args=["--config", str(path)], run=False, save_config_callback=None
    )
    assert monitor_of(again).monitor._schedule.cadence.every_n_steps == 4
