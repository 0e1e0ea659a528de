"""Where things are in a model: attribute paths that see through wrappers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from unarg_callback.errors import LayerError

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Children that stand for the module that holds them: torch.compile, FSDP, checkpointing."""

_SHOWN = 8
"""Most layers that an error message lists."""


@dataclass(frozen=True, eq=False)
class Place:
    """Something in a model, with what wraps it and what holds it.

    Args:
        path: attribute path from the model, without the names that wrappers add; "" for the model.
        levels: the outermost wrapper first, the thing itself last.
        parent: what holds it; None for the model.
    """

    path: str
    levels: tuple[object, ...]
    parent: Place | None = field(default=None, repr=False)

    @property
    def inner(self) -> object:
        """The thing itself, without wrappers."""
        return self.levels[-1]

    def upwards(self) -> Iterator[Place]:
        """This place, what holds it, and so on up to the model."""
        place: Place | None = self
        while place is not None:
            yield place
            place = place.parent

    def units(self) -> Iterator[nn.Module]:
        """FullyShardedDataParallel wrappers around it, the innermost first."""
        for place in self.upwards():
            for level in reversed(place.levels):
                if isinstance(level, nn.Module) and "_fsdp_wrapped_module" in level._modules:
                    yield level


def levels_of(thing: object) -> tuple[object, ...]:
    """The thing and what it wraps, down to what is no wrapper."""
    levels = [thing]
    while isinstance(thing, nn.Module):
        inner = _wrapped(thing)
        if inner is None:
            break
        levels.append(inner)
        thing = inner
    return tuple(levels)


def base_of(module: nn.Module) -> nn.Module:
    """What has the weight: the module itself, or the one that it adapts."""
    adapted = module._modules.get("base_layer")
    inner = module if adapted is None else levels_of(adapted)[-1]
    assert isinstance(inner, nn.Module)
    return inner


def place_at(model: nn.Module, path: str, what: str = "layer") -> Place:
    """What is at an attribute path; names that wrappers add may be in it or left out.

    Raises:
        LayerError: nothing is there; the message calls it ``what``.
    """
    parts = path.split(".") if path else []
    root = Place("", levels_of(model))
    reached = [(0, root)]
    found = _follow(root, parts, 0, reached)
    if found is not None:
        return found
    count, place = max(reached, key=lambda item: item[0])
    where = f"'{place.path}'" if place.path else f"the model ({type(place.inner).__name__})"
    choice = f"; {listing(linears(model))}" if what == "layer" else ""
    raise LayerError(f"no {what} '{path}': {where} has no attribute '{parts[count]}'{choice}")


def place_of(model: nn.Module, module: nn.Module) -> Place | None:
    """Where a module is in a model, or what wraps it or has adapted it; None where it isn't."""
    target = levels_of(module)[-1]
    for place in walk(model):
        inner = place.inner
        assert isinstance(inner, nn.Module)
        if target is inner or target is base_of(inner):
            return place
        for level in place.levels[:-1]:
            if isinstance(level, nn.Module) and any(target is one for one in level.children()):
                return place
    return None


def walk(model: nn.Module) -> Iterator[Place]:
    """All submodules, unwrapped, each once, in order of definition.

    What an adapter or a parametrisation is made of is left out.
    """
    seen: set[int] = set()
    stack = [Place("", levels_of(model))]
    while stack:
        place = stack.pop()
        module = place.inner
        if not isinstance(module, nn.Module) or id(module) in seen:
            continue
        seen.add(id(module))
        yield place
        if "base_layer" in module._modules:
            continue
        children = [
            Place(_joined(place.path, name), levels_of(child), place)
            for name, child in module._modules.items()
            if child is not None and name != "parametrizations"
        ]
        stack.extend(reversed(children))


def linears(model: nn.Module) -> dict[str, tuple[Place, int, int]]:
    """Every linear layer once, by path, with its numbers of outputs and inputs.

    Layers that share weight and bias are one. A linear layer with an adapter counts as one.
    """
    seen: set[tuple[int, int]] = set()
    layers: dict[str, tuple[Place, int, int]] = {}
    for place in walk(model):
        module = place.inner
        assert isinstance(module, nn.Module)
        base = base_of(module)
        if isinstance(base, nn.Linear):
            weight, bias = base._parameters.get("weight"), base._parameters.get("bias")
            tied = weight is not None and base is module
            key = (id(weight), id(bias)) if tied else (id(module), 0)
            if key not in seen:
                seen.add(key)
                layers[place.path] = (place, base.out_features, base.in_features)
    return layers


def listing(layers: dict[str, tuple[Place, int, int]]) -> str:
    """What there is to choose from, widest first."""
    if not layers:
        return "the model has no linear layer"
    ranked = sorted(layers.items(), key=lambda item: -item[1][1])
    texts = [f"'{path}' ({inputs} -> {out})" for path, (_, out, inputs) in ranked[:_SHOWN]]
    more = f" and {len(layers) - _SHOWN} more" if len(layers) > _SHOWN else ""
    return f"found {', '.join(texts)}{more}"


def _wrapped(module: nn.Module) -> nn.Module | None:
    """What a wrapper wraps, or None where a module is not one."""
    children = module._modules
    for name in _WRAPPERS:
        inner = children.get(name)
        if inner is not None:
            return inner
    if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
        wrapped: nn.Module = module.module
        return wrapped
    if type(module).__module__.startswith("peft."):
        return _wrapped_by_peft(module)
    return None


def _wrapped_by_peft(module: nn.Module) -> nn.Module | None:
    children = module._modules
    if "modules_to_save" in children and "original_module" in children:
        return _module_in_use(module)
    # PeftModel holds a tuner, and a tuner the model.
    if "peft_config" in module.__dict__ or "_peft_config" in module.__dict__:
        return children.get("base_model") or children.get("model")
    return None


def _module_in_use(wrapper: nn.Module) -> nn.Module | None:
    """Which of the copies of a module a ModulesToSaveWrapper calls."""
    original, copies = wrapper._modules["original_module"], wrapper._modules["modules_to_save"]
    active = list(getattr(wrapper, "active_adapters", ()))
    off = bool(getattr(wrapper, "disable_adapters", False))
    if off or not active or copies is None or any(name not in copies._modules for name in active):
        return original
    return copies._modules[active[0]]


def _follow(
    place: Place, parts: list[str], count: int, reached: list[tuple[int, Place]]
) -> Place | None:
    """Take the rest of a path, the innermost meaning of each name first.

    ``reached`` gets every place on the way, for the error message.
    """
    if count == len(parts):
        return place
    tried: list[object] = []
    for level in reversed(place.levels):
        value: object | None = getattr(level, parts[count], None)
        if value is None or any(value is one for one in tried):
            continue
        tried.append(value)
        if any(value is one for one in place.levels):
            following = place
        else:
            following = Place(_joined(place.path, parts[count]), levels_of(value), place)
        reached.append((count + 1, following))
        found = _follow(following, parts, count + 1, reached)
        if found is not None:
            return found
    return None


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
