"""The rows of a sharded layer that this rank holds, for layers too large to gather."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.snapshots.biases import summed
from unarg_callback.snapshots.found import FoundLayer
from unarg_callback.snapshots.sharded import rows_of, whole


def take_rows(
    found: FoundLayer, *, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor | None, int] | None:
    """Copy the rows of a layer that this rank holds.

    Every rank has to call it: the bias, one number a class, is gathered, and so is what a
    parametrisation or an adapter needs.

    Args:
        found: what :func:`~unarg_callback.snapshots.find.find_layer` returned.
        device: where the copies go; dtypes are kept, but two biases become one in float64.

    Returns:
        Weight, (n, d), bias, (n,), or None, and the id of the first row, of a ``DTensor`` whose
        rows are divided over a mesh of one dimension (n is 0 on a rank that has none). None for any
        other layer, which :func:`~unarg_callback.snapshots.snapshot.take_snapshot` takes whole.

    Raises:
        LayerError: the layer can't be read.
    """
    if not found.collective or found.flattened:
        return None
    with torch.inference_mode(False), torch.no_grad():
        weight, biases = found.tensors()
        local = rows_of(weight)
        if local is None:
            return None
        rows, first = local
        last = first + int(rows.shape[0])
        copy = rows.detach().to(device, copy=True)
        parts = [
            whole(bias).detach().reshape(-1)[first:last].to(device, copy=True) for bias in biases
        ]
    return copy, summed(parts), first


def layer_bytes(found: FoundLayer) -> int:
    """Size of the whole layer in bytes, from its global shape: nothing is gathered.

    Raises:
        LayerError: the layer can't be read.
    """
    if found.flattened:
        assert found.module is not None
        first = next(found.module.parameters(), None)
        size = 4 if first is None else first.element_size()
        return found.classes * (found.features + 1) * size
    weight, biases = found.tensors()
    return sum(one.numel() * one.element_size() for one in (weight, *biases))
