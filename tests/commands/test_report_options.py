"""The reports that ``unarg check`` writes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from tests.reports.layers import NAMES, ROWS
from unarg_callback import OutputLayer, verify
from unarg_callback.checkpoints import LocatedLayer, locate_layer
from unarg_callback.commands.report_options import (
    add_report_options,
    filter_of,
    report_targets,
    write_reports,
)
from unarg_callback.errors import UnargError
from unarg_callback.report import Report

Checked: TypeAlias = tuple[Report, OutputLayer, LocatedLayer]


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    path = tmp_path / "layer.npz"
    np.savez(path, W=ROWS, b=np.zeros(len(ROWS)))
    located = locate_layer(path).with_names(NAMES).with_excluded([8])
    layer = located.load()
    return verify(layer), layer, located


def options(*arguments: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_report_options(parser)
    return parser.parse_args([str(argument) for argument in arguments])


def test_each_form_is_written(checked: Checked, tmp_path: Path) -> None:
    targets = {form: tmp_path / f"report.{form}" for form in ("html", "markdown", "tsv")}
    given = options(*(part for form, path in targets.items() for part in (f"--{form}", path)))
    assert report_targets(given) == {f"--{form}": path for form, path in targets.items()}
    assert write_reports(*checked, given) == []
    texts = {form: path.read_text(encoding="utf-8") for form, path in targets.items()}
    assert texts["html"].startswith("<!DOCTYPE html>")
    assert texts["markdown"].startswith("# Unargmaxable classes of layer.npz")
    assert texts["tsv"].count("\n") == 1 + len(ROWS)
    assert "excluded: 1 class (as asked): 8" in texts["html"]


def test_nothing_asked_for(checked: Checked) -> None:
    assert filter_of(options()) is None
    assert write_reports(*checked, options()) == []


def test_filters(checked: Checked, tmp_path: Path) -> None:
    path = tmp_path / "r.tsv"
    write_reports(*checked, options("--tsv", path, "--script", "Han", "--script", "Greek"))
    assert path.read_text(encoding="utf-8").splitlines()[1].startswith("1\t東京\t")
    write_reports(*checked, options("--tsv", path, "--words", "--keep-regex", "^t"))
    assert [line.split("\t")[0] for line in path.read_text().splitlines()[1:]] == ["7"]
    for wrong in (("--script", "Klingon"), ("--keep-regex", "(")):
        with pytest.raises(UnargError):
            filter_of(options(*wrong))


def test_one_that_fails_is_named_and_the_others_are_written(
    checked: Checked, tmp_path: Path
) -> None:
    lost, kept = tmp_path / "absent" / "r.html", tmp_path / "r.tsv"
    problems = write_reports(*checked, options("--html", lost, "--tsv", kept))
    assert problems == [f"--html {lost} (No such file or directory)"]
    assert kept.exists()
