"""Copy the weight and bias of a layer in a live model, so that training can go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.snapshots.biases import summed
from unarg_callback.snapshots.find import find_layer, refind
from unarg_callback.snapshots.found import FoundLayer
from unarg_callback.snapshots.rows import layer_bytes, take_rows

__all__ = [
    "FoundLayer",
    "find_layer",
    "grown",
    "layer_bytes",
    "refind",
    "take_rows",
    "take_snapshot",
]


def take_snapshot(
    found: FoundLayer,
    *,
    names: Sequence[str] | None = None,
    excluded: Iterable[int] = (),
    device: torch.device | str = "cpu",
) -> OutputLayer:
    """Copy weight and bias as they are now.

    Parametrisations (weight_norm, orthogonal, ...) are applied as in evaluation mode, so that
    reading them changes none of their buffers and draws no random number. LoRA adapters are merged
    as peft would merge them: what is checked is the merged layer. Nothing but the copies themselves
    waits for a device.

    Args:
        found: what :func:`find_layer` returned. Where its ``collective`` is true, every rank has to
            call this function, between steps; each gets the whole layer.
        names: class names or None. Classes beyond the names, added while training, are called
            "class <id>".
        excluded: ids of classes that take no part.
        device: where the copy goes; dtypes are kept, but two biases become one in float64.

    Raises:
        LayerError: as :func:`find_layer` and :class:`OutputLayer` do; more names than classes.
    """
    with found.opened() as (weight, biases):
        copy = weight.detach().to(device, copy=True)
        parts = [bias.detach().to(device, copy=True) for bias in biases]
    return OutputLayer(
        copy, summed(parts), names=grown(names, int(copy.shape[0])), excluded=excluded
    )


def grown(names: Sequence[str] | None, classes: int) -> Sequence[str] | None:
    """Names for all classes, those of classes added while training made up; None for None.

    >>> grown(["a", "b"], 3)
    ['a', 'b', 'class 2']
    """
    if names is None or isinstance(names, str) or len(names) >= classes:
        return names
    return [*names, *(f"class {index}" for index in range(len(names), classes))]
