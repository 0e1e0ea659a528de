"""Each method of prevention on a layer of a given size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unarg_callback import Domain, OutputLayer, Report, verify
from unarg_callback.prevention import two_unit_coordinates, unit_rows, voronoi_bias
from unarg_callback.snapshots.readable import read_tensors


def unit(classes: int, features: int) -> nn.Linear:
    return unit_rows(nn.Linear(features, classes, bias=False))


def voronoi(classes: int, features: int) -> nn.Linear:
    return voronoi_bias(nn.Linear(features, classes))


def circle(classes: int, features: int) -> nn.Linear:
    return two_unit_coordinates(nn.Linear(features, classes, bias=False))


METHODS: tuple[Callable[[int, int], nn.Linear], ...] = (unit, voronoi, circle)


def fill(layer: nn.Linear, values: Tensor) -> nn.Linear:
    """Put values into the one parameter that the layer learns, in their dtype."""
    (learned,) = layer.to(values.dtype).parameters()
    with torch.no_grad():
        learned.copy_(values)
    return layer


def check(layer: nn.Module, domain: Domain | str | float = "box:100") -> Report:
    """Verify the layer as the monitor reads it."""
    weight, bias = read_tensors(layer, "the layer")
    return verify(OutputLayer(weight.detach(), None if bias is None else bias.detach()), domain)
