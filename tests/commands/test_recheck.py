"""``unarg recheck`` on files that ``unarg check`` wrote, and on others."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.commands.running import unarg
from unarg_callback import OutputLayer, verify
from unarg_callback.cli import main
from unarg_callback.commands.watched_layer import WatchedLayer
from unarg_callback.recheck import ExactLayer, examine

# A square's corners and its centre: only the centre can never lead.
SQUARE = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, Path]:
    """A layer, and the proofs that a check of it saved."""
    layer, proofs = tmp_path / "square.npz", tmp_path / "proofs.npz"
    np.savez(layer, W=SQUARE, b=np.zeros(5))
    assert main(["check", str(layer), "--proofs", str(proofs), "--quiet"]) == 0
    capsys.readouterr()
    return layer, proofs


def change(path: Path, **arrays: object) -> None:
    with np.load(path) as archive:
        content = {**archive, **arrays}
    np.savez(path, **content)


def test_right_proofs(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("recheck", files[1], files[0], "--domain", "box:100") == 0
    out, err = capsys.readouterr()
    assert "square.npz: W (5, 2)" in out
    assert "inputs in box:-100,100 and leads above 4e-07" in out
    assert "4 of 4 witnesses accepted" in out
    assert "1 of 1 certificates accepted" in out
    assert out.endswith("All proofs hold, in exact arithmetic.\n")
    assert err == ""
    assert unarg("recheck", files[1], files[0], "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_wrong_proofs_are_named(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("ne\nse\nnw\x07\nsw\nmid\n", encoding="utf-8")
    change(files[1], witness=np.full((4, 2), 3.0))
    assert unarg("recheck", files[1], files[0], "--labels", labels) == 1
    out, err = capsys.readouterr()
    assert "1 of 4 witnesses accepted" in out
    assert "hold" not in out
    assert err == (
        "unarg: class 1 (se): its witness leads by -6, not above min_lead; "
        "2 more classes are wrong too\n"
    )


def test_proofs_of_another_model(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(files[0], W=SQUARE[::-1], b=np.zeros(5))
    assert unarg("recheck", files[1], files[0]) == 1
    assert "class 0: its witness leads by" in capsys.readouterr().err
    np.savez(files[0], W=SQUARE[:4], b=np.zeros(4))
    assert unarg("recheck", files[1], files[0]) == 2
    assert "goes with a layer of 4 classes x 2 features" in capsys.readouterr().err


def test_bad_input(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    layer, proofs = files
    for arguments, reason in (
        ((layer, layer), "lacks status"),
        ((proofs, proofs), "say --orientation"),
        ((proofs, "absent.npz"), "does not exist"),
        (("absent.npz", layer), "No such file"),
        ((proofs, layer, "--domain", "free"), "box:-100,100, not in free"),
        ((proofs, layer, "--domain", "round"), "can't be read"),
        ((proofs, layer, "--exclude", "9"), "--exclude has id 9"),
        ((proofs, layer, "--exclude", "x"), "no id"),
    ):
        assert unarg("recheck", *arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("unarg: ")
        assert err.count("\n") == 1
        assert reason in err
    proofs.write_bytes(proofs.read_bytes()[:-30])
    assert unarg("recheck", proofs, layer) == 2
    assert "can't be read as proofs" in capsys.readouterr().err


def test_excluded_classes_must_be_those_of_the_check(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    layer, proofs = files
    assert main(["check", str(layer), "--proofs", str(proofs), "--exclude", "1,2", "--quiet"]) == 0
    assert unarg("recheck", proofs, layer) == 2
    assert "excludes classes 1 to 2, but the layer excludes none" in capsys.readouterr().err
    assert unarg("recheck", proofs, layer, "--exclude", "1-2") == 0


def test_a_layer_in_bfloat16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer, proofs = tmp_path / "layer.safetensors", tmp_path / "proofs.npz"
    weight = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    save_file({"head.weight": weight, "head.bias": torch.zeros(50).bfloat16()}, layer)
    assert main(["check", str(layer), "--proofs", str(proofs), "--domain", "free", "--quiet"]) == 0
    assert unarg("recheck", proofs, layer) == 0
    assert "inputs in free" in capsys.readouterr().out


@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_each_proof_is_a_step_of_the_bar(tmp_path: Path, domain: str) -> None:
    weight = np.random.default_rng(1).normal(size=(150, 2))
    proofs = verify(OutputLayer(weight), domain).save_proofs(tmp_path / "proofs.npz")
    steps: list[int] = []
    plain = examine(proofs, ExactLayer(weight, None))
    assert plain.unargmaxable > 64
    assert examine(proofs, WatchedLayer(weight, None, (), steps.append)) == plain
    assert sum(steps) == 150
    # Witnesses go by tiles, certificates one by one.
    assert sorted(steps)[-1] == plain.argmaxable
    assert steps.count(1) >= plain.unargmaxable


def test_proofs_in_a_pipe_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "layer.npz", W=np.eye(3), b=np.zeros(3))
    os.mkfifo(tmp_path / "pipe")
    assert unarg("recheck", tmp_path / "pipe", tmp_path / "layer.npz") == 2
    assert "pipe is not a regular file" in capsys.readouterr().err
