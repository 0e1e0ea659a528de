"""Progress bars and tables on terminals of several sizes."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.commands.pseudo_terminal import on_a_terminal
from tests.commands.running import unarg
from unarg_callback.commands.terminal import give_bars_a_size, shows_progress


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, Path]:
    """A layer of 60 classes with names that are wide, and its proofs."""
    rng = np.random.default_rng(0)
    layer, proofs = tmp_path / "layer.npz", tmp_path / "proofs.npz"
    np.savez(layer, W=rng.normal(size=(60, 2)), b=rng.normal(size=60))
    (tmp_path / "labels.txt").write_text("\n".join("字" * (n + 9) for n in range(60)))
    assert unarg("check", layer, "--proofs", proofs, "--quiet") == 0
    capsys.readouterr()
    return layer, proofs


def bars(text: str, name: str) -> list[str]:
    return re.findall(rf"^{name}: .*$", text, re.MULTILINE)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (0, 0)])
def test_recheck_shows_how_far_it_is(files: tuple[Path, Path], columns: int, lines: int) -> None:
    told = on_a_terminal(columns, lines, "recheck", files[1], files[0])
    drawn = bars(told, "recheck")
    assert "0/60" in drawn[0]
    assert "60/60" in drawn[-1]
    assert drawn[-1].startswith("recheck: 100%|███")
    assert max(map(len, drawn)) <= 80
    assert min(map(len, drawn)) >= 70
    assert told.endswith("All proofs hold, in exact arithmetic.\n")


def test_no_line_is_wider_than_the_terminal(files: tuple[Path, Path]) -> None:
    layer, _ = files
    labels = layer.with_name("labels.txt")
    told = on_a_terminal(
        80, 24, "check", layer, "--labels", labels, "--words", "--top-k", "2", NO_COLOR="1"
    )
    assert bars(told, "verify")[-1].startswith("verify: 100%")
    for line in told.splitlines():
        assert len(line) + line.count("字") <= 80  # These take two columns.
    assert "\x1b" not in told


def test_proofs_that_nobody_owes_leave_no_bar_behind(files: tuple[Path, Path]) -> None:
    layer, proofs = files
    with np.load(proofs) as archive:
        content = dict(archive)
    keep = content["witness_class"] != content["witness_class"][0]
    content["witness"] = np.where(keep[:, None], content["witness"], 1e9)
    np.savez(proofs, **content)
    with pytest.raises(AssertionError, match="60/60"):  # Its status is 1.
        on_a_terminal(80, 24, "recheck", proofs, layer)


def test_quiet_and_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    assert shows_progress(argparse.Namespace(quiet=False))
    assert not shows_progress(argparse.Namespace(quiet=True))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not shows_progress(argparse.Namespace(quiet=False))
    give_bars_a_size()
    monkeypatch.setattr(sys, "stderr", None)
    assert not shows_progress(argparse.Namespace(quiet=False))
    give_bars_a_size()
    assert not {"TQDM_NCOLS", "TQDM_NROWS"} & set(os.environ)
