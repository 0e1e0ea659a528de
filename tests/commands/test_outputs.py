"""No output takes the place of a part of the model; what can't be written is refused at once."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.commands.running import unarg

ROWS = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
FORMS = ("--json", "--html", "--markdown", "--tsv")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder as transformers writes it."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 5}
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    names = {name: index for index, name in enumerate(["a", "b", "c", "d", "e"])}
    (folder / "vocab.json").write_text(json.dumps(names))
    (folder / "notes.txt").write_text("of somebody")
    save_file({"lm_head.weight": ROWS}, folder / "model.safetensors")
    return folder


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A model in two files, of which one has the layer."""
    save_file({"lm_head.weight": ROWS}, tmp_path / "1.safetensors")
    save_file({"model.norm.weight": torch.ones(2)}, tmp_path / "2.safetensors")
    where = {"lm_head.weight": "1.safetensors", "model.norm.weight": "2.safetensors"}
    index = tmp_path / "m.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    return index


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the check was started")

    monkeypatch.setattr(importlib.import_module("unarg_callback.verification"), "verify", never)


@pytest.mark.usefixtures("no_check")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["config.json", "vocab.json", "model.safetensors", "notes.txt"])
@pytest.mark.parametrize("given", ["", "model.safetensors"])
def test_files_of_a_model_stay(
    model: Path, form: str, name: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(model)
    assert unarg("check", model / given, form, model / name) == 2
    assert "would overwrite" in capsys.readouterr().err
    assert contents(model) == before


@pytest.mark.usefixtures("no_check")
def test_other_names_of_such_files(model: Path, tmp_path: Path) -> None:
    before = contents(model)
    (tmp_path / "link.json").symlink_to(model / "config.json")
    os.link(model / "model.safetensors", tmp_path / "hard.md")
    assert unarg("check", model, "--json", tmp_path / "link.json") == 2
    assert unarg("check", model, "--markdown", tmp_path / "hard.md") == 2
    assert unarg("check", model, "--json", model / ".." / "model" / "vocab.json") == 2
    assert contents(model) == before


@pytest.mark.usefixtures("no_check")
@pytest.mark.parametrize("name", ["m.index.json", "1.safetensors", "2.safetensors"])
def test_shards_stay(shards: Path, name: str) -> None:
    before = contents(shards.parent)
    assert unarg("check", shards, "--json", shards.with_name(name)) == 2
    assert contents(shards.parent) == before


def test_reports_in_a_folder_are_written_and_replaced(model: Path) -> None:
    outputs = {form: model / f"report{form[1:]}" for form in FORMS}
    outputs["--proofs"] = model / "proofs.npz"
    arguments = [part for pair in outputs.items() for part in pair]
    before = contents(model)
    for _ in range(2):
        assert unarg("check", model, *arguments) == 0
    after = contents(model)
    assert all(after[path.name] for path in outputs.values())
    assert {name: after[name] for name in before} == before


@pytest.mark.usefixtures("no_check")
def test_pictures_are_no_part_of_a_model_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    save_file({"lm_head.weight": ROWS}, tmp_path / "shard.png")
    index = tmp_path / "m.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "shard.png"}}))
    before = contents(tmp_path)
    unarg("figure", "regions", index, "--out", tmp_path / "shard.png")
    assert contents(tmp_path) == before


@pytest.mark.usefixtures("no_check")
@pytest.mark.parametrize("form", ["--html", "--markdown", "--tsv", "--proofs"])
def test_standard_output_is_for_json(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", W=ROWS.numpy(), b=np.zeros(5))
    assert unarg("check", "a.npz", form, "-") == 2
    assert "only --json can have" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.usefixtures("no_check")
def test_proofs_are_no_folder_and_no_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "a.npz", W=ROWS.numpy(), b=np.zeros(5))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert unarg("check", tmp_path / "a.npz", "--proofs", tmp_path / "folder") == 2
    assert "is a folder" in capsys.readouterr().err
    assert unarg("check", tmp_path / "a.npz", "--proofs", tmp_path / "pipe") == 2
    assert "is not a regular file" in capsys.readouterr().err


@pytest.mark.usefixtures("no_check")
def test_json_to_a_standard_output_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "a.npz", W=ROWS.numpy(), b=np.zeros(5))
    monkeypatch.setattr("sys.stdout", None)
    assert unarg("check", tmp_path / "a.npz", "--json", "-") == 2
    assert "standard output is closed" in capsys.readouterr().err
