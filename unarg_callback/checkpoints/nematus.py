"""Nematus's ``.npz``: the output matrix, or the embedding that it is tied to.

Facts: Nematus, ``nematus/theano_tf_convert.py``; its hidden layers are called
``ff_logit_lstm_W``, ``ff_logit_prev_W`` and ``ff_logit_ctx_W``.
"""

from __future__ import annotations

from dataclasses import replace

from unarg_callback.checkpoints.tensor_file import Entry, KnownLayer, TensorFile

_HEADS = {
    "ff_logit_W": "ff_logit_b",
    "decoder/next_word_predictor/hidden_to_logits/W:0": (
        "decoder/next_word_predictor/hidden_to_logits/b:0"
    ),
}
_TIED = ("Wemb_dec", "Wemb")


def is_nematus(file: TensorFile) -> bool:
    """Whether the arrays have Nematus's names."""
    return any(bias in file.by_name for bias in _HEADS.values())


def nematus_layer(file: TensorFile) -> TensorFile:
    """The file with the output layer that Nematus would use.

    ``ff_logit_W`` is (features, classes); a tied embedding is (classes, features).

    Args:
        file: what :func:`is_nematus` says yes to.
    """
    known = []
    for name, bias_name in _HEADS.items():
        weight, bias = file.by_name.get(name), file.by_name.get(bias_name)
        if weight is not None and bias is not None:
            known.append(KnownLayer(weight, bias, "features-first", why="Nematus"))
    if known:
        return replace(file, known=tuple(known))
    bias = file.by_name.get("ff_logit_b")
    tied = next((entry for name in _TIED if (entry := _embedding(file, name, bias))), None)
    if tied is None:
        return replace(
            file,
            refusal="it has Nematus's names, but neither an output matrix (ff_logit_W) nor a "
            "decoder's embedding (Wemb_dec) with one row for each value of ff_logit_b",
        )
    layer = KnownLayer(tied, bias, "classes-first", why="Nematus, tied to the embedding")
    return replace(file, known=(layer,))


def _embedding(file: TensorFile, name: str, bias: Entry | None) -> Entry | None:
    entry = file.by_name.get(name)
    fits = entry is not None and bias is not None and entry.shape[:1] == (bias.length,)
    return entry if fits else None
