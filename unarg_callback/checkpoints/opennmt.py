"""OpenNMT-py's ``.pt``: the generator, which lies beside the model.

Facts: OpenNMT-py, ``onmt/models/model_saver.py`` and ``onmt/modules/copy_generator.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unarg_callback.checkpoints.tensor_file import KnownLayer, TensorFile
from unarg_callback.checkpoints.vocabulary import Exclusion, Vocabulary, exclusive, scarce

_PAD = "<blank>"


def is_opennmt(content: Mapping[Any, Any]) -> bool:
    """Whether it is a checkpoint with OpenNMT-py's keys."""
    return isinstance(content.get("model"), Mapping) and (
        isinstance(content.get("generator"), Mapping) or ("vocab" in content and "opt" in content)
    )


def opennmt_layer(file: TensorFile, content: Mapping[Any, Any]) -> TensorFile:
    """The file with the output layer that OpenNMT-py would use.

    Args:
        file: its tensors.
        content: what :func:`is_opennmt` says yes to.
    """
    generator = content.get("generator")
    names = [str(name) for name in generator] if isinstance(generator, Mapping) else []
    if any(name.startswith("linear_copy.") for name in names):
        return replace(
            file,
            refusal="it copies words (copy attention): its scores are a mixture, and no function "
            "Wx + b of one input",
        )
    known = []
    for stem in ("", "0."):
        weight = file.by_name.get(f"generator.{stem}weight")
        if weight is not None:
            bias = file.by_name.get(f"generator.{stem}bias")
            known.append(KnownLayer(weight, bias, why="OpenNMT-py"))
    return replace(
        file,
        known=tuple(known),
        refusal="it has no generator with one weight (generator.weight, generator.0.weight)",
        vocabulary=lambda classes: _vocabulary(content, classes),
    )


def _vocabulary(content: Mapping[Any, Any], classes: int) -> Vocabulary:
    """Names from version 3 on, where the vocabulary is a plain list."""
    vocab = content.get("vocab")
    words = vocab.get("tgt") if isinstance(vocab, Mapping) else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return Vocabulary()
    if len(words) > classes:
        note = f"names: none, as the target vocabulary has {len(words)} words for {classes} rows"
        return Vocabulary(note=note)
    rest = tuple(range(len(words), classes))
    padding = tuple(index for index, word in enumerate(words) if word == _PAD)
    exclusions = exclusive(
        [
            Exclusion(rest, f"rows beyond the vocabulary, which has {len(words)} words"),
            Exclusion(padding, f"padding token: {_PAD}, never a target"),
        ]
    )
    names = (*words, *(str(index) for index in rest))
    return Vocabulary(
        names, exclusions, f"names: the target vocabulary in the file{scarce(len(words), classes)}"
    )
