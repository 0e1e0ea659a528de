"""Names in a folder of transformers: which file they are from, or why there are none."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.checkpoints.refusals import refusal
from tests.checkpoints.text_files import pieces, sentencepiece_model
from unarg_callback.checkpoints import locate_layer, read_layer


def model(folder: Path, rows: int = 60, **settings: Any) -> Path:
    """A folder with a head alone; tensors beside it by ``beside``."""
    beside: dict[str, Tensor] = settings.pop("beside", {})
    tensors = {"lm_head.weight": torch.randn(rows, 4), **beside}
    save_file(tensors, folder / "model.safetensors")
    config = {"vocab_size": rows, "model_type": "gpt2", "tie_word_embeddings": False, **settings}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.model",
        "spiece.model",
        "sentencepiece.bpe.model",
        "source.spm",
        "qwen.tiktoken",
        "tekken.json",
        "merges.txt",
        "dict.en.txt",
    ],
)
def test_a_tokenizer_that_is_not_used_is_told(tmp_path: Path, name: str) -> None:
    (model(tmp_path) / name).write_bytes(b"anything")
    text = locate_layer(tmp_path).describe()
    assert f"names: none, as the folder has {name}, but for this model_type" in text
    assert "--labels FILE" in text


def test_no_tokenizer_at_all(tmp_path: Path) -> None:
    text = locate_layer(model(tmp_path)).describe()
    assert "names: none, as the folder has no tokenizer" in text


def test_an_empty_vocabulary(tmp_path: Path) -> None:
    (model(tmp_path) / "vocab.json").write_text("{}")
    assert "names: none, as vocab.json is empty" in locate_layer(tmp_path).describe()


@pytest.mark.parametrize("kind", ["llama", ["llama"], {"llama": 1}])
def test_pieces_where_their_ids_are_the_rows(tmp_path: Path, kind: Any) -> None:
    pytest.importorskip("sentencepiece")
    path = sentencepiece_model(tmp_path / "a")
    names = pieces(path)
    path.rename(tmp_path / "tokenizer.model")
    model(tmp_path, len(names), model_type=kind)
    expected = tuple(names) if kind == "llama" else None
    assert read_layer(tmp_path).names == expected


def test_vocab_txt_of_random_bytes(tmp_path: Path) -> None:
    (model(tmp_path) / "vocab.txt").write_bytes(random.Random(0).randbytes(1000))
    assert "vocab.txt is not UTF-8" in refusal(tmp_path)


@pytest.mark.parametrize("known", [1, 29, 30, 60])
@pytest.mark.parametrize("name", ["vocab.txt", "vocab.json"])
def test_a_vocabulary_for_less_than_half_of_the_rows(tmp_path: Path, name: str, known: int) -> None:
    words = [f"w{index}" for index in range(known)]
    table = json.dumps({word: index for index, word in enumerate(words)})
    (model(tmp_path) / name).write_text(table if name == "vocab.json" else "\n".join(words))
    text = locate_layer(tmp_path).describe()
    assert (f"{name}, which names only {known} of 60 rows" in text) == (known < 30)


def test_a_bias_of_another_length(tmp_path: Path) -> None:
    model(tmp_path, beside={"final_logits_bias": torch.zeros(1, 7)})
    assert "bias final_logits_bias (1, 7) has 7 values" in refusal(tmp_path)
    assert read_layer(tmp_path, bias="none").bias is None


@pytest.mark.parametrize("odd", [torch.zeros(2, 30), torch.zeros(60, dtype=torch.bool)])
def test_a_bias_of_another_kind(tmp_path: Path, odd: Tensor) -> None:
    model(tmp_path, beside={"final_logits_bias": odd})
    assert "final_logits_bias" in refusal(tmp_path)


def test_a_bias_beside_one_that_fits(tmp_path: Path) -> None:
    beside = {"lm_head.bias": torch.ones(60), "final_logits_bias": torch.zeros(7)}
    model(tmp_path, beside=beside)
    assert "final_logits_bias" in refusal(tmp_path)
    layer = read_layer(tmp_path, bias="lm_head.bias")
    assert layer.bias is not None


@pytest.mark.parametrize("key", ["logit_scale", "logits_scaling", "lm_head_multiplier"])
@pytest.mark.parametrize("value", [-1.0, 0])
def test_scores_that_are_turned_round(tmp_path: Path, key: str, value: float) -> None:
    settings: dict[str, Any] = {key: value}
    assert f"{key} in config.json is {value}" in refusal(model(tmp_path, **settings))
    settings[key] = 2.5
    model(tmp_path, **settings)
    assert read_layer(tmp_path).classes == 60
