"""What a layer must be for a method of prevention to apply to it."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.utils import parametrize

from unarg_callback.errors import LayerError, UnargError
from unarg_callback.snapshots.readable import problem_of_module, problem_of_shape, problem_of_value

FORMS = "a module with a weight of shape (classes, features), such as nn.Linear"


def require_matrix(layer: nn.Module) -> Tensor:
    """Return the (C, d) weight of a layer that has not been parametrised yet.

    Raises:
        LayerError: it has none, or computes with something else.
    """
    kind = type(layer).__name__
    if not isinstance(layer, nn.Module):
        raise LayerError(f"the layer is a {kind}; expected {FORMS}")
    for name in ("weight", "bias"):
        if parametrize.is_parametrized(layer, name):
            raise LayerError(
                f"the {name} of this {kind} is parametrised already; expected a plain one (see "
                "torch.nn.utils.parametrize.remove_parametrizations)"
            )
    weight = getattr(layer, "weight", None)
    problem = problem_of_module(layer)
    # One on the meta device has no values yet, and none are needed.
    if problem is None and not (isinstance(weight, Tensor) and weight.is_meta):
        problem = problem_of_value(weight, "weight")
    if problem is None and isinstance(weight, Tensor):
        problem = problem_of_shape(weight)
    if problem is not None:
        raise LayerError(f"this {kind} {problem}; expected {FORMS}")
    assert isinstance(weight, Tensor)
    return weight


def require_no_bias(layer: nn.Module) -> None:
    """Raise unless the layer has no bias.

    Raises:
        LayerError: it has one.
    """
    if getattr(layer, "bias", None) is not None:
        raise LayerError(
            f"this {type(layer).__name__} has a bias, with which classes can be out of reach; "
            "make it with bias=False, or set layer.bias = None before the optimizer is made"
        )


def require_positive(value: float, name: str) -> float:
    """Return a number that is finite and above zero.

    Raises:
        UnargError: it isn't.
    """
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not (plain and math.isfinite(value) and value > 0):
        raise UnargError(f"{name} is {value!r}; expected a finite number above 0")
    return float(value)
