"""The code in README.md runs as it stands, and says what the text says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.shared_data import load_layer, needs_shared
from unarg_callback import Domain, OutputLayer, verify
from unarg_callback.cli import main as unarg
from unarg_callback.dashboards.json_lines import read_json_lines

README = Path(__file__).parent.parent / "README.md"
_BLOCK = re.compile(r"<!-- test: (\w+) -->\n```python\n(.*?)```", re.DOTALL)
_SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def blocks() -> dict[str, str]:
    return dict(_BLOCK.findall(README.read_text(encoding="utf-8")))


def test_every_python_block_is_tested() -> None:
    assert README.read_text(encoding="utf-8").count("```python") == len(blocks())


def test_the_callback_in_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks()["callback"], "README.md", "exec"), {})
    assert "100 classes x 32 features" in capsys.readouterr().out


@pytest.mark.usefixtures("time_enough")
def test_a_loop_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks()["loop"], "README.md", "exec"), {})
    assert "50 classes x 4 features" in capsys.readouterr().out
    steps = [line["step"] for line in read_json_lines(tmp_path / "runs" / "loop")]
    assert steps == [0, 20, 40, 50]


@pytest.mark.usefixtures("time_enough")
def test_with_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks()["transformers"], "README.md", "exec"), {})
    assert "100 classes x 8 features" in capsys.readouterr().out
    steps = [line["step"] for line in read_json_lines(tmp_path / "runs" / "gpt2")]
    assert steps == [0, 5, 10]


def test_verify_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks()["verify"], "README.md", "exec"), {})
    assert "1 provably unargmaxable" in capsys.readouterr().out
    assert (tmp_path / "proofs.npz").exists()


def test_an_incremental_verifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(compile(blocks()["incremental"], "README.md", "exec"), found)
    assert capsys.readouterr().out.count("2,000 classes x 16 features") == 3
    assert found["report"].reuse.kept > 0
    assert (tmp_path / "step.npz").exists()
    assert torch.load(tmp_path / "verifier.pt", weights_only=True)


@pytest.mark.parametrize("excluded", [(), (0, 3)])
def test_the_recheck_accepts_what_verify_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excluded: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(5)
    weight, bias = rng.normal(size=(300, 4)), rng.normal(size=300)
    monkeypatch.chdir(tmp_path)
    report = verify(OutputLayer(weight, bias, excluded=excluded), Domain.box(10.0))
    assert report.counts["unargmaxable"] > 50
    report.save_proofs("proofs.npz")
    code = compile(blocks()["recheck"], "README.md", "exec")
    exec(code, {"W": weight, "b": bias})
    # It can fail: the same proofs don't hold for another layer.
    with pytest.raises(AssertionError):
        exec(code, {"W": weight[::-1], "b": bias})


@needs_shared
def test_the_command_line_on_g2pm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weight, bias, labels = load_layer("g2pm")
    monkeypatch.chdir(tmp_path)
    np.savez("layer.npz", W=weight, b=bias)
    Path("labels.txt").write_text("\n".join(labels), encoding="utf-8")
    command = next(c for c in commands() if c[2] == "layer.npz")
    assert unarg([*command[1:], "--labels", "labels.txt"]) == 0
    assert Path("proofs.npz").exists()
    assert Path("report.json").exists()
    capsys.readouterr()
    assert unarg(["check", "layer.npz", "--labels", "labels.txt"]) == 0
    printed = capsys.readouterr().out
    text = README.read_text(encoding="utf-8")
    shown = re.search(r"```\n(876 classes.*?)\n\.\.\.\n```", text, re.DOTALL)
    assert shown is not None
    assert _without_bounds(shown[1]) in _without_bounds(printed)


def _without_bounds(table: str) -> str:
    """The table less the last two columns: which valid bound is found first is chance."""
    return re.sub(r" +<= .*| +best lead .*", "", table)


def commands() -> list[list[str]]:
    """The ``unarg`` commands of the README, as lists of arguments."""
    text = "\n".join(_SHELL.findall(README.read_text(encoding="utf-8"))).replace("\\\n", " ")
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("unarg ")]
