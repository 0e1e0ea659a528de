"""fairseq's ``.pt``: the output projection, or the embedding that it shares.

Facts: fairseq, ``TransformerDecoder.upgrade_state_dict_named``, ``data/dictionary.py`` and
``sequence_generator.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unarg_callback.checkpoints.parts import is_part, part_text
from unarg_callback.checkpoints.tensor_file import Entry, KnownLayer, TensorFile
from unarg_callback.checkpoints.vocabulary import Exclusion, Vocabulary

_HEADS = {
    "decoder.output_projection.weight": "decoder.output_projection.bias",
    "decoder.embed_out": "",  # A bare parameter, in older versions.
    "decoder.fc_out.weight": "decoder.fc_out.bias",  # LSTM.
    "encoder.lm_head.weight": "encoder.lm_head.bias",  # RoBERTa.
    "decoder.lm_head.weight": "decoder.lm_head.bias",
}
_OF_A_HEAD = re.compile(
    r"(?:model\.)?(?:decoder\.(?:output_projection|fc_out|lm_head|embed_out)|encoder\.lm_head)[._]"
)
_EMBEDDING = "decoder.embed_tokens.weight"
_SHARED = ("share_decoder_input_output_embed", "share_all_embeddings")
_PAD = 1
"""Every dictionary of fairseq starts with ``<s> <pad> </s> <unk>``."""


def is_fairseq(content: Mapping[Any, Any]) -> bool:
    """Whether it is a checkpoint with fairseq's keys."""
    model = content.get("model")
    return (
        isinstance(model, Mapping)
        and ("args" in content or "cfg" in content)
        and any(str(name).startswith(("decoder.", "encoder.")) for name in model)
    )


def fairseq_layer(file: TensorFile, content: Mapping[Any, Any]) -> TensorFile:
    """The file with the output layer that fairseq would use.

    Args:
        file: its tensors.
        content: what :func:`is_fairseq` says yes to.
    """
    if any("adaptive_softmax." in entry.name for entry in file.entries):
        return replace(
            file,
            refusal="it has an adaptive softmax, which is no single matrix with one row a class",
        )
    parts = [e for e in file.entries if is_part(file, e) and _OF_A_HEAD.match(e.name)]
    if parts:
        what = part_text(file, parts[0])
        return replace(file, refusal=f"its output layer is kept in parts: {what}")
    known = []
    for name, bias in _HEADS.items():
        weight = _entry(file, name)
        if weight is not None:
            known.append(KnownLayer(weight, _entry(file, bias), why="fairseq"))
    embedding = _entry(file, _EMBEDDING)
    if not known and embedding is not None:
        options = _options(content)
        shared = next((key for key in _SHARED if options.get(key) is True), None)
        if shared is None:
            return replace(
                file,
                refusal="it has no output projection, and its settings don't say that it shares "
                "the decoder's embedding",
            )
        known = [KnownLayer(embedding, None, why=f"fairseq, tied to the embedding: {shared}")]
    if not known:
        return file
    return replace(file, known=tuple(known), vocabulary=_vocabulary)


def _entry(file: TensorFile, name: str) -> Entry | None:
    return file.by_name.get(name) or file.by_name.get(f"model.{name}")


def _options(content: Mapping[Any, Any]) -> dict[str, Any]:
    """The settings of the model, in the places where the versions of fairseq keep them."""
    cfg = content.get("cfg")
    inner = cfg.get("model") if isinstance(cfg, Mapping) else None
    found: dict[str, Any] = {}
    for part in (content.get("args"), inner):
        values = part if isinstance(part, Mapping) else getattr(part, "__dict__", {})
        found.update({str(key): value for key, value in values.items()})
    return found


def _vocabulary(classes: int) -> Vocabulary:
    rule = f"padding token: fairseq never puts out <pad>, id {_PAD}"
    return Vocabulary(exclusions=(Exclusion((_PAD,), rule),) if classes > _PAD else ())
