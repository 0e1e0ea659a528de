"""Marian and Nematus archives: every way in which they keep the output matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unarg_callback import CheckpointError
from unarg_callback.checkpoints import locate_layer, read_layer

RNG = np.random.default_rng(0)
W = RNG.standard_normal((10, 4)).astype(np.float32)
B = RNG.standard_normal((1, 10)).astype(np.float32)
OTHER = RNG.standard_normal((10, 4)).astype(np.float32)
SQUARE = RNG.standard_normal((4, 4)).astype(np.float32)
INNER = {
    "decoder_l1_ffn_W1": SQUARE,
    "decoder_l1_ffn_b1": np.zeros((1, 4), np.float32),
    "encoder_l1_ffn_W1": SQUARE,
}


def settings(**options: Any) -> NDArray[np.int8]:
    """``special:model.yml`` as Marian writes it: YAML in bytes, ended by a zero."""
    yaml = pytest.importorskip("yaml")
    known = {
        "type": "transformer",
        "dim-vocabs": [12, 10],
        "tied-embeddings": False,
        "tied-embeddings-all": False,
        "tied-embeddings-src": False,
        "lemma-dim-emb": 0,
        "transformer-heads": 8,
        "version": "v1.12.0 65bf82ff 2023-02-21 09:56:29 -0800",
    }
    named = {key.replace("_", "-"): value for key, value in options.items()}
    text = yaml.safe_dump({**known, **named}, sort_keys=True)
    return np.frombuffer(text.encode() + b"\0", dtype=np.int8)


def archive(path: Path, arrays: dict[str, Any], **options: Any) -> Path:
    everything: dict[str, Any] = {**INNER, **arrays, "special:model.yml": settings(**options)}
    np.savez(path, **everything)
    return path


def saved(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        locate_layer(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


OUT, RNN = "decoder_ff_logit_out", "decoder_ff_logit_l2"
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "regular": ({f"{OUT}_Wt": W, f"{OUT}_b": B, "decoder_Wemb": OTHER}, {}),
    "legacy": ({f"{OUT}_W": W.T, f"{OUT}_b": B, "decoder_Wemb": OTHER}, {}),
    "rnn": (
        {f"{RNN}_W": W.T, f"{RNN}_b": B, "decoder_ff_logit_l1_W0": SQUARE, "decoder_Wemb": OTHER},
        {"type": "s2s"},
    ),
    "tied": (
        {"decoder_Wemb": W, f"{OUT}_b": B, "encoder_Wemb": OTHER},
        {"tied_embeddings": True},
    ),
    "tied_all": ({"Wemb": W, f"{OUT}_b": B}, {"tied_embeddings_all": True}),
    "tied_src": (
        {"Wemb": W, f"{OUT}_b": B},
        {"tied_embeddings": True, "tied_embeddings_src": True},
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("with_settings", [True, False])
def test_every_way_to_keep_it(tmp_path: Path, way: str, with_settings: bool) -> None:
    arrays, options = WAYS[way]
    if with_settings:
        path = archive(tmp_path / "model.npz", arrays, **options)
    else:
        path = tmp_path / "model.npz"
        saved(path, {**arrays, **INNER})
    layer = read_layer(path)
    assert np.array_equal(layer.weight.numpy(), W)
    assert layer.bias is not None
    assert np.array_equal(layer.bias.numpy(), B[0])
    assert "(Marian" in locate_layer(path).describe()


def test_square_matrices_are_turned_by_their_names(tmp_path: Path) -> None:
    bias = np.zeros((1, 4), np.float32)
    for name, expected in ((f"{OUT}_Wt", SQUARE), (f"{OUT}_W", SQUARE.T)):
        path = archive(tmp_path / "model.npz", {name: SQUARE, f"{OUT}_b": bias}, dim_vocabs=[4, 4])
        assert np.array_equal(read_layer(path).weight.numpy(), expected)


def test_without_bias(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", {"Wemb": W}, tied_embeddings_all=True, output_omit_bias=True)
    assert read_layer(path).bias is None
    assert read_layer(archive(tmp_path / "b.npz", {f"{OUT}_Wt": W})).bias is None


def test_the_user_may_name_another(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", WAYS["regular"][0])
    layer = read_layer(path, weight="decoder_Wemb", bias="none", orientation="classes-first")
    assert np.array_equal(layer.weight.numpy(), OTHER)
    assert read_layer(path, bias="none").bias is None


@pytest.mark.parametrize(
    ("arrays", "options"),
    [
        ({}, {"lemma_dim_emb": 64}),
        ({}, {"lemma_dim_emb": -2}),
        ({}, {"lemma_dependency": "soft-transformer-layer"}),
        ({}, {"vocabs": ["a.fsv", "b.fsv"]}),
        ({f"{OUT}_lemmaEt": SQUARE}, {}),
    ],
)
def test_factored_vocabularies(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any]
) -> None:
    path = archive(tmp_path / "a.npz", {**WAYS["regular"][0], **arrays}, **options)
    assert "factored vocabulary" in refusal(path)
    assert "factored vocabulary" in refusal(path, weight=f"{OUT}_Wt")


def test_rows_that_are_not_the_words(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", WAYS["regular"][0], dim_vocabs=[12, 9])
    message = refusal(path)
    assert "has 10 classes, but dim-vocabs in special:model.yml says 9" in message


def test_missing_parts(tmp_path: Path) -> None:
    message = refusal(archive(tmp_path / "a.npz", {"decoder_Wemb": W}))
    assert "neither decoder_ff_logit_out_Wt nor decoder_ff_logit_out_b" in message
    assert "decoder_Wemb (10, 4)" in message
    path = archive(tmp_path / "b.npz", {f"{OUT}_b": B}, tied_embeddings_all=True)
    assert "which is missing" in refusal(path)


def test_two_heads_are_ambiguous(tmp_path: Path) -> None:
    arrays = {f"{OUT}_Wt": W, f"{OUT}_b": B, f"{RNN}_W": OTHER.T, f"{RNN}_b": B}
    message = refusal(archive(tmp_path / "a.npz", arrays))
    assert "2 layers that could be meant" in message
    assert read_layer(tmp_path / "a.npz", weight=f"{RNN}_W").classes == 10


def test_bias_of_another_length(tmp_path: Path) -> None:
    arrays = {f"{OUT}_Wt": W, f"{OUT}_b": B[:, :7]}
    assert "has 7" in refusal(archive(tmp_path / "a.npz", arrays))


def test_quantised(tmp_path: Path) -> None:
    arrays = {f"{OUT}_Wt": (W * 10).astype(np.int8), f"{OUT}_b": B}
    assert "quantised" in refusal(archive(tmp_path / "a.npz", arrays))


def test_settings_are_text_and_run_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    evil = f"type: !!python/object/apply:pathlib.Path.touch [{canary}]\n"
    data = np.frombuffer(evil.encode(), dtype=np.uint8)
    saved(tmp_path / "a.npz", {f"{OUT}_Wt": W, f"{OUT}_b": B, "special:model.yml": data})
    assert read_layer(tmp_path / "a.npz").classes == 10
    assert not canary.exists()


@pytest.mark.parametrize("kept", [0.2, 0.9, 0.99])
def test_truncated(tmp_path: Path, kept: float) -> None:
    path = archive(tmp_path / "a.npz", WAYS["regular"][0])
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert "truncated" in refusal(path)


HIDDEN = {
    "ff_logit_lstm_W": SQUARE,
    "ff_logit_lstm_b": np.zeros(4, np.float32),
    "ff_logit_prev_W": SQUARE,
    "ff_logit_ctx_W": SQUARE,
    "Wemb": OTHER,
}
TF = "decoder/next_word_predictor/hidden_to_logits"
NEMATUS: dict[str, dict[str, Any]] = {
    "own": {**HIDDEN, "ff_logit_W": W.T, "ff_logit_b": B[0], "Wemb_dec": OTHER},
    "tied": {**HIDDEN, "ff_logit_b": B[0], "Wemb_dec": W},
    "tied_all": {**HIDDEN, "ff_logit_b": B[0], "Wemb": W},
    "tensorflow": {**HIDDEN, f"{TF}/W:0": W.T, f"{TF}/b:0": B[0]},
}


@pytest.mark.parametrize("way", NEMATUS)
def test_nematus(tmp_path: Path, way: str) -> None:
    history = {"history_errs": np.array([], dtype=object)}
    saved(tmp_path / "model.npz", {**NEMATUS[way], **history})
    layer = read_layer(tmp_path / "model.npz")
    assert np.array_equal(layer.weight.numpy(), W)
    assert layer.bias is not None
    assert np.array_equal(layer.bias.numpy(), B[0])
    assert "(Nematus" in locate_layer(tmp_path / "model.npz").describe()


def test_nematus_without_its_matrix(tmp_path: Path) -> None:
    saved(tmp_path / "model.npz", {**HIDDEN, "ff_logit_b": B[0, :7], "Wemb_dec": W})
    message = refusal(tmp_path / "model.npz")
    assert "neither an output matrix (ff_logit_W)" in message
    assert "Wemb_dec (10, 4)" in message


def test_nematus_of_the_wrong_shape(tmp_path: Path) -> None:
    arrays = {**HIDDEN, "ff_logit_W": W[:, :3].T, "ff_logit_b": B[0, :7]}
    saved(tmp_path / "model.npz", arrays)
    assert "has 7 values, but ff_logit_W (3, 10) has 3 rows" in refusal(tmp_path / "model.npz")
