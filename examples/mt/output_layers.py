"""Output layers of the translation model: a plain one, and those that leave no class out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unarg_callback.prevention import two_unit_coordinates, unit_rows, voronoi_bias

OUTPUT_LAYERS = ("linear", "unit_rows", "voronoi_bias", "two_unit_coordinates")


def constrain(layer: nn.Linear, kind: str, scale: float | None = None) -> None:
    """Make a linear layer one of ``OUTPUT_LAYERS``, in place.

    Args:
        layer: with a bias, which the kinds that have none lose.
        kind: which.
        scale: length of the rows, scale of the bias, or radius of the circle; default sqrt(d).

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in OUTPUT_LAYERS:
        raise ValueError(f"output_layer is {kind!r}; expected one of {', '.join(OUTPUT_LAYERS)}")
    size = math.sqrt(layer.in_features) if scale is None else scale
    if kind == "voronoi_bias":
        voronoi_bias(layer, size)
    elif kind != "linear":
        layer.register_parameter("bias", None)
        (unit_rows if kind == "unit_rows" else two_unit_coordinates)(layer, size)


def as_computed(layer: nn.Linear, name: str) -> dict[str, Tensor]:
    """Weight and bias that a parametrised layer computes with, by their plain names.

    Args:
        layer: the layer; nothing is added for a plain one.
        name: its name in the state dict.

    Returns:
        ``name.weight`` (C, d), and ``name.bias`` (C,), of zeros where the layer has none.
    """
    if not parametrize.is_parametrized(layer):
        return {}
    with torch.no_grad():
        weight = layer.weight.detach().clone()
        bias = layer.weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
    return {f"{name}.weight": weight, f"{name}.bias": bias.clone()}
