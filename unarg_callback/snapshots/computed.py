"""Output layers that a function computes: for heads without a linear layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor, nn

from unarg_callback.errors import LayerError
from unarg_callback.snapshots.readable import problem_of_shape, problem_of_value
from unarg_callback.snapshots.undisturbed import undisturbed

LayerFunction: TypeAlias = Callable[[Any], Any]
"""Returns W, (C, d), or the pair (W, b) for a model."""


def function_name(function: LayerFunction) -> str:
    """Return a name for what a function computes: its own, or "output" where it has none.

    >>> function_name(len), function_name(lambda model: model.weight)
    ('len', 'output')
    """
    name = getattr(function, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else "output"


def compute(function: LayerFunction, model: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Call a function that returns a layer, without gradients and with all global state kept.

    Args:
        function: returns (C, d), or that and a bias of C entries or None.
        model: what it is called with, in the mode it has.

    Returns:
        The tensors that the function returned, not copied.

    Raises:
        LayerError: that is not what it returned, or it failed.
    """
    here = f"layer '{function_name(function)}' (a function)"
    with undisturbed(model):
        try:
            result = function(model)
        except Exception as cause:
            raise LayerError(f"{here} failed: {type(cause).__name__}: {cause}") from cause
    parts = tuple(result) if isinstance(result, tuple | list) else (result, None)
    if len(parts) != 2 or not isinstance(parts[0], Tensor):
        kinds = ", ".join(type(part).__name__ for part in parts)
        returned = f"({kinds})" if isinstance(result, tuple | list) else type(result).__name__
        raise LayerError(
            f"{here} returned {returned}; expected a tensor of shape (classes, features), or a "
            "pair of that and the bias"
        )
    weight, bias = parts
    if bias is not None and not isinstance(bias, Tensor):
        raise LayerError(
            f"{here} returned a bias that is a {type(bias).__name__}; expected a tensor or None"
        )
    problem = (
        problem_of_value(weight, "weight")
        or problem_of_shape(weight)
        or problem_of_value(bias, "bias")
    )
    if problem is not None:
        raise LayerError(f"{here} {problem}")
    return weight, bias
