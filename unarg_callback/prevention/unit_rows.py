"""Rows of one length and no bias: every class wins at its own row."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unarg_callback.prevention.conditions import (
    require_matrix,
    require_no_bias,
    require_positive,
)

Layer = TypeVar("Layer", bound=nn.Module)


class UnitRows(nn.Module):
    """Scales each row of a weight to one length s.

    Theorem: without bias, every class with a row of its own is argmaxable.
    Proof: at ``x = w_t`` it leads class i by ``w_t.w_t - w_i.w_t = |w_t - w_i|^2 / 2 > 0``, as
    ``|w_i| = |w_t|``. The same holds at ``x = a w_t`` for every a > 0, with a times the lead.

    Conditions:
        * rows are distinct and not zero. Equal rows tie, and stay unargmaxable; a zero row has no
          direction, and stays zero until its gradient moves it.
        * no bias.
        * the domain holds ``a w_t`` for some a > 0: any box with 0 inside does. ``nonnegative:HI``
          doesn't, if a row has a negative entry.
        * rounding: a row in float32 has length s only within some 1e-7 s, which can put it inside
          the hull of neighbours nearer than about 1e-3 s; in bfloat16, nearer than about 0.1 s.
          Below that distance nothing is promised.

    Sources: Grivas et al. (2022), whose code has it as a check; Demeter et al. (2020) for the hull.

    Args:
        length: s, the length of every row.

    Shapes:
        (C, d) to (C, d), of the same dtype; float16 and bfloat16 are computed in float32.

    >>> rows = UnitRows(2.0)(torch.tensor([[3.0, 4.0], [0.0, -0.5]]))
    >>> rows.tolist()
    [[1.2000000476837158, 1.600000023841858], [0.0, -2.0]]
    """

    def __init__(self, length: float = 1.0) -> None:
        super().__init__()
        self.length = require_positive(length, "length")

    def forward(self, weight: Tensor) -> Tensor:
        """Return the rows of (C, d), each at its length."""
        wide = torch.promote_types(weight.dtype, torch.float32)
        rows = weight.to(wide)
        norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        # A zero row passes through, with a gradient that is finite.
        scaled = rows * (self.length / torch.where(norm > 0, norm, 1.0))
        return scaled.to(weight.dtype)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return what to keep for a weight that is assigned: itself."""
        return weight

    def extra_repr(self) -> str:
        """The length, in ``print(module)``."""
        return f"length={self.length:g}"


def unit_rows(layer: Layer, length: float = 1.0) -> Layer:
    """Give all rows of a layer's weight one length; see :class:`UnitRows` for what that promises.

    Call it before the optimizer is made. An embedding that shares the weight keeps its rows as
    they are; only the output layer scales them.

    Args:
        layer: a linear layer without bias, changed in place.
        length: of every row. Logits lie within ``length * |x|``, so it sets how sure the layer can
            be: about ``sqrt(d)`` suits a LayerNorm before it.

    Returns:
        The same layer.

    Raises:
        LayerError: it isn't linear, has a bias, or is parametrised already.
        UnargError: the length isn't a finite number above 0.

    >>> layer = unit_rows(nn.Linear(4, 10, bias=False))
    >>> bool(torch.allclose(layer.weight.norm(dim=1), torch.ones(10)))
    True
    """
    parametrization = UnitRows(length)
    require_matrix(layer)
    require_no_bias(layer)
    parametrize.register_parametrization(layer, "weight", parametrization)
    return layer
