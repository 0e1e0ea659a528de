"""Layers that carry a LoRA adapter of the package peft: the weight that the two make together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unarg_callback.snapshots.places import base_of

_MERGE = "merge it first, or give a function that returns the weight"


def is_adapted(module: nn.Module) -> bool:
    """Whether a module is an adapter around another."""
    return "base_layer" in module._modules


def problem_of_adapter(module: nn.Module) -> str | None:
    """Why the merged weight can't be computed as the layer's forward pass would use it, or None."""
    kind = type(module)
    if not _is_lora(module, "Linear"):
        if _is_lora(module, "Embedding"):
            return (
                "carries an adapter that an output layer tied to it doesn't use; name the linear "
                "layer, or give a function that returns the weight"
            )
        name = f"{kind.__module__}.{kind.__qualname__}"
        return f"carries an adapter of a kind that can't be merged here ({name}); {_MERGE}"
    if is_adapted(base_of(module)):
        return f"carries an adapter on an adapter; {_MERGE}"
    layer: Any = module
    if layer.disable_adapters and layer.merged:
        return "carries an adapter that is disabled but still merged; unmerge it first"
    applied = _applied(layer)
    for name in applied:
        variant = _variant(layer, name)
        biased = getattr(layer, "lora_bias", {}).get(name, False)
        if variant not in (None, "DoraLinearVariant"):
            return f"carries an adapter of a kind that can't be merged here ({variant}); {_MERGE}"
        if variant is not None and (len(applied) > 1 or biased):
            return f"carries DoRA beside another adapter or with a bias of its own; {_MERGE}"
    return None


def merged(module: nn.Module, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Weight and bias that ``merge()`` of peft would leave, with nothing changed.

    They are computed in the same dtypes and order as there, so that with half precision they are
    rounded as the merged weights are; the unmerged forward pass rounds differently. Dropout is
    left out, as in evaluation mode.

    Args:
        module: a layer without a :func:`problem_of_adapter`.
        weight: (C, d), of the base layer.
        bias: (C,) or None, of the base layer.
    """
    layer: Any = module
    for name in _applied(layer):
        delta = layer.get_delta_weight(name)
        if _variant(layer, name) is None:
            weight = (weight + delta).to(weight.dtype)
        else:
            weight = _dora(layer, name, weight, delta)
        if getattr(layer, "lora_bias", {}).get(name, False):
            shift = layer.lora_B[name].bias * layer.scaling[name]
            bias = shift if bias is None else (bias + shift).to(bias.dtype)
    return weight, bias


def _dora(layer: Any, name: str, weight: Tensor, delta: Tensor) -> Tensor:
    """Weight-decomposed adaptation (https://arxiv.org/abs/2402.09353): directions times lengths."""
    length = torch.linalg.norm(weight + delta, dim=1).to(weight.dtype)
    factor = layer.lora_magnitude_vector[name].weight / length
    return (factor.view(-1, 1) * (weight + delta)).to(weight.dtype)


def _applied(layer: Any) -> list[str]:
    """Adapters that the forward pass adds to the base layer."""
    if layer.disable_adapters or layer.merged:
        return []
    return [name for name in layer.active_adapters if name in layer.lora_A]


def _variant(layer: Any, name: str) -> str | None:
    """Class of what an adapter does other than plain LoRA, or None."""
    variant = getattr(layer, "lora_variant", {}).get(name)
    if variant is not None:
        return variant.__name__ if isinstance(variant, type) else type(variant).__name__
    return "DoraLinearVariant" if getattr(layer, "use_dora", {}).get(name, False) else None


def _is_lora(module: nn.Module, name: str) -> bool:
    """Whether a class is one of peft's for LoRA, or made from it (by ``fully_shard``)."""
    lora = (one for one in type(module).__mro__ if one.__module__ == "peft.tuners.lora.layer")
    return any(one.__name__ == name for one in lora)
