"""What isn't a regular file is never opened, whatever it would be read for."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.checkpoints.refusals import refusal
from unarg_callback import CheckpointError
from unarg_callback.checkpoints import (
    locate_layer,
    read_labels,
    read_layer,
    require_regular_file,
)


def model(folder: Path) -> Path:
    """A folder of transformers with a head alone."""
    save_file({"lm_head.weight": torch.randn(60, 4)}, folder / "model.safetensors")
    settings = {"architectures": ["LlamaForCausalLM"], "vocab_size": 60, "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors", ".onnx", ".index.json"])
def test_a_fifo_in_place_of_a_model(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    os.mkfifo(path)
    assert "is a FIFO, not a regular file, and is not opened" in refusal(path)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "added_tokens.json",
        "tokenizer.json",
        "target_vocab.json",
        "vocab.json",
        "vocab.txt",
        "tokenizer.model",
        "adapter_config.json",
        "quant_config.json",
        "model.safetensors",
    ],
)
def test_a_fifo_in_a_folder(tmp_path: Path, name: str) -> None:
    model(tmp_path)
    if name == "added_tokens.json":
        (tmp_path / "vocab.json").write_text(json.dumps({f"w{i}": i for i in range(60)}))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    assert f"{name} is a FIFO" in refusal(tmp_path)


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_a_fifo_as_shard(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"part{suffix}")
    index = tmp_path / "a.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": f"part{suffix}"}}))
    assert "is a FIFO" in refusal(index)


@pytest.mark.parametrize("suffix", [".json", ".txt", ".vocab", ".model", ".spm", ".yml"])
def test_a_fifo_as_labels(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"labels{suffix}"
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is a FIFO"):
        read_labels(path, 3)


def test_every_other_kind(tmp_path: Path) -> None:
    found = tmp_path / "a"
    found.write_text("x")
    (tmp_path / "link").symlink_to(found)
    assert require_regular_file(found) == found
    assert require_regular_file(str(tmp_path / "link")) == tmp_path / "link"
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    # Relative, as the path of a socket is at most 107 characters long.
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        server.bind("socket")
    kinds = {
        str(tmp_path): "is a folder",
        "/dev/null": "is a device",
        str(tmp_path / "socket"): "is a socket",
        str(tmp_path / "none"): "does not exist",
        str(tmp_path / "dangling"): "is a link to nowhere, which does not exist",
        str(tmp_path / "one"): "is a link to two, which can't be followed",
        "a\0b": "is no path",
    }
    for path, told in kinds.items():
        with pytest.raises(CheckpointError, match=told):
            require_regular_file(path)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_links_that_lead_nowhere(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").symlink_to("nowhere")
    assert "is a link to nowhere, which does not exist" in refusal(tmp_path / f"a{suffix}")
    (tmp_path / f"b{suffix}").symlink_to(f"c{suffix}")
    (tmp_path / f"c{suffix}").symlink_to(f"b{suffix}")
    assert f"is a link to c{suffix}, which can't be followed" in refusal(tmp_path / f"b{suffix}")


def test_a_link_to_no_tokenizer_is_told(tmp_path: Path) -> None:
    (model(tmp_path) / "tokenizer.json").symlink_to("blobs/lost")
    assert "tokenizer.json is a link to blobs/lost, which does not exist" in refusal(tmp_path)


@pytest.mark.parametrize("start", ['{"a": 1}', "[1]", "<html>", " {"])
def test_text_is_no_pickle(tmp_path: Path, start: str) -> None:
    (tmp_path / "part.bin").write_text(start)
    index = tmp_path / "a.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "part.bin"}}))
    assert "is text" in refusal(index)
    assert "is text" in refusal(tmp_path / "part.bin")
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "a.index.json"}}))
    assert "but it is JSON" in refusal(index)


def test_a_pointer_of_git_lfs(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "git lfs pull" in refusal(tmp_path / "a.bin")


def test_files_read_of_a_folder(tmp_path: Path) -> None:
    model(tmp_path)
    names = ["generation_config.json", "tokenizer_config.json", "added_tokens.json"]
    for name in names:
        (tmp_path / name).write_text("{}")
    (tmp_path / "vocab.json").write_text(json.dumps({f"w{i}": i for i in range(60)}))
    read = {"model.safetensors", "config.json", "vocab.json", *names}
    located = locate_layer(tmp_path)
    assert {path.name for path in located.files_read} == read
    assert len(located.files_read) == len(read)
    labels = tmp_path / "labels.txt"
    assert labels in located.with_names([""] * 60, labels).files_read


def test_files_read_of_shards_and_of_one_file(tmp_path: Path) -> None:
    save_file({"lm_head.weight": torch.randn(60, 4)}, tmp_path / "one.safetensors")
    save_file({"norm.weight": torch.ones(4)}, tmp_path / "two.safetensors")
    places = {"lm_head.weight": "one.safetensors", "norm.weight": "two.safetensors"}
    index = tmp_path / "a.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    read = (index, tmp_path / "one.safetensors", tmp_path / "two.safetensors")
    assert locate_layer(index).files_read == read
    np.savez(tmp_path / "a.npz", W=np.ones((9, 4)), b=np.ones(9))
    assert locate_layer(tmp_path / "a.npz").files_read == (tmp_path / "a.npz",)


def test_files_read_of_an_onnx_model(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    weight = onnx.numpy_helper.from_array(np.ones((4, 9), dtype=np.float32), "W")
    node = onnx.helper.make_node("MatMul", ["x", "W"], ["y"])
    kind = onnx.TensorProto.FLOAT
    inputs = [onnx.helper.make_tensor_value_info("x", kind, [1, 4])]
    outputs = [onnx.helper.make_tensor_value_info("y", kind, [1, 9])]
    graph = onnx.helper.make_graph([node], "g", inputs, outputs, [weight])
    made = onnx.helper.make_model(graph)
    options = {"save_as_external_data": True, "location": "a.data", "size_threshold": 0}
    onnx.save_model(made, tmp_path / "a.onnx", **options)
    located = locate_layer(tmp_path / "a.onnx")
    assert located.files_read == (tmp_path / "a.onnx", tmp_path / "a.data")
    assert read_layer(tmp_path / "a.onnx").classes == 9
    (tmp_path / "a.data").unlink()
    os.mkfifo(tmp_path / "a.data")
    with pytest.raises(CheckpointError, match="is a FIFO"):
        read_layer(tmp_path / "a.onnx")
