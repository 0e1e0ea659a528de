"""Whether a chosen layer is what the model multiplies with: kept in float, and in one piece."""

from __future__ import annotations

from collections.abc import Iterable

from unarg_callback.checkpoints.parts import (
    PLAIN,
    beside,
    changed_by,
    is_integer,
    part_text,
    scale_of,
)
from unarg_callback.checkpoints.tensor_file import Entry, TensorFile
from unarg_callback.errors import CheckpointError

_DEQUANTISE = "expected the weight itself: dequantise it and save it as float"


def refuse_unless_plain(
    file: TensorFile, weight: Entry, tied: Iterable[Entry], bias: Entry | None
) -> None:
    """Refuse a weight that the model scales, adapts or masks before it multiplies with it.

    Integers alone are taken from formats that know no modules, such as ``.npz``: there they may
    be the values themselves. In a file of torch's names they are what is left of a quantised layer.

    Args:
        file: that holds them.
        weight: the chosen weight.
        tied: other names of it; what changes one of these may change the layer.
        bias: the chosen bias, or None.

    Raises:
        CheckpointError: it isn't plain, or can't be shown to be.
    """
    for entry in (weight, *tied):
        other = changed_by(file, entry)
        if other is not None:
            raise CheckpointError(
                f"{file.path}: {entry} is not used as it is: beside it lies "
                f"{part_text(file, other)}"
            )
        refuse_scaled(file, entry)
    if file.quantised:
        _refuse_in_quantised(file, weight, bias)
    for one in (weight, bias):
        if one is not None and file.torch_names and is_integer(one):
            raise CheckpointError(
                f"{file.path}: {one} holds integers ({one.dtype}), as quantised layers do, and no "
                f"scale lies beside it; {_DEQUANTISE}"
            )


def refuse_scaled(file: TensorFile, weight: Entry) -> None:
    """Refuse integers and floats of 8 bits that have a scale beside them.

    Raises:
        CheckpointError: they have.
    """
    scale = scale_of(file, weight)
    if scale is not None:
        raise CheckpointError(
            f"{file.path}: {weight} is quantised ({weight.dtype}, scaled by {scale}); {_DEQUANTISE}"
        )


def _refuse_in_quantised(file: TensorFile, weight: Entry, bias: Entry | None) -> None:
    """In a model that says it is quantised, only a layer that clearly isn't will do."""
    other = beside(file, weight)
    low = next((e for e in (weight, bias) if e and e.dtype.lower() not in PLAIN), None)
    if low is None and other is None:
        return
    why = f"{low} holds {low.dtype}" if low is not None else f"{other} lies beside {weight}"
    raise CheckpointError(
        f"{file.path}: the model is quantised ({file.quantised}), and {why}; {_DEQUANTISE}"
    )
