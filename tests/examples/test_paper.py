"""The scripts of examples/paper run as their docstrings say, at small sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")

from paper import table9
from tests.rankings.test_counts import TABLE_2, TABLE_3
from unarg_callback.monitoring.activation_range import ActivationRange

ROOT = Path(__file__).parents[2]


def script(name: str, *arguments: object, folder: Path) -> str:
    """What a script prints, run in a folder as a user would."""
    command = [sys.executable, str(ROOT / "examples" / "paper" / name), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tables_2_and_3(tmp_path: Path) -> None:
    printed = [line.split()[1:] for line in script("table2_and_3.py", folder=tmp_path).splitlines()]
    for table in (TABLE_2, TABLE_3):
        for row in table.strip().split("\n"):
            assert row.split() in printed


def test_figures_of_the_plane(tmp_path: Path) -> None:
    printed = script("figures_1_2_7.py", "--out", "pictures", folder=tmp_path).split()
    assert printed == [f"pictures/figure{n}.png" for n in (1, 2, 7)]
    assert all((tmp_path / name).stat().st_size > 10_000 for name in printed)


def test_figure_6(tmp_path: Path) -> None:
    printed = script("figure6.py", folder=tmp_path).split()
    assert (tmp_path / printed[0]).exists()


def test_figure_10(tmp_path: Path) -> None:
    arguments = ("figure10.py", "--classes", 40, "--least", 28, "--most", 31)
    printed = script(*arguments, folder=tmp_path)
    assert "From d = 30 on, 0 classes of 80 are unargmaxable or undecided" in printed
    assert (tmp_path / "runs/paper/figure10.png").exists()
    rows = (tmp_path / "runs/paper/figure10.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == ["31", "30", "29", "28"]


def test_figures_11_and_12(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "layer.npz", W=np.random.default_rng(0).normal(size=(50, 3)), b=np.zeros(50)
    )
    script("figures_11_12.py", "layer.npz", "--patience", 5, "--out", "a.png", folder=tmp_path)
    assert (tmp_path / "a.png").exists()


def test_table_9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = torch.nn.Linear(3, 7)
    with ActivationRange().attach(layer) as observed:
        layer(torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.0, -0.25]]))
    heads = {"words": {"observation": {"range": observed.state_dict()}}, "tags": {}}
    path = tmp_path / "run" / "model.ckpt"
    path.parent.mkdir()
    torch.save({"callbacks": {"UnargmaxabilityMonitor{}": {"heads": heads}, "Other": {}}}, path)
    monkeypatch.setattr(sys, "argv", ["table9.py", str(path)])
    assert table9.main() == 0
    head, _, row = capsys.readouterr().out.strip().split("\n")
    assert "min range" in head
    assert row.startswith("| run words |")
    assert row.endswith("| -2 | 3 | 2 |")
    torch.save({"callbacks": {}}, path)
    assert table9.main() == 1
    assert "observe: true" in capsys.readouterr().err
