"""Biases that a model adds to the logits outside its output layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from unarg_callback.errors import LayerError
from unarg_callback.snapshots.places import Place, place_at
from unarg_callback.snapshots.readable import problem_of_value, read_attribute
from unarg_callback.snapshots.sharded import is_flattened, is_sharded

_USUAL = "final_logits_bias"
"""What Marian and BART models of transformers call it: a buffer of shape (1, C)."""


def bias_at(model: nn.Module, path: str) -> tuple[Place, str]:
    """Which module has the tensor at an attribute path, and under which name.

    Raises:
        LayerError: there is no tensor.
    """
    place = place_at(model, path, "bias")
    if not isinstance(place.inner, Tensor) or place.parent is None:
        found = type(place.inner).__name__
        raise LayerError(f"bias '{path}' is a {found}; expected a tensor with one entry a class")
    return place.parent, place.path.rpartition(".")[2]


def usual_bias(place: Place, classes: Callable[[], int]) -> tuple[Place, str] | None:
    """A ``final_logits_bias`` with C entries, from the layer up to the model.

    Args:
        place: where the layer is.
        classes: returns C, which is asked for only where there is such a tensor.

    Raises:
        LayerError: there is one whose size can't be told.
    """
    for owner in place.upwards():
        value = getattr(owner.inner, _USUAL, None)
        if not isinstance(value, Tensor):
            continue
        if is_flattened(value):
            raise LayerError(
                f"'{bias_path(owner, _USUAL)}' is sharded by FullyShardedDataParallel, so it can't "
                "be told whether it is the bias; give its path as bias"
            )
        if value.numel() == classes():
            return owner, _USUAL
    return None


def bias_path(owner: Place, name: str) -> str:
    """Attribute path of a tensor."""
    return f"{owner.path}.{name}" if owner.path else name


def read_bias(owner: Place, name: str, *, gathered: bool = False) -> Tensor:
    """The tensor as it is: not copied, maybe sharded.

    Raises:
        LayerError: it can't be read as plain numbers.
    """
    value: object = None
    for level in reversed(owner.levels):
        if isinstance(level, nn.Module) and value is None:
            value = read_attribute(level, name)
    here = f"bias '{bias_path(owner, name)}'"
    if not isinstance(value, Tensor):
        raise LayerError(f"{here} is a {type(value).__name__}; expected a tensor")
    problem = problem_of_value(value, "value", gathered=gathered)
    if problem is not None:
        raise LayerError(f"{here} {problem}")
    return value


def require_one_a_class(bias: Tensor, classes: int, here: str) -> None:
    """Raise unless a bias has shape (C,), (1, C) or (C, 1).

    Raises:
        LayerError: it has not.
    """
    shape = tuple(bias.shape)
    if shape not in {(classes,), (1, classes), (classes, 1)}:
        raise LayerError(f"{here} has shape {shape}; expected ({classes},), one entry a class")


def same_tensor(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same numbers in memory, as tied parameters are."""
    if one is other:
        return True
    if is_sharded(one) or is_sharded(other) or one.numel() != other.numel():
        return False
    return one.numel() > 0 and one.device == other.device and one.data_ptr() == other.data_ptr()


def summed(biases: Sequence[Tensor]) -> Tensor | None:
    """The only bias as it is, the sum of several in float64, or None."""
    if len(biases) < 2:
        return biases[0] if biases else None
    return torch.stack([bias.to(torch.float64) for bias in biases]).sum(0)
