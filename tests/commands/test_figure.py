"""``unarg figure`` reads layers as ``unarg check`` does, and writes pictures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")

from tests.commands.running import unarg
from unarg_callback import OutputLayer, verify
from unarg_callback.commands.figure import main


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "layer.npz"
    np.savez(path, W=rng.normal(size=(5, 2)), b=rng.normal(size=5))
    return path


@pytest.mark.parametrize("kind", ["regions", "hull", "rankings", "steps"])
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_layer_in_a_file(
    kind: str, ending: str, layer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = layer.with_name(f"a.{ending}")
    assert main([kind, str(layer), "--out", str(out)]) == 0
    assert out.stat().st_size > 1000
    assert capsys.readouterr().out.endswith(f"{out}\n")


def test_names_from_a_file(layer: Path) -> None:
    names = layer.with_name("names.json")
    names.write_text(json.dumps(["red", "green", "blue", "white", "black"]))
    out = layer.with_name("a.svg")
    assert main(["hull", str(layer), "--labels", str(names), "--out", str(out)]) == 0
    assert ">white<" in out.read_text(encoding="utf-8")
    excluded = ["--labels", str(names), "--exclude", "3", "--out", str(out)]
    assert main(["hull", str(layer), *excluded]) == 0
    assert ">white<" not in out.read_text(encoding="utf-8")
    assert ">black<" in out.read_text(encoding="utf-8")


def test_the_papers_search(layer: Path) -> None:
    out = layer.with_name("a.png")
    assert main(["steps", str(layer), "--patience", "9", "--out", str(out)]) == 0
    assert out.exists()


def test_bars_of_reports(tmp_path: Path) -> None:
    for name in ("a", "b"):
        verify(OutputLayer(np.eye(3))).to_json(tmp_path / f"{name}.json")
    out = tmp_path / "bars.png"
    reports = [str(tmp_path / f"{name}.json") for name in ("a", "b")]
    assert main(["bars", *reports, "--out", str(out)]) == 0
    assert out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "a.gif"], "expected it to end in .png"),
        (["--out", "nowhere/a.png"], "can't be written"),
        (["layer.npz", "--out", "a.png"], "expected one layer"),
        (["--patience", "-1", "--out", "a.png"], "'-1' is not a whole number from 0"),
        (["--radius", "0", "--out", "a.png"], "'0' is not a finite number above 0"),
        (["--weight", "V", "--out", "a.png"], "V"),
        (["--out", "."], "expected it to end in .png"),
        (["--out", "layer.npz/a.png"], "can't be written"),
    ],
)
def test_bad_input(
    arguments: list[str],
    message: str,
    layer: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(layer.parent)
    assert unarg("figure", "regions", "layer.npz", *arguments) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in layer.parent.iterdir()] == ["layer.npz"]


def test_three_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", W=np.zeros((5, 3)), b=np.zeros(5))
    assert main(["rankings", str(tmp_path / "x.npz"), "--out", str(tmp_path / "a.png")]) == 2
    assert "only a layer of two features can be drawn" in capsys.readouterr().err


@pytest.mark.parametrize("radius", ["1e308", "1e-300", "1e99", "1e-99"])
@pytest.mark.parametrize("kind", ["regions", "rankings"])
def test_radii_far_out(
    tmp_path: Path, radius: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "a.npz", W=np.array([[1.0, 0], [-1, 1], [-1, -1]]), b=np.ones(3))
    out = tmp_path / "a.png"
    status = unarg("figure", kind, tmp_path / "a.npz", "--out", out, "--radius", radius)
    err = capsys.readouterr().err
    assert status == (0 if "99" in radius else 2)
    assert out.exists() == (status == 0)
    assert "Traceback" not in err


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1e-160])
@pytest.mark.parametrize("kind", ["regions", "rankings", "hull"])
def test_rows_far_from_one(
    tmp_path: Path, scale: float, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = scale * np.array([[1.0, 0], [-1, 1], [-1, -1]])
    np.savez(tmp_path / "a.npz", W=rows, b=np.arange(3.0))
    assert unarg("figure", kind, tmp_path / "a.npz", "--out", tmp_path / "a.png") in (0, 2)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_terminal_is_not_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "a.npz", W=np.array([[1.0, 0], [-1, 1], [-1, -1]]), b=np.ones(3))

    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unarg_callback.commands.figure.write", full)
    assert unarg("figure", "regions", tmp_path / "a.npz", "--out", tmp_path / "a.png") == 2
    assert (tmp_path / "a.png").exists()
    err = capsys.readouterr().err
    assert "can't print" in err
    assert "a.png" not in err
