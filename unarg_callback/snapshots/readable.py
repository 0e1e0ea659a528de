"""Which modules and tensors can be read as an output layer, and why others can't."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from unarg_callback.errors import LayerError
from unarg_callback.snapshots.adapters import is_adapted, problem_of_adapter
from unarg_callback.snapshots.places import base_of
from unarg_callback.snapshots.sharded import is_flattened, local_part
from unarg_callback.snapshots.undisturbed import undisturbed

_SHOWN = 8
"""Most linear layers that an error message lists."""

_WHILE_TRAINING = "(check the model before quantising)"


def read_attribute(module: nn.Module, name: str) -> object:
    """Attribute of a module; a parametrised one is computed as in evaluation mode.

    No buffer is changed, no random number drawn, and ``parametrize.cached()`` is passed by: what is
    computed here has no gradients.
    """
    if not parametrize.is_parametrized(module, name):
        return getattr(module, name, None)
    parametrizations = module._modules["parametrizations"]
    assert isinstance(parametrizations, nn.ModuleDict)
    how = parametrizations[name]
    with undisturbed(how):
        for part in how.modules():
            part.training = False
        value: object = how()
    return value


def problem_of_module(module: nn.Module) -> str | None:
    """Why a module's ``weight`` is not what its forward pass uses, by its kind alone; or None."""
    children = module._modules
    if is_adapted(module):
        return problem_of_adapter(module) or problem_of_module(base_of(module))
    if any(name.startswith("lora_") for name in [*children, *module._parameters]) or (
        "token_adapter" in children
    ):
        return "carries an adapter, so its weight is not what it computes with; merge it first"
    if "weight_fake_quant" in children:
        return f"quantises its weight in the forward pass; expected a plain one {_WHILE_TRAINING}"
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        return "keeps its weight as (features, classes); give a function that returns weight.T"
    if isinstance(module, nn.modules.conv._ConvNd):
        return "is a convolution; expected nn.Linear or a module with a 2-D weight"
    return None


def read_tensors(
    module: nn.Module, here: str, *, gathered: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a module without adapters, as they are used: not copied, maybe sharded.

    Args:
        module: what has the tensors.
        here: what messages call it.
        gathered: whether FullyShardedDataParallel has just made its parameters whole.

    Raises:
        LayerError: they can't be read as plain numbers.
    """
    if not parametrize.is_parametrized(module, "weight") and not hasattr(module, "weight"):
        children = module._modules
        names = [name for name in children if isinstance(children[name], nn.Linear)][:_SHOWN]
        hint = f" (it holds the linear layers {', '.join(names)})" if names else ""
        raise LayerError(
            f"{here} has no weight{hint}; expected nn.Linear or a module with a 2-D weight"
        )
    weight, bias = read_attribute(module, "weight"), read_attribute(module, "bias")
    for name, value in (("weight", weight), ("bias", bias)):
        problem = problem_of_value(value, name, gathered=gathered)
        if problem is None and isinstance(module.__dict__.get(name), Tensor):
            problem = (
                f"has a {name} that a hook recomputes at each forward pass, so it is out of date "
                "between them; use torch.nn.utils.parametrizations instead (if it is "
                "FullyShardedDataParallel that does so, give the outermost wrapped model)"
            )
        if problem is not None:
            raise LayerError(f"{here} {problem}")
    assert isinstance(weight, Tensor)
    problem = problem_of_shape(weight)
    if problem is not None:
        raise LayerError(f"{here} {problem}")
    return weight, bias if isinstance(bias, Tensor) else None


def is_uninitialised(value: object) -> bool:
    """Whether a lazy module has yet to see its first batch."""
    return isinstance(value, Tensor) and is_lazy(value)


def problem_of_shape(weight: Tensor) -> str | None:
    """Why a weight is not a matrix, or None."""
    if weight.ndim == 2:
        return None
    return (
        f"has a weight of shape {tuple(weight.shape)}; expected two dimensions (classes, features)"
    )


def problem_of_value(value: object, name: str, *, gathered: bool = False) -> str | None:
    """Why a weight or bias can't be read as plain numbers, or None. Reads no values."""
    if callable(value) and not isinstance(value, Tensor):
        return f"is quantised; expected floating-point weights {_WHILE_TRAINING}"
    if not isinstance(value, Tensor):
        found = type(value).__name__
        return f"has a weight that is a {found}; expected a tensor" if name == "weight" else None
    if is_uninitialised(value):
        return "is not initialised yet; run one batch through the model before training starts"
    if hasattr(value, "ds_numel") or hasattr(value, "ds_id"):
        return (
            f"has a {name} that DeepSpeed ZeRO stage 3 divides over ranks, which can't be read "
            "while training; use stage 2, or check a checkpoint with `unarg check`"
        )
    if is_flattened(value) and not gathered:
        return (
            f"has a {name} that FullyShardedDataParallel has flattened, but its wrapper isn't part "
            "of the model that was given; give the outermost wrapped model"
        )
    if value.is_meta:
        return f"has its {name} on the meta device; expected values"
    with torch.no_grad():
        return _problem_of_plain(local_part(value), name)


def _problem_of_plain(value: Tensor, name: str) -> str | None:
    if type(value) not in (Tensor, nn.Parameter):
        return f"has a {name} of type {type(value).__name__}, quantised or packed; expected plain"
    if value.layout != torch.strided:
        return f"has a sparse {name} ({value.layout}); expected a dense one"
    if value.numel() and value.untyped_storage().size() == 0:
        return (
            f"has a {name} whose memory has been freed, as FullyShardedDataParallel does; give the "
            "outermost wrapped model"
        )
    if value.is_complex():
        return f"has a {name} of dtype {value.dtype}; expected real numbers"
    if value.is_quantized or not value.is_floating_point() or value.dtype.itemsize < 2:
        return (
            f"has a {name} of dtype {value.dtype}, quantised or packed; expected floating-point "
            f"numbers {_WHILE_TRAINING}"
        )
    return None
