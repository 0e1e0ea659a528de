"""``unarg check A B ... --summary``: the rows of ``unarg summary``, and what goes with it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands.running import unarg
from unarg_callback import OutputLayer, Report

VERIFY = importlib.import_module("unarg_callback.verification")
SQUARE = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Three layers of 3, 4 and 5 classes."""
    paths = [tmp_path / f"{name}.npz" for name in ("three", "four", "five")]
    for count, path in enumerate(paths, start=3):
        np.savez(path, W=SQUARE[-count:], b=np.zeros(count))
    return paths


def without_seconds(text: str) -> str:
    return re.sub(r" +\d+\.\d$", "", text, flags=re.MULTILINE)


def test_it_is_the_summary(models: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("summary", *models) == 0
    summary = capsys.readouterr().out
    assert unarg("check", *models, "--summary") == 0
    assert without_seconds(capsys.readouterr().out) == without_seconds(summary)
    assert summary.splitlines()[4].split()[:5] == ["five.npz", "5", "2", "1", "1"]
    # One file is as good as several, and options may come first.
    assert unarg("check", "--summary", "--domain", "free", models[2]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:3] == ["five.npz", "5", "2"]


def test_exit_status_and_quiet(models: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("check", *models, "--summary", "--quiet", "--fail-on", "unargmaxable") == 1
    assert unarg("check", models[1], "--summary", "--quiet", "--fail-on", "undecided") == 0
    assert capsys.readouterr() == ("", "")
    assert unarg("check", models[0], "none.npz", models[2], "--summary", "--quiet") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("unarg: none.npz: ")
    assert err.count("\n") == 1


def test_several_files_need_it(models: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("check", *models) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "unarg: 3 files are given; expected one, or --summary for a row a file "
        "(unarg compare A B tells what changed between two)\n"
    )


@pytest.mark.parametrize("option", ["json", "proofs", "html", "markdown", "tsv"])
def test_outputs_of_one_file(
    models: list[Path], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = models[0].with_name("out")
    assert unarg("check", *models, "--summary", f"--{option}", target) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"so --{option} can't be given with it" in err
    assert not target.exists()


def test_questions_of_one_file(models: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    questions = ("--top-k", "2", "--min-lead", "1", "--limit", "3")
    assert unarg("check", *models, "--summary", *questions) == 2
    assert "--top-k, --min-lead, --limit can't be given" in capsys.readouterr().err


def _failing(monkeypatch: pytest.MonkeyPatch, classes: int, failure: BaseException) -> None:
    """Let the check of the layer with so many classes fail."""
    real = VERIFY.verify

    def verify(layer: OutputLayer, *arguments: Any, **named: Any) -> Report:
        if layer.classes == classes:
            raise failure
        report: Report = real(layer, *arguments, **named)
        return report

    monkeypatch.setattr(VERIFY, "verify", verify)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (MemoryError(), "not checked: MemoryError"),
        (RuntimeError("CUDA\nout of memory"), "not checked: RuntimeError: CUDA out of memory"),
        (OSError(5, "Input/output error"), "not checked: OSError: [Errno 5] Input/output error"),
    ],
)
def test_whatever_goes_wrong_with_one_the_others_have_rows(
    models: list[Path],
    failure: Exception,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _failing(monkeypatch, 4, failure)
    assert unarg("check", *models, "--summary") == 2
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["three.npz", "four.npz", "five.npz"]
    assert reason in lines[3]
    assert lines[4].split()[4] == "1"


def test_who_interrupts_gets_the_rows_that_are_done(
    models: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _failing(monkeypatch, 5, KeyboardInterrupt())
    assert unarg("check", *models, "--summary") == 130
    out, err = capsys.readouterr()
    assert err == "unarg: interrupted\n"
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["three.npz", "four.npz"]


def test_a_filter_says_where_it_finds_no_names(
    models: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert unarg("check", *models[:2], "--summary", "--words") == 0
    assert capsys.readouterr().out.endswith(
        "\n\nOnly classes with no digits or punctuation are counted. All are of three.npz, "
        "four.npz, for want of names.\n"
    )
