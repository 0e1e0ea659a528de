"""Find an output layer in a live model, and copy its weight and bias so that training can go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from unarg_callback.errors import LayerError
from unarg_callback.geometry.layer import OutputLayer

_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module")
"""Children that stand for the module that holds them: torch.compile, activation checkpointing."""

_SHOWN = 8
"""Most layers that an error message lists."""


@dataclass(frozen=True, eq=False)
class FoundLayer:
    """A module that is an output layer, and where it was found.

    Args:
        path: attribute path from the model, without the names that wrappers add; "" for the model.
        module: the module itself, unwrapped: its ``weight`` has shape (C, d).
    """

    path: str
    module: nn.Module

    @property
    def classes(self) -> int:
        """C, as the weight has it now."""
        return int(_read(self.module, "weight").shape[0])

    @property
    def features(self) -> int:
        """d, as the weight has it now."""
        return int(_read(self.module, "weight").shape[1])


def find_layer(model: nn.Module, path: str | None = None) -> FoundLayer:
    """Find the output layer of a model.

    Names that wrappers add (``_orig_mod`` of torch.compile, ``module`` of DistributedDataParallel)
    may be in the path or left out.

    Args:
        model: where to look; it is not changed.
        path: attribute path such as "decoder.generator", "" for the model itself. The module there
            is ``nn.Linear`` or anything else with a 2-D ``weight`` of shape (C, d), such as a tied
            ``nn.Embedding``. None: the only ``nn.Linear`` with more outputs than inputs; one that
            has several names, or shares its weight and bias with another, counts once.

    Raises:
        LayerError: nothing is there, more than one layer could be meant, or the weight can't be
            read as it is used (quantised, sharded, not initialised, a convolution, an adapter).

    >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 10))
    >>> find_layer(model).path
    '2'
    """
    found = _only_layer(model) if path is None else _layer_at(model, path)
    _require_readable(found)
    return found


def take_snapshot(
    found: FoundLayer,
    *,
    names: Sequence[str] | None = None,
    excluded: Iterable[int] = (),
    device: torch.device | str = "cpu",
) -> OutputLayer:
    """Copy weight and bias as they are now.

    Parametrisations (weight_norm, orthogonal, ...) are applied as in evaluation mode, so that
    reading them changes none of their buffers and draws no random number.

    Args:
        found: what :func:`find_layer` returned.
        names: C class names or None.
        excluded: ids of classes that take no part.
        device: where the copy goes; dtypes are kept.

    Raises:
        LayerError: as :func:`find_layer` and :class:`OutputLayer` do.
    """
    _require_readable(found)
    with torch.no_grad():
        weight = _read(found.module, "weight").detach().to(device, copy=True)
        bias = _bias(found.module)
        if bias is not None:
            bias = bias.detach().to(device, copy=True)
    return OutputLayer(weight, bias, names=names, excluded=excluded)


def _layer_at(model: nn.Module, path: str) -> FoundLayer:
    module: object = model
    walked: list[str] = []
    for part in path.split(".") if path else []:
        module = _child(module, part)
        if module is None:
            where = f"'{'.'.join(walked)}'" if walked else f"the model ({type(model).__name__})"
            raise LayerError(
                f"no layer '{path}': {where} has no attribute '{part}'; {_listing(_linears(model))}"
            )
        walked.append(part)
    if isinstance(module, Tensor):
        raise LayerError(
            f"'{path}' is a {type(module).__name__}; expected the module that holds it"
            + (f", '{'.'.join(walked[:-1])}'" if walked[1:] else "")
        )
    if not isinstance(module, nn.Module):
        raise LayerError(
            f"'{path}' is a {type(module).__name__}; expected a module; {_listing(_linears(model))}"
        )
    return FoundLayer(_plain(path), _unwrap(module))


def _child(parent: object, part: str) -> object | None:
    """Attribute of a module, or of what it wraps; None where there is none."""
    while True:
        value: object | None = getattr(parent, part, None)
        if value is not None or not isinstance(parent, nn.Module):
            return value
        inner = _inner(parent)
        if inner is None:
            return None
        parent = inner


def _inner(module: nn.Module) -> nn.Module | None:
    """What a wrapper wraps, or None where a module is not one."""
    for name in _WRAPPERS:
        inner = module._modules.get(name)
        if inner is not None:
            return inner
    if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
        wrapped: nn.Module = module.module
        return wrapped
    return None


def _unwrap(module: nn.Module) -> nn.Module:
    while (inner := _inner(module)) is not None:
        module = inner
    return module


def _plain(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


def _linears(model: nn.Module) -> dict[str, nn.Linear]:
    """Every linear layer once, by path: layers that share weight and bias are one."""
    seen: set[tuple[int, int]] = set()
    layers: dict[str, nn.Linear] = {}
    for path, module in _walk(model):
        if isinstance(module, nn.Linear):
            own = module._parameters
            weight, bias = own.get("weight"), own.get("bias")
            key = (id(module), 0) if weight is None else (id(weight), id(bias))
            if key not in seen:
                seen.add(key)
                layers[path] = module
    return layers


def _walk(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """All submodules with their paths, wrappers left out of both, in order of definition."""
    seen: set[int] = set()
    stack = [("", model)]
    while stack:
        path, module = stack.pop()
        module = _unwrap(module)
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        children = [
            (f"{path}.{name}" if path else name, child)
            for name, child in module._modules.items()
            if child is not None and name != "parametrizations"
        ]
        stack.extend(reversed(children))


def _only_layer(model: nn.Module) -> FoundLayer:
    linears = _linears(model)
    for path, linear in linears.items():
        if _is_lazy(linear._parameters.get("weight")):
            _require_readable(FoundLayer(path, linear))
    wide = {path: one for path, one in linears.items() if one.out_features > one.in_features}
    if len(wide) == 1:
        return FoundLayer(*next(iter(wide.items())))
    how_many = f"{len(wide)} linear layers have" if wide else "no linear layer has"
    raise LayerError(
        f"{how_many} more outputs than inputs; name the output layer by its attribute path; "
        f"{_listing(wide or linears)}"
    )


def _listing(linears: dict[str, nn.Linear]) -> str:
    """What there is to choose from, widest first."""
    if not linears:
        return "the model has no linear layer"
    ranked = sorted(linears.items(), key=lambda item: -item[1].out_features)
    texts = [f"'{path}' ({one.in_features} -> {one.out_features})" for path, one in ranked[:_SHOWN]]
    more = f" and {len(linears) - _SHOWN} more" if len(linears) > _SHOWN else ""
    return f"found {', '.join(texts)}{more}"


def _require_readable(found: FoundLayer) -> None:
    """Raise unless the module's ``weight`` is, whole and plain, what its forward pass uses."""
    module, kind = found.module, type(found.module).__name__
    here = f"layer '{found.path}' ({kind})"
    problem = _problem_of_module(module)
    if problem is not None:
        raise LayerError(f"{here} {problem}")
    for name in ("weight", "bias"):
        problem = _problem_of_tensor(module, name)
        if problem is not None:
            raise LayerError(f"{here} {problem}")
    weight = _read(module, "weight")
    if weight.ndim != 2:
        raise LayerError(
            f"{here} has a weight of shape {tuple(weight.shape)}; expected two dimensions "
            "(classes, features)"
        )


def _problem_of_module(module: nn.Module) -> str | None:
    """What is wrong with the kind of module, or None."""
    children = module._modules
    if any(name.startswith("lora_") for name in children) or "base_layer" in children:
        return "carries an adapter, so its weight is not what it computes with; merge it first"
    if "_fsdp_wrapped_module" in children:
        return "is sharded by FullyShardedDataParallel; expected a layer that is whole on each rank"
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        return "keeps its weight as (features, classes); expected (classes, features)"
    if not parametrize.is_parametrized(module, "weight") and not hasattr(module, "weight"):
        names = [name for name in children if isinstance(children[name], nn.Linear)][:_SHOWN]
        hint = f" (it holds the linear layers {', '.join(names)})" if names else ""
        return f"has no weight{hint}; expected nn.Linear or a module with a 2-D weight"
    return None


def _problem_of_tensor(module: nn.Module, name: str) -> str | None:
    """What is wrong with the weight or bias, or None."""
    value = _read_any(module, name)
    if callable(value) and not isinstance(value, Tensor):
        return "is quantised; expected floating-point weights (check the model before quantising)"
    if not isinstance(value, Tensor):
        found = type(value).__name__
        return f"has a weight that is a {found}; expected a tensor" if name == "weight" else None
    if _is_lazy(value):
        return "is not initialised yet; run one batch through the model before training starts"
    if value.is_meta:
        return f"has its {name} on the meta device; expected values"
    if hasattr(value, "full_tensor") or hasattr(value, "ds_numel"):
        return f"has a {name} sharded over ranks; expected a layer that is whole on each rank"
    if type(value) not in (Tensor, nn.Parameter):
        return f"has a {name} of type {type(value).__name__}, quantised or packed; expected plain"
    if value.is_quantized or not value.is_floating_point():
        return (
            f"has a {name} of dtype {value.dtype}, quantised or packed; expected floating-point "
            "numbers (check the model before quantising)"
        )
    if isinstance(module.__dict__.get(name), Tensor):
        return (
            f"has a {name} that a hook recomputes at each forward pass, so it is out of date "
            "between them; use torch.nn.utils.parametrizations instead"
        )
    return None


def _is_lazy(value: object) -> bool:
    return isinstance(value, Tensor) and is_lazy(value)


def _bias(module: nn.Module) -> Tensor | None:
    bias = _read_any(module, "bias")
    return bias if isinstance(bias, Tensor) else None


def _read(module: nn.Module, name: str) -> Tensor:
    value = _read_any(module, name)
    if not isinstance(value, Tensor):
        raise LayerError(f"{type(module).__name__} has no {name} that is a tensor")
    return value


def _read_any(module: nn.Module, name: str) -> object:
    """Attribute of a module, a parametrised one computed without side effects."""
    if not parametrize.is_parametrized(module, name):
        return getattr(module, name, None)
    with torch.no_grad(), _evaluating(module):
        value: object = getattr(module, name)
    return value


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Parametrisations in evaluation mode, then each as it was."""
    parametrizations = module.parametrizations
    parts = list(parametrizations.modules()) if isinstance(parametrizations, nn.Module) else []
    modes = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
