"""Find an output layer in a live model."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from unarg_callback.errors import LayerError
from unarg_callback.snapshots.biases import bias_at, read_bias, usual_bias
from unarg_callback.snapshots.computed import LayerFunction, function_name
from unarg_callback.snapshots.found import FoundLayer
from unarg_callback.snapshots.places import (
    Place,
    levels_of,
    linears,
    listing,
    place_at,
    place_of,
    walk,
)
from unarg_callback.snapshots.readable import is_uninitialised
from unarg_callback.snapshots.sharded import any_sharded, is_sharded


def find_layer(
    model: nn.Module,
    layer: str | nn.Module | LayerFunction | None = None,
    *,
    bias: str | None = None,
) -> FoundLayer:
    """Find the output layer of a model.

    The model may be wrapped by torch.compile, DistributedDataParallel, FullyShardedDataParallel,
    activation checkpointing or peft; names that wrappers add may be in paths or left out. Of a
    model that FullyShardedDataParallel wraps, give the outermost wrapper.

    A LoRA adapter of peft is merged on the fly: what is checked is the layer with the merged
    weight, in the dtype in which peft would merge it.

    Args:
        model: where to look; it is not changed.
        layer: attribute path such as "decoder.generator", "" for the model itself; or the module;
            or a function of the model that returns W, (C, d), or the pair (W, b). A module is
            ``nn.Linear`` or anything else with a 2-D ``weight`` of shape (C, d), such as a tied
            ``nn.Embedding``; it need not be a part of the model. A head whose forward pass uses
            another weight than that needs a function. A function is called at each snapshot
            without gradients, in the mode that the model has. None: the only ``nn.Linear``
            with more outputs than inputs; one that has several names, or shares its weight and
            bias with another, counts once.
        bias: attribute path of a parameter or buffer of shape (C,), (1, C) or (C, 1) that the model
            adds to the logits. If the layer has a bias of its own, their sum in float64 is the bias
            that is checked; a tensor that is that bias (tied, as in BERT) counts once. None: a
            ``final_logits_bias`` with C entries in what holds the layer, up to the model, if there
            is one (Marian, BART); none for a function.

    Raises:
        LayerError: nothing is there, more than one layer could be meant, or the weight can't be
            read as it is used (quantised, not initialised, a convolution, an unknown adapter,
            DeepSpeed ZeRO stage 3).

    >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 10))
    >>> find_layer(model).path
    '2'
    >>> find_layer(model, lambda model: model[2].weight[:7]).classes
    7
    """
    found = _locate(model, layer, bias)
    found.require_readable()
    return found


def refind(found: FoundLayer, model: nn.Module) -> FoundLayer:
    """Find a layer again, in a model whose modules may have been replaced since.

    Some microseconds for a layer with a path. What can be read of it, :func:`take_snapshot` tells.

    Raises:
        LayerError: it is no longer there.
    """
    bias = found.bias_path if found.bias_given else None
    if found.function is not None:
        known = found.collective
        return _with_bias(replace(found, model=model, bias=None, collective=known), bias)
    return _locate(model, found.path if found.inside else found.module, bias)


def _locate(
    model: nn.Module, layer: str | nn.Module | LayerFunction | None, bias: str | None
) -> FoundLayer:
    if layer is None:
        place = _only_layer(model)
    elif isinstance(layer, str):
        place = place_at(model, layer)
    elif isinstance(layer, nn.Module):
        place = place_of(model, layer) or Place(
            type(levels_of(layer)[-1]).__name__, levels_of(layer)
        )
    elif callable(layer):
        sharded = any_sharded(model) or any(True for one in walk(model) for _ in one.units())
        found = FoundLayer(function_name(layer), None, model, layer, collective=sharded)
        return _with_bias(found, bias)
    else:
        raise LayerError(
            f"layer is a {type(layer).__name__}; expected an attribute path, a module, or a "
            "function that returns the weight"
        )
    module = place.inner
    if isinstance(module, Tensor):
        holder = place.path.rpartition(".")[0]
        raise LayerError(
            f"'{place.path}' is a {type(module).__name__}; expected the module that holds it"
            + (f", '{holder}'" if holder else "")
            + ", or a function that returns it"
        )
    if not isinstance(module, nn.Module):
        raise LayerError(
            f"'{place.path}' is a {type(module).__name__}; expected a module; "
            f"{listing(linears(model))}"
        )
    found = FoundLayer(place.path, module, model, place=place)
    collective = found.flattened or any_sharded(module)
    return _with_bias(replace(found, collective=collective), bias)


def _with_bias(found: FoundLayer, path: str | None) -> FoundLayer:
    """The layer with the bias that the model adds to it, if there is one."""
    bias: tuple[Place, str] | None
    place = found.place
    if path is not None:
        bias = bias_at(found.model, path)
    else:
        if place is None or not found.inside:
            return found
        bias = usual_bias(place, lambda: found.classes)
        if bias is None:
            return found
    owner, name = bias
    apart = next(owner.units(), None) is not None
    collective = found.collective or apart or is_sharded(read_bias(owner, name))
    return replace(found, bias=bias, bias_given=path is not None, collective=collective)


def _only_layer(model: nn.Module) -> Place:
    layers = linears(model)
    for place, _, _ in layers.values():
        assert isinstance(place.inner, nn.Module)
        if is_uninitialised(place.inner._parameters.get("weight")):
            FoundLayer(place.path, place.inner, model, place=place).require_readable()
    wide = {path: one for path, one in layers.items() if one[1] > one[2]}
    if len(wide) == 1:
        return next(iter(wide.values()))[0]
    how_many = f"{len(wide)} linear layers have" if wide else "no linear layer has"
    raise LayerError(
        f"{how_many} more outputs than inputs; name the output layer by its attribute path; "
        f"{listing(wide or layers)}"
    )
