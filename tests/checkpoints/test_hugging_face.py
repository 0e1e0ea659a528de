"""Models that transformers itself saves: the head, its bias, its names, and who takes no part."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

transformers = pytest.importorskip("transformers")

from tests.checkpoints.text_files import fast_tokenizer, pieces, sentencepiece_model
from unarg_callback import CheckpointError, UnargError
from unarg_callback.checkpoints import locate_layer, read_layer

SMALL = {
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
    "max_position_embeddings": 16,
}
BLOCK = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}


def saved(folder: Path, kind: str, config: str, **options: Any) -> Any:
    """The model of that class, with all its parameters random, saved in the folder."""
    torch.manual_seed(0)
    made = getattr(transformers, config)(**{"vocab_size": 60, **options})
    model = getattr(transformers, kind)(made)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.normal_()
    model.save_pretrained(folder)
    return model


def changed(folder: Path, **settings: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        locate_layer(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 8, "n_layer": 1, "n_head": 2}),
    "marian": ("MarianMTModel", "MarianConfig", {**SMALL, "pad_token_id": 59}),
    "marian_apart": (
        "MarianMTModel",
        "MarianConfig",
        {
            **SMALL,
            "decoder_vocab_size": 50,
            "share_encoder_decoder_embeddings": False,
            "pad_token_id": 49,
            "decoder_start_token_id": 49,
        },
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", SMALL),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2},
    ),
    "bert": ("BertForMaskedLM", "BertConfig", BLOCK),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", BLOCK),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8},
    ),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**BLOCK, "embedding_size": 8}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", BLOCK),
    "llama_tied": ("LlamaForCausalLM", "LlamaConfig", {**BLOCK, "tie_word_embeddings": True}),
    "neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", BLOCK),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {**SMALL, "pad_token_id": 50, "eos_token_id": 50, "bos_token_id": 50},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_head_is_what_the_model_computes_with(tmp_path: Path, name: str) -> None:
    kind, config, options = MODELS[name]
    model = saved(tmp_path, kind, config, **options)
    layer = read_layer(tmp_path)
    head = model.get_output_embeddings()
    assert torch.equal(layer.weight, head.weight)
    bias = getattr(model, "final_logits_bias", head.bias)
    assert (layer.bias is None) == (bias is None)
    if bias is not None:
        assert bias.abs().min() > 0
        assert layer.bias is not None
        assert torch.equal(layer.bias, bias.reshape(-1))
    again = locate_layer(tmp_path / "model.safetensors")
    assert again.describe() == locate_layer(tmp_path).describe()


def test_tied_is_told(tmp_path: Path) -> None:
    saved(tmp_path, *MODELS["t5"][:2], **MODELS["t5"][2])
    assert "tied to the embedding: tie_word_embeddings in config.json" in (
        locate_layer(tmp_path).describe()
    )
    config = json.loads((tmp_path / "config.json").read_text())
    del config["tie_word_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "the file has no head" in locate_layer(tmp_path).describe()


def test_missing_and_not_tied(tmp_path: Path) -> None:
    saved(tmp_path, *MODELS["t5"][:2], **MODELS["t5"][2])
    changed(tmp_path, tie_word_embeddings=False)
    message = refusal(tmp_path)
    assert "its output layer is missing" in message
    assert "--weight NAME: shared.weight (60, 8)" in message
    assert read_layer(tmp_path, weight="shared.weight").classes == 60


def test_said_to_be_tied_but_different(tmp_path: Path) -> None:
    saved(tmp_path, *MODELS["llama"][:2], **MODELS["llama"][2])
    assert locate_layer(tmp_path).weight.name == "lm_head.weight"
    changed(tmp_path, tie_word_embeddings=True)
    message = refusal(tmp_path)
    assert "2 layers that could be meant" in message
    assert "lm_head.weight (60, 8)" in message
    assert "model.embed_tokens.weight (60, 8)" in message
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    assert "lm_head.weight = model.embed_tokens.weight" in locate_layer(tmp_path).describe()


def test_layers_of_the_same_name_elsewhere(tmp_path: Path) -> None:
    saved(tmp_path, *MODELS["whisper"][:2], **MODELS["whisper"][2])
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["vision.block.0.proj_out.weight"] = torch.randn(32, 8)
    save_file(tensors, tmp_path / "model.safetensors")
    assert locate_layer(tmp_path).weight.name == "model.decoder.embed_tokens.weight"
    tensors["proj_out.weight"], tensors["lm_head.weight"] = torch.randn(2, 60, 8).unbind()
    save_file({k: v.clone() for k, v in tensors.items()}, tmp_path / "model.safetensors")
    changed(tmp_path, tie_word_embeddings=False)
    assert "2 layers that could be meant" in refusal(tmp_path)


def test_two_biases_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, *MODELS["bart"][:2], **MODELS["bart"][2])
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.bias"] = tensors["final_logits_bias"].reshape(-1) + 1
    save_file(tensors, tmp_path / "model.safetensors")
    assert "2 biases" in refusal(tmp_path)


def test_model_without_head(tmp_path: Path) -> None:
    saved(tmp_path, "BertModel", "BertConfig", **BLOCK)
    message = refusal(tmp_path)
    assert "BertModel in config.json has no output layer" in message
    assert "embeddings.word_embeddings.weight (60, 8)" in message


def test_another_layer_is_not_given_the_tokens(tmp_path: Path) -> None:
    fast_folder(tmp_path, 80, pad_token="<pad>")
    changed(tmp_path, pad_token_id=1)
    name = "transformer.h.0.mlp.c_fc.weight"
    located = locate_layer(tmp_path, weight=name)
    assert located.classes == 32
    assert located.names is None
    assert located.exclusions == ()


def test_configuration_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"lr": 0.1, "vocab_size": 9}))
    save_file({"out.weight": torch.ones(9, 4)}, tmp_path / "model.safetensors")
    for path in (tmp_path, tmp_path / "model.safetensors"):
        located = locate_layer(path)
        assert located.weight.name == "out.weight"
        assert located.exclusions == ()


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    """A model of 8 GiB, of which the file system holds a page."""
    header = {
        "lm_head.weight": {"dtype": "F32", "shape": [60, 8], "data_offsets": [0, 1920]},
        "model.inner": {"dtype": "U8", "shape": [2**33], "data_offsets": [1920, 1920 + 2**33]},
    }
    start = json.dumps(header).encode()
    weight = torch.randn(60, 8)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(start).to_bytes(8, "little") + start + weight.numpy().tobytes())
        file.truncate(8 + len(start) + 1920 + 2**33)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert torch.equal(read_layer(tmp_path).weight, weight)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**30 / 1024


def test_quantised_head(tmp_path: Path) -> None:
    saved(tmp_path, *MODELS["llama"][:2], **MODELS["llama"][2])
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.qweight"] = tensors.pop("lm_head.weight").to(torch.int32)
    save_file(tensors, tmp_path / "model.safetensors")
    assert "kept in parts (lm_head.qweight" in refusal(tmp_path)


def test_classifier(tmp_path: Path) -> None:
    labels = {index: f"topic {index}" for index in range(12)}
    model = saved(tmp_path, "BertForSequenceClassification", "BertConfig", **BLOCK, id2label=labels)
    layer = read_layer(tmp_path)
    assert torch.equal(layer.weight, model.classifier.weight)
    assert layer.bias is not None
    assert layer.names == tuple(labels.values())
    assert layer.excluded == ()


def fast_folder(folder: Path, rows: int, **options: Any) -> Any:
    """GPT-2 with a tokenizer of the package tokenizers beside it."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast_tokenizer("BPE"), unk_token="<unk>", eos_token="</s>", **options
    )
    tokenizer.save_pretrained(folder)
    small = {"n_embd": 8, "n_layer": 1, "n_head": 2, "eos_token_id": 2, "bos_token_id": 2}
    saved(folder, "GPT2LMHeadModel", "GPT2Config", vocab_size=rows, **small)
    return tokenizer


def test_padding_rows_specials_and_names(tmp_path: Path) -> None:
    tokenizer = fast_folder(tmp_path, 80, pad_token="<pad>", mask_token="<mask>")
    known = len(tokenizer)
    assert known < 80
    changed(tmp_path, pad_token_id=1)
    located = locate_layer(tmp_path)
    text = located.describe()
    assert f"(rows beyond the vocabulary: tokenizer.json has ids up to {known - 1})" in text
    assert "excluded: 1 class (padding token: pad_token_id in config.json): 1" in text
    assert f"(mask token, only ever an input: tokenizer_config.json): {known - 1}" in text
    assert text.endswith("names: tokenizer.json")
    layer = located.load()
    assert layer.excluded == (1, known - 1, *range(known, 80))
    names = [tokenizer.convert_ids_to_tokens(index) for index in range(known)]
    assert layer.names == (*names, *(str(index) for index in range(known, 80)))
    assert located.load(excluded=[]).excluded == ()
    assert read_layer(tmp_path, excluded=[3]).excluded == (3,)


def test_a_token_with_another_role_stays(tmp_path: Path) -> None:
    fast_folder(tmp_path, 80, pad_token="</s>")
    changed(tmp_path, pad_token_id=2)
    assert locate_layer(tmp_path).exclusions[0].rule.startswith("rows beyond")
    assert 2 not in read_layer(tmp_path).excluded
    changed(tmp_path, pad_token_id=5)  # A leftover: the tokenizer pads with another.
    assert 5 not in read_layer(tmp_path).excluded


def test_forbidden_tokens(tmp_path: Path) -> None:
    fast_folder(tmp_path, 70)
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"bad_words_ids": [[7], [8, 9]], "suppress_tokens": [11, 12, 999]})
    )
    text = locate_layer(tmp_path).describe()
    assert "(never put out: bad_words_ids in generation_config.json): 7" in text
    assert "(never put out: suppress_tokens in generation_config.json): 11 to 12" in text
    assert not {8, 9} & set(read_layer(tmp_path).excluded)


def test_tokenizer_of_another_model(tmp_path: Path) -> None:
    fast_folder(tmp_path, 20)
    located = locate_layer(tmp_path)
    assert located.names is None
    assert "names: none, as tokenizer.json has ids up to" in located.describe()


def test_marian_with_its_tokenizer(tmp_path: Path) -> None:
    model = sentencepiece_model(tmp_path / "source")
    names = ["</s>", "<unk>", *(p for p in pieces(model) if p not in {"</s>", "<unk>"}), "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({n: i for i, n in enumerate(names)}))
    tokenizer = transformers.MarianTokenizer(
        source_spm=str(model), target_spm=str(model), vocab=str(tmp_path / "vocab.json")
    )
    folder = tmp_path / "opus"
    tokenizer.save_pretrained(folder)
    pad = len(names) - 1
    options = {**SMALL, "vocab_size": len(names), "pad_token_id": pad, "eos_token_id": 0}
    saved(folder, "MarianMTModel", "MarianConfig", **options, decoder_start_token_id=pad)
    layer = read_layer(folder)
    assert layer.names == tuple(names)
    assert layer.excluded == (pad,)
    assert layer.bias is not None


def test_added_tokens_are_no_padding(tmp_path: Path) -> None:
    fast_folder(tmp_path, 75)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps({f"w{i}": i for i in range(70)}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<a>": 70}))
    settings = {"added_tokens_decoder": {"72": {"content": "<b>", "special": True}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    layer = read_layer(tmp_path)
    assert layer.excluded == (73, 74)
    assert [layer.name(index) for index in (69, 70, 71, 72)] == ["w69", "<a>", "71", "<b>"]


def test_vocab_txt(tmp_path: Path) -> None:
    saved(tmp_path, *MODELS["bert"][:2], **MODELS["bert"][2])
    words = ["[PAD]", "[UNK]", "[MASK]", *(f"w{index}" for index in range(55))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": "[MASK]"}))
    layer = read_layer(tmp_path)
    assert layer.names == (*words, "58", "59")
    assert layer.excluded == (0, 2, 58, 59)


@pytest.mark.parametrize("name", ["llama", "llama_tied", "bart"])
def test_shards(tmp_path: Path, name: str) -> None:
    model = saved(tmp_path, *MODELS[name][:2], **MODELS[name][2])
    model.save_pretrained(tmp_path / "parts", max_shard_size="1KB")
    assert not (tmp_path / "parts/model.safetensors").exists()
    for path in (tmp_path / "parts", tmp_path / "parts/model.safetensors.index.json"):
        layer = read_layer(path)
        assert torch.equal(layer.weight, model.get_output_embeddings().weight)
        assert (layer.bias is not None) == (name == "bart")


@pytest.mark.parametrize("name", ["llama", "marian", "bert"])
def test_pickled_weights(tmp_path: Path, name: str) -> None:
    """As older versions saved them, tied weights under each of their names."""
    model = saved(tmp_path, *MODELS[name][:2], **MODELS[name][2])
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    expected = read_layer(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    layer = read_layer(tmp_path)
    assert torch.equal(layer.weight, expected.weight)
    assert (layer.bias is None) == (expected.bias is None)
    assert layer.excluded == expected.excluded


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_truncated(tmp_path: Path, name: str, kept: float) -> None:
    fast_folder(tmp_path, 70)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(kept * len(content))])
    assert name in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "[1]"),
        ("tokenizer.json", "{}"),
        ("generation_config.json", "3"),
        ("tokenizer_config.json", "{"),
    ],
)
def test_damaged_settings(tmp_path: Path, name: str, content: str) -> None:
    fast_folder(tmp_path, 70)
    (tmp_path / name).write_text(content)
    assert name in refusal(tmp_path)


def read_or_refuse(path: Path) -> None:
    try:
        read_layer(path)
    except UnargError as problem:
        assert "\n" not in str(problem)  # noqa: PT017 (to be read is right as well)


def test_odd_settings_are_refused_or_read(tmp_path: Path) -> None:
    """Settings of any type: never another error than one a person can act on."""
    fast_folder(tmp_path, 70, pad_token="<pad>")
    config = json.loads((tmp_path / "config.json").read_text())
    folder = tmp_path / "labels"
    saved(folder, "BertForSequenceClassification", "BertConfig", **BLOCK)
    labels = json.loads((folder / "config.json").read_text())
    odd: list[Any] = [None, [], {}, "x", -1, 10**20, True, [[None]], {"0": "a"}]
    keys = [
        "architectures",
        "tie_word_embeddings",
        "vocab_size",
        "pad_token_id",
        "id2label",
        "num_labels",
    ]
    for key in [*keys, "bad_words_ids", "suppress_tokens", "eos_token_id", "text_config"]:
        for value in odd:
            (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
            (folder / "config.json").write_text(json.dumps({**labels, key: value}))
            read_or_refuse(tmp_path)
            read_or_refuse(folder)


def test_folders_that_hold_no_model(tmp_path: Path) -> None:
    assert "is a folder without a config.json" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "no weights; expected model.safetensors or" in refusal(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "merge_and_unload" in refusal(tmp_path)
