"""Findings for loggers of every make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger

from tests.dashboards.checks import findings, layer
from tests.tiny_training import scalar_steps, texts
from unarg_callback.dashboards.loggers import LoggerOutput


def test_tensorboard_gets_scalars_tables_and_the_rest(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    output = LoggerOutput(logger, lambda: ["generator"])
    for finding in findings():
        output.show(finding)
    output.finish(finding, layer(0.0, list("abcd")))
    logger.finalize("success")
    steps = [finding.record.step for finding in findings()]
    assert scalar_steps(logger.log_dir, "unarg/generator/provable") == steps
    assert texts(logger.log_dir, "unarg/generator/unargmaxable")
    assert (Path(logger.log_dir) / "projector_config.pbtxt").exists()


def test_no_second_point_at_one_step(tmp_path: Path) -> None:
    class Counting(CSVLogger):
        steps: list[int]

        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            assert step is not None
            self.steps.append(step)

    logger = Counting(tmp_path)
    logger.steps = []
    output = LoggerOutput(logger)
    finding = next(iter(findings()))
    output.show(finding, seen=False)
    output.show(finding, seen=True)
    assert logger.steps == [finding.record.step]


def test_a_logger_that_can_not_open_fails_when_it_is_shown_something() -> None:
    class Broken(DummyLogger):
        @property
        def experiment(self) -> Any:
            raise ConnectionError("no network")

    output = LoggerOutput(Broken())
    with pytest.raises(ConnectionError):
        output.show(next(iter(findings())))
