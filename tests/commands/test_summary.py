"""``unarg summary``: a row a model, and a row for what can't be checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.commands.running import unarg

SQUARE = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Two that can be checked, and one that can't, between them."""
    paths = [tmp_path / name / "model.npz" for name in ("one", "two", "three")]
    for path in paths:
        path.parent.mkdir()
    np.savez(paths[0], W=SQUARE, b=np.zeros(5))
    paths[1].write_bytes(b"PK\x03\x04 nothing")
    np.savez(paths[2], W=SQUARE[:4], b=np.zeros(4))
    return paths


def test_a_row_a_model_and_the_others_go_on(
    models: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert unarg("summary", *models) == 2
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[1].split()[:3] == ["model", "classes", "features"]
    assert lines[2].split()[:7] == ["one/model.npz", "5", "2", "1", "1", "0", "0"]
    assert lines[3].startswith("two/model.npz")
    assert "not checked: " in lines[3]
    assert lines[4].split()[:7] == ["three/model.npz", "4", "2", "0", "0", "0", "0"]


def test_exit_status(models: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    good = (models[0], models[2])
    assert unarg("summary", *good) == 0
    assert unarg("summary", *good, "--fail-on", "unargmaxable") == 1
    assert unarg("summary", *good, "--fail-on", "undecided") == 0
    capsys.readouterr()
    for wrong in (["--domain", "x"], ["--script", "Klingon"], ["--keep-regex", "("]):
        assert unarg("summary", *good, *wrong) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
    assert unarg("summary") == 2


def test_markdown_and_filters(
    models: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\nd\n1\n", encoding="utf-8")
    assert unarg("summary", models[0], "--labels", labels, "--words", "--markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| model | classes | features | potentially unargmaxable |")
    assert lines[2].startswith("| model.npz | 5 | 2 | 0 | 0 | 0 | 0 |")
    assert unarg("summary", models[0], "--labels", labels, "--words") == 0
    assert capsys.readouterr().out.endswith(
        "Only classes with no digits or punctuation are counted.\n"
    )
