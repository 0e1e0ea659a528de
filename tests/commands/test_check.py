"""What ``unarg check`` can be asked besides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.commands.running import unarg


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """Three corners of a triangle, a point inside, and one a hair's breadth outside."""
    corners = [[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [-0.1, 0.0], [-1.01, 0.0]]
    np.savez(tmp_path / "layer.npz", W=np.array(corners), b=np.zeros(5))
    return tmp_path / "layer.npz"


def test_top_k(layer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("check", layer, "--top-k", "2") == 0
    out = capsys.readouterr().out
    assert "among the 2 best: 5 can be, 0 provably never, 0 undecided" in out


def test_min_lead(layer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("check", layer, "--domain", "box:1", "--min-lead", "0.1") == 0
    out = capsys.readouterr().out
    assert "1 classes can win, but provably never by more than 0.1" in out


@pytest.mark.parametrize(
    "wrong", [["--top-k", "1"], ["--top-k", "x"], ["--min-lead", "0"], ["--min-lead", "nan"]]
)
def test_wrong_questions(layer: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("check", layer, *wrong) == 2
    assert wrong[1] in capsys.readouterr().err


def test_a_lead_below_what_counts_as_one(layer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("check", layer, "--min-lead", "1e-12") == 2
    assert "expected a finite number above" in capsys.readouterr().err
