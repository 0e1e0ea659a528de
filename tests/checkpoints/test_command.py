"""The command on models that bring names and excluded classes along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from unarg_callback.cli import main

CORNERS = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """OpenNMT-py's, where row 5 is beyond the vocabulary and would beat all others."""
    path = tmp_path / "model.pt"
    words = ["<unk>", "der", "die", "das", "mitte"]
    generator = {"weight": torch.tensor([*CORNERS, [0.0, 0.0]]), "bias": torch.zeros(6)}
    generator["bias"][5] = 1e6
    torch.save({"model": {}, "generator": generator, "vocab": {"tgt": words}}, path)
    return path


def checked(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["check", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_names_and_exclusions_of_the_file(
    capsys: pytest.CaptureFixture[str], checkpoint: Path
) -> None:
    out = checked(capsys, checkpoint)
    assert "excluded: 1 class (rows beyond the vocabulary, which has 5 words): 5\n" in out
    assert "names: the target vocabulary in the file\n" in out
    assert "mitte" in out
    counts = json.loads(checked(capsys, checkpoint, "--quiet", "--json", "-"))["counts"]
    assert (counts["unargmaxable"], counts["excluded"]) == (1, 1)


@pytest.mark.parametrize(
    ("exclude", "unargmaxable", "told"),
    [("none", 5, ""), ("5", 1, "1 class (as asked): 5"), ("0,5", 1, "2 classes (as asked): 0, 5")],
)
def test_exclude_comes_first(
    capsys: pytest.CaptureFixture[str],
    checkpoint: Path,
    exclude: str,
    unargmaxable: int,
    told: str,
) -> None:
    out = checked(capsys, checkpoint, "--exclude", exclude)
    assert ("excluded:" in out) == bool(told)
    assert told in out
    content = checked(capsys, checkpoint, "--exclude", exclude, "--quiet", "--json", "-")
    assert json.loads(content)["counts"]["unargmaxable"] == unargmaxable


def test_labels_come_first(
    capsys: pytest.CaptureFixture[str], checkpoint: Path, tmp_path: Path
) -> None:
    labels = tmp_path / "names.txt"
    labels.write_text("a\nb\nc\nd\ncentre\nf\n")
    out = checked(capsys, checkpoint, "--labels", labels)
    assert "centre" in out
    assert "mitte" not in out
    assert "names:" not in out


def test_help_names_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name in (".onnx", ".safetensors", "Marian", "fairseq", "transformers", "tokenizer.json"):
        assert name in out
