"""Marian's ``.npz``: which array is the output matrix, and which way it is turned.

Facts: marian-dev, ``src/layers/output.cpp`` (``Output::lazyConstruct``) and the configuration that
every model carries in the array ``special:model.yml``.
"""

from __future__ import annotations

import re
from dataclasses import replace

from unarg_callback.checkpoints.flat_yaml import items, switched_on, top_level
from unarg_callback.checkpoints.tensor_file import Entry, KnownLayer, TensorFile, raw_bytes
from unarg_callback.errors import CheckpointError

CONFIG = "special:model.yml"
_HEADS = ("decoder_ff_logit_out", "decoder_ff_logit_l2")
"""The last layer of a transformer, and of an RNN (whose ``_l1`` is a hidden layer)."""
_FACTORED = re.compile(r"_lemma(Et|Bt|W)|(^|_)factors?($|_)")


def is_marian(file: TensorFile) -> bool:
    """Whether the arrays have Marian's names."""
    names = file.by_name
    return CONFIG in names or any(name.startswith(_HEADS) for name in names)


def marian_layer(file: TensorFile) -> TensorFile:
    """The file with the output layer that Marian would use.

    ``PREFIX_Wt`` is (classes, features), the legacy ``PREFIX_W`` (features, classes), and a tied
    embedding (classes, features).

    Args:
        file: what :func:`is_marian` says yes to.

    Raises:
        CheckpointError: the vocabulary is factored or the weights are quantised: then the classes
            are not the rows of one matrix of numbers.
    """
    config = _config(file)
    _refuse_factored(file, config)
    biases: list[Entry | None] = [
        entry for p in _HEADS if (entry := file.by_name.get(f"{p}_b")) is not None
    ]
    known = []
    for prefix in _HEADS:
        bias = file.by_name.get(f"{prefix}_b")
        if (weight := file.by_name.get(f"{prefix}_W")) is not None:
            known.append(KnownLayer(weight, bias, "features-first", why="Marian, legacy"))
        elif (weight := file.by_name.get(f"{prefix}_Wt")) is not None:
            known.append(KnownLayer(weight, bias, "classes-first", why="Marian"))
    if known:
        return _checked(replace(file, known=tuple(known)), config)
    if not biases and not switched_on(config.get("output-omit-bias")):
        return replace(
            file,
            refusal=f"it has Marian's names, but neither {_HEADS[0]}_Wt nor {_HEADS[0]}_b",
        )
    tied = _tied(file, config)
    if tied is None:
        return replace(
            file, refusal="its output is tied to an embedding of Marian's, which is missing"
        )
    layers = [
        KnownLayer(tied, bias, "classes-first", why="Marian, tied to the embedding")
        for bias in biases or [None]
    ]
    return _checked(replace(file, known=tuple(layers)), config)


def _config(file: TensorFile) -> dict[str, str | list[str]]:
    entry = file.by_name.get(CONFIG)
    if entry is None:
        return {}
    data = raw_bytes(file.load(CONFIG)).numpy().tobytes().rstrip(b"\0")
    return top_level(data.decode("utf-8", "replace"))


def _refuse_factored(file: TensorFile, config: dict[str, str | list[str]]) -> None:
    lemmas = str(config.get("lemma-dim-emb", "0"))
    named = any(vocab.endswith(".fsv") for vocab in items(config.get("vocabs")))
    arrays = any(_FACTORED.search(name) for name in file.by_name)
    if lemmas not in {"0", ""} or config.get("lemma-dependency") or named or arrays:
        raise CheckpointError(
            f"{file.path} is a Marian model with a factored vocabulary: rows of its output matrix "
            "are factors, and a word's score is a sum over them; expected one row a word"
        )


def _tied(file: TensorFile, config: dict[str, str | list[str]]) -> Entry | None:
    """The embedding that is the output matrix too."""
    if switched_on(config.get("tied-embeddings-all")) or switched_on(
        config.get("tied-embeddings-src")
    ):
        return file.by_name.get("Wemb")
    return file.by_name.get("decoder_Wemb") or (None if config else file.by_name.get("Wemb"))


def _checked(file: TensorFile, config: dict[str, str | list[str]]) -> TensorFile:
    sizes = [size for size in items(config.get("dim-vocabs")) if size.isdigit() and int(size) > 0]
    for layer in file.known:
        if not layer.weight.dtype.startswith("float"):
            raise CheckpointError(
                f"{file.path}: {layer.weight} is quantised ({layer.weight.dtype}); expected the "
                "model in float, before it was converted"
            )
        shape = layer.weight.shape
        rows = shape[-1 if layer.orientation == "features-first" else 0] if shape else 0
        if sizes and rows != int(sizes[-1]):
            raise CheckpointError(
                f"{file.path}: {layer.weight} has {rows} classes, but dim-vocabs in {CONFIG} says "
                f"{sizes[-1]}; expected one row a word (a factored vocabulary has others)"
            )
    return file
