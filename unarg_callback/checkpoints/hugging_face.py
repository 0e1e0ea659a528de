"""Models as transformers saves them: which weight is the output layer, by ``config.json``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from unarg_callback.checkpoints.candidates import Candidate, candidates, is_matrix, merged
from unarg_callback.checkpoints.folders import read_json
from unarg_callback.checkpoints.hugging_face_names import label_names, token_names
from unarg_callback.checkpoints.parts import changes_layer, hidden_text, hidden_weights
from unarg_callback.checkpoints.regular_files import present
from unarg_callback.checkpoints.safetensors_file import open_safetensors
from unarg_callback.checkpoints.sharded import open_sharded
from unarg_callback.checkpoints.tensor_file import Entry, KnownLayer, TensorFile, listing, shown
from unarg_callback.checkpoints.torch_file import open_torch
from unarg_callback.errors import CheckpointError

CONFIG = "config.json"
WEIGHTS: dict[str, Callable[[Path], TensorFile]] = {
    "model.safetensors": open_safetensors,
    "model.safetensors.index.json": open_sharded,
    "pytorch_model.bin": open_torch,
    "pytorch_model.bin.index.json": open_sharded,
}
"""Files of weights in the order in which transformers looks for them."""
_SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier")
"""Settings of one factor for all scores."""
_ADAPTER_CONFIG = "adapter_config.json"
_QUANTISATION = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
"""Where AutoGPTQ, AutoAWQ and ModelOpt say it, if not in the model's own configuration."""

_STEMS = (
    r"lm_head(?:\.decoder|\.linear)?|embed_out|proj_out|cls\.predictions\.decoder|"
    r"predictions\.decoder|vocab_projector|generator_lm_head|lm_loss|pred_layer\.proj"
)
_HEAD = re.compile(rf"(?:^|\.)(?:{_STEMS})\.weight$")
_HEAD_BIAS = re.compile(
    rf"(?:^|\.)(?:final_logits_bias|(?:{_STEMS}|cls\.predictions|predictions)\.bias)$"
)
_OF_A_HEAD = re.compile(rf"(?:^|\.)(?:{_STEMS})\.(.+)$")
_PACKED = re.compile(
    r"qweight|weight_packed|weight\.\w+|qzeros|scales|W_q$|codebooks?$|codes$|original_module\."
)
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|shared|wte|word_embeddings?|embed_in|tok_embeddings|tokens_embed|"
    r"embeddings)\.weight$"
)
_WITH_TOKENS = re.compile(
    r"ForCausalLM|LMHead|ForConditionalGeneration|MTModel|ForMaskedLM|ForPreTraining|"
    r"EncoderDecoderModel|ForSpeechSeq2Seq|ForVision2Seq|ForImageTextToText|Seq2SeqLM"
)
_WITH_LABELS = re.compile(r"For(?:\w*)Classification")


def is_weights_of_model(path: Path) -> bool:
    """Whether a file is one that transformers saves, with the model's configuration beside it."""
    return path.name in WEIGHTS and present(path.parent / CONFIG)


def open_hugging_face(path: Path) -> TensorFile:
    """List the tensors of a model, and the output layer that its configuration implies.

    Args:
        path: the folder, or its file of weights.

    Raises:
        CheckpointError: a file is missing, damaged or another format.
    """
    folder, weights = (path, _weights(path)) if path.is_dir() else (path.parent, path)
    config = read_json(folder / CONFIG)
    file = WEIGHTS[weights.name](weights)
    files = (*file.files, folder / CONFIG, *_quantisation_files(folder))
    file = replace(file, files=files, quantised=_quantised(folder, config))
    if not config.keys() & {"architectures", "model_type"}:
        return file  # A configuration of something else, which says nothing of the head.
    known: list[KnownLayer] = []
    refusal = ""
    kinds = config.get("architectures")
    kind = str(kinds[0]) if isinstance(kinds, list) and kinds else ""
    if _WITH_LABELS.search(kind):
        known, refusal = _label_head(file, config)
        return replace(
            file,
            known=tuple(known),
            refusal=refusal,
            vocabulary=lambda classes: label_names(config, classes),
        )
    known, refusal = _token_head(file, config, kind)
    return replace(
        file,
        known=tuple(known),
        refusal=refusal,
        vocabulary=lambda classes: token_names(folder, config, classes),
    )


def _weights(folder: Path) -> Path:
    found = next((folder / name for name in WEIGHTS if present(folder / name)), None)
    if present(folder / _ADAPTER_CONFIG):
        if found is None:
            raise CheckpointError(
                f"{folder} holds an adapter alone; merge it into its model (merge_and_unload) and "
                "save that"
            )
        raise CheckpointError(
            f"{folder} holds an adapter ({_ADAPTER_CONFIG}) beside a model: merge it "
            f"(merge_and_unload) and save that, or name {found.name} itself to leave it out"
        )
    if found is not None:
        return found
    raise CheckpointError(
        f"{folder} is a folder with a {CONFIG} but no weights; expected {' or '.join(WEIGHTS)}"
    )


def _quantised(folder: Path, config: dict[str, Any]) -> str:
    """What says that the model is quantised, in whole or in part; empty if nothing does."""
    for part in (config, config.get("text_config"), config.get("decoder")):
        for key in ("quantization_config", "compression_config"):
            if isinstance(part, dict) and part.get(key):
                method = part[key].get("quant_method") if isinstance(part[key], dict) else None
                told = f": {shown(method)}" if isinstance(method, str) else ""
                return f"{key} in {CONFIG}{told}"
    return next((path.name for path in _quantisation_files(folder)), "")


def _quantisation_files(folder: Path) -> list[Path]:
    return [folder / name for name in _QUANTISATION if present(folder / name)]


def _token_head(
    file: TensorFile, config: dict[str, Any], kind: str
) -> tuple[list[KnownLayer], str]:
    """The head over tokens: in the file, or tied to an embedding."""
    parts = [entry for entry in file.entries if _is_part_of_a_head(entry)]
    if parts:
        what = f"the output layer is kept in parts ({parts[0]})"
        return [], f"{what}; dequantise it, or merge its adapter (merge_and_unload), and save that"
    scale = next((key for key in _SCALES if _turns_round(_setting(config, key))), "")
    if scale:
        what = f"{scale} in {CONFIG} is {_setting(config, scale)}, which isn't above 0"
        return [], f"{what}: the argmax of its scores is not that of Wx + b"
    sizes = _vocabulary_sizes(config)
    heads = [
        entry
        for entry in file.entries
        if _HEAD.search(entry.name)
        and is_matrix(entry)
        and entry.shape[0] in (sizes or entry.shape)
    ]
    tied = _setting(config, "tie_word_embeddings")
    embeddings = _embeddings(file, config, heads)
    if heads:
        found = merged(file, [Candidate(e, None) for e in (*heads, *embeddings * (tied is True))])
        return [_known(file, candidate, "") for candidate in found], ""
    if not _WITH_TOKENS.search(kind):
        what = f"{kind or 'the model'} in {CONFIG} has no output layer that is known here"
        return [], what
    if tied is False:
        return [], f"its output layer is missing, and {CONFIG} says tie_word_embeddings: false"
    if not embeddings:
        return [], "it has neither an output layer nor an embedding with one row a token"
    why = (
        "tied to the embedding: tie_word_embeddings in config.json"
        if tied
        else "tied to the embedding, as always where the file has no head and config.json doesn't "
        "forbid it"
    )
    found = merged(file, [Candidate(entry, None) for entry in embeddings])
    return [_known(file, candidate, why) for candidate in found], ""


def _turns_round(scale: Any) -> bool:
    """Whether scores times this no longer have the same argmax."""
    return isinstance(scale, int | float) and not scale > 0


def _known(file: TensorFile, candidate: Candidate, why: str) -> KnownLayer:
    bias = _bias(file, candidate.weight.shape[0])
    return KnownLayer(candidate.weight, bias, tied=candidate.tied, why=why)


def _is_part_of_a_head(entry: Entry) -> bool:
    match = _OF_A_HEAD.search(entry.name)
    return match is not None and (changes_layer(match[1]) or _PACKED.match(match[1]) is not None)


def _bias(file: TensorFile, rows: int) -> Entry | None:
    """The bias over tokens, which lies apart from a tied weight; copies of it count once.

    One that doesn't fit is given where no other does, and always if it can be no other layer's:
    it is refused then, and never left out without a word.
    """
    named = [entry for entry in file.entries if _HEAD_BIAS.search(entry.name)]
    odd = [entry for entry in named if not entry.numeric or entry.length != rows]
    lost = next((entry for entry in odd if entry.name.endswith("final_logits_bias")), None)
    if odd and (lost is not None or len(odd) == len(named)):
        return lost or odd[0]
    found: list[Entry] = []
    for entry in named:
        if entry in odd:
            continue
        if not any(_same(file, entry, other) for other in found):
            found.append(entry)
    if len(found) > 1:
        raise CheckpointError(
            f"{file.path} holds {len(found)} biases that could be the output layer's: "
            f"{listing(found)}; add them up, and save the model with one"
        )
    return found[0] if found else None


def _same(file: TensorFile, one: Entry, other: Entry) -> bool:
    return file.fingerprint(one) == file.fingerprint(other) and file.identical(one, other)


def _embeddings(file: TensorFile, config: dict[str, Any], heads: list[Entry]) -> list[Entry]:
    """Embeddings of what the model puts out: with a row for each token of that side."""
    sizes = {entry.shape[0] for entry in heads} or _vocabulary_sizes(config)
    found = [
        entry
        for entry in file.entries
        if _EMBEDDING.search(entry.name) and is_matrix(entry) and entry.shape[0] in sizes
    ]
    of_decoder = [entry for entry in found if "decoder." in entry.name]
    shared = [entry for entry in found if "encoder." not in entry.name]
    return of_decoder or shared


def _vocabulary_sizes(config: dict[str, Any]) -> set[int]:
    """How many tokens the output has, by the first setting that says so; empty if none does."""
    for part in (config, config.get("text_config"), config.get("decoder")):
        for key in ("decoder_vocab_size", "vocab_size"):
            if isinstance(part, dict) and type(part.get(key)) is int:
                return {part[key]}
    return set()


def _setting(config: dict[str, Any], key: str) -> Any:
    parts = (config, config.get("text_config"), config.get("decoder"))
    return next((p[key] for p in parts if isinstance(p, dict) and p.get(key) is not None), None)


def _label_head(file: TensorFile, config: dict[str, Any]) -> tuple[list[KnownLayer], str]:
    """The head over labels: the only layer with one row a label."""
    labels = config.get("id2label")
    number = config.get("num_labels")
    count = len(labels) if isinstance(labels, dict) else number if type(number) is int else 2
    found = [c for c in candidates(file, None) if c.weight.shape[0] == count]
    hidden = [entry for entry in hidden_weights(file) if entry.shape[0] == count]
    if hidden:
        return [], f"its layer over labels is not plain: {hidden_text(file, hidden[0])}"
    if not found:
        return [], f"it has no layer with one row for each of the {count} labels of {CONFIG}"
    return [KnownLayer(c.weight, c.bias, tied=c.tied) for c in found], ""
