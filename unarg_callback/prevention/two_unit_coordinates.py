"""Two coordinates of each row on a circle, at an angle of its own: every class wins there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unarg_callback.errors import LayerError
from unarg_callback.prevention.conditions import (
    require_matrix,
    require_no_bias,
    require_positive,
)

Layer = TypeVar("Layer", bound=nn.Module)


class TwoUnitCoordinates(nn.Module):
    """Replaces the last two entries of row i by ``r (cos t_i, sin t_i)``, ``t_i = 2 pi i / C``.

    Theorem: without bias, every class is argmaxable, whatever the other d - 2 columns hold.
    Proof: at ``x = (0, ..., 0, a cos t_t, a sin t_t)`` class t leads class i by
    ``a r (1 - cos(t_t - t_i)) >= a r (1 - cos(2 pi / C)) > 0``.

    Nothing is learned in these columns, so unlike with :class:`UnitRows` and
    :class:`VoronoiBias` training can't bring two rows together; and for the same reason two
    features of the layer are taken away. Make it two features wider to keep what it had.

    Conditions:
        * no bias.
        * the domain holds a circle about 0 in the last two dimensions, as a box with 0 inside does.
        * rounding, and the lead: neighbours are only ``r (1 - cos(2 pi / C)) = 20 r / C^2`` apart
          in a lead at |x| = 1. For 10,000 classes that is 2e-7, the rounding error of float32;
          and with large other entries it is less than ``min_lead``. In bfloat16 some hundred
          classes are too many. Then classes can still win elsewhere, but nothing is promised.

    Args:
        classes: C.
        radius: r.

    Shapes:
        (C, d) to (C, d), of the same dtype, d >= 2.

    >>> TwoUnitCoordinates(4)(torch.zeros(4, 3)).round().abs()
    tensor([[0., 1., 0.],
            [0., 0., 1.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """

    circle: Tensor

    def __init__(self, classes: int, radius: float = 1.0) -> None:
        super().__init__()
        self.radius = require_positive(radius, "radius")
        # Not saved: it follows from C and r.
        self.register_buffer("circle", _circle(classes, self.radius), persistent=False)

    def forward(self, weight: Tensor) -> Tensor:
        """Return (C, d) with the last two columns replaced."""
        return torch.cat([weight[:, :-2], self.circle.to(weight.dtype)], dim=1)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return what to keep for a weight that is assigned: itself."""
        return weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> TwoUnitCoordinates:
        """Move or cast; points that were rounded, or left on the meta device, are made anew."""
        super()._apply(fn, recurse)
        self.circle = _circle(len(self.circle), self.radius).to(self.circle)
        return self

    def extra_repr(self) -> str:
        """Classes and radius, in ``print(module)``."""
        return f"classes={len(self.circle)}, radius={self.radius:g}"


def _circle(classes: int, radius: float) -> Tensor:
    """(C, 2) float64 points on the CPU, also where another device is the default."""
    angle = torch.arange(classes, dtype=torch.float64, device="cpu") * (2 * math.pi / classes)
    return radius * torch.stack([angle.cos(), angle.sin()], dim=1)


def two_unit_coordinates(layer: Layer, radius: float = 1.0) -> Layer:
    """Put the last two columns on a circle; see :class:`TwoUnitCoordinates` for what it promises.

    Call it before the optimizer is made.

    Args:
        layer: a linear layer without bias, of at least three features, changed in place.
        radius: of the circle.

    Returns:
        The same layer.

    Raises:
        LayerError: it isn't linear, has a bias, too few features, or is parametrised already.
        UnargError: the radius isn't a finite number above 0.

    >>> layer = two_unit_coordinates(nn.Linear(4, 100, bias=False))
    >>> bool(torch.allclose(layer.weight[:, 2:].norm(dim=1), torch.ones(100)))
    True
    """
    require_positive(radius, "radius")
    weight = require_matrix(layer)
    require_no_bias(layer)
    if weight.shape[1] < 3:
        raise LayerError(
            f"this {type(layer).__name__} has {weight.shape[1]} features; expected at least 3, as "
            "two are taken"
        )
    parametrization = TwoUnitCoordinates(len(weight), radius).to(weight.device, weight.dtype)
    parametrize.register_parametrization(layer, "weight", parametrization)
    return layer
