"""Models in shards: the index, its shards, and an index that points elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from unarg_callback import CheckpointError
from unarg_callback.checkpoints import open_file, read_layer

TENSORS = {
    "embed.weight": torch.arange(24.0).reshape(6, 4),
    "head.weight": torch.arange(40.0).reshape(10, 4) ** 0.5,
    "head.bias": torch.arange(10.0),
}


def sharded(folder: Path, suffix: str) -> Path:
    """Two shards and their index, the head's weight and bias in different ones."""
    places = {}
    for number, names in enumerate((["embed.weight", "head.bias"], ["head.weight"]), 1):
        name = f"part-{number}-of-2{suffix}"
        part = {key: TENSORS[key] for key in names}
        if suffix == ".safetensors":
            save_file(part, folder / name)
        else:
            torch.save(part, folder / name)
        places.update(dict.fromkeys(names, name))
    index = folder / f"model{suffix}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


def pointed(index: Path, name: str, shard: object) -> None:
    content = json.loads(index.read_text())
    content["weight_map"][name] = shard
    index.write_text(json.dumps(content))


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_layer(path, weight="head.weight")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_weight_and_bias_from_two_shards(tmp_path: Path, suffix: str) -> None:
    index = sharded(tmp_path, suffix)
    layer = read_layer(index, weight="head.weight")
    assert torch.equal(layer.weight, TENSORS["head.weight"])
    assert layer.bias is not None
    assert torch.equal(layer.bias, TENSORS["head.bias"])
    assert {entry.name for entry in open_file(index).entries} == set(TENSORS)


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_several_layers_are_ambiguous(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(CheckpointError, match="2 layers that could be meant"):
        read_layer(sharded(tmp_path, suffix))


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
@pytest.mark.parametrize(
    "shard", ["../out{}", "sub/../../out{}", "/etc/hosts", "..\\out{}", "C:/out{}", "", "a\0b"]
)
def test_a_shard_outside_of_the_folder(tmp_path: Path, suffix: str, shard: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    index = sharded(folder, suffix)
    (folder / f"part-2-of-2{suffix}").rename(tmp_path / f"out{suffix}")
    pointed(index, "head.weight", shard.format(suffix))
    assert "is not followed" in refusal(index)


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_shards_that_do_not_fit(tmp_path: Path, suffix: str) -> None:
    index = sharded(tmp_path, suffix)
    part = tmp_path / f"part-2-of-2{suffix}"
    pointed(index, "head.weight", f"part-1-of-2{suffix}")
    assert "says that part-1-of-2" in refusal(index)
    pointed(index, "head.weight", part.name)
    part.write_bytes(part.read_bytes()[:60])
    assert "part-2-of-2" in refusal(index)
    part.unlink()
    assert "not there" in refusal(index)


@pytest.mark.parametrize(
    "content", ["{}", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 1}}', "{"]
)
def test_damaged_index(tmp_path: Path, content: str) -> None:
    index = sharded(tmp_path, ".safetensors")
    index.write_text(content)
    assert index.name in refusal(index)


def test_shards_with_pickled_objects(tmp_path: Path) -> None:
    index = sharded(tmp_path, ".bin")
    torch.save(torch.nn.Linear(2, 3), tmp_path / "part-2-of-2.bin")
    assert "never loaded" in refusal(index)
