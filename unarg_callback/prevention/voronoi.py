"""A bias of -s |w|^2 / 2: class t wins where s w_t is the nearest scaled row."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unarg_callback.errors import LayerError
from unarg_callback.prevention.conditions import require_matrix, require_positive

Layer = TypeVar("Layer", bound=nn.Module)


class VoronoiBias(nn.Module):
    """Computes the bias ``b_i = -s |w_i|^2 / 2`` from the weight of the layer that it is put on.

    Theorem: every class with a row of its own is argmaxable.
    Proof: ``z_i(x) = w_i.x - s |w_i|^2 / 2 = (|x|^2 - |x - s w_i|^2) / (2 s)``, so the nearest of
    the points ``s w_i`` wins: at ``x = s w_t`` class t leads i by ``s |w_t - w_i|^2 / 2 > 0``.

    Conditions:
        * rows are distinct. Equal rows tie, and stay unargmaxable; a zero row is as good as any.
        * the domain holds ``s w_t``: a box of radius ``s max |W_ik|`` or more. Here the witness
          can't be scaled down.
        * rounding: a bias of float32 errs by up to 6e-8 of its size, so rows nearer to each other
          than about 5e-4 of their length can lose their lead; of bfloat16, nearer than about 0.1.

    Source: Grivas et al. (2022), whose code has it as a check, with s = 1.

    Args:
        layer: whose bias it is. Its weight is read whenever the bias is, so the two can't part:
            tied, parametrised and loaded weights are followed. The layer holds this module, which
            must not hold the layer as a child in turn.
        scale: s. Inputs of length r need rows of length r / s to be reached; about ``sqrt(d)``
            suits a LayerNorm before the layer.

    Shapes:
        Any tensor, which isn't looked at, to (C,), of the weight's dtype; float16 and bfloat16 are
        computed in float32.
    """

    def __init__(self, layer: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = require_positive(scale, "scale")
        # In a tuple, lest it become a child. A deep copy of the layer refers to the copy.
        self._of = (layer,)

    def forward(self, unused: Tensor) -> Tensor:
        """Return the (C,) bias for the weight that the layer has now."""
        weight = self._of[0].weight
        assert isinstance(weight, Tensor)
        rows = weight.to(torch.promote_types(weight.dtype, torch.float32))
        return (rows.square().sum(dim=1) * (-self.scale / 2)).to(weight.dtype)

    def right_inverse(self, bias: Tensor) -> Tensor:
        """Return what to keep of a bias that is assigned: nothing of it, the weight decides."""
        return bias.new_empty(0)

    def extra_repr(self) -> str:
        """The scale, in ``print(module)``."""
        return f"scale={self.scale:g}"


def voronoi_bias(layer: Layer, scale: float = 1.0) -> Layer:
    """Make a layer's bias ``-scale |w|^2 / 2``; see :class:`VoronoiBias` for what that promises.

    Call it before the optimizer is made. The layer loses the bias it had, and its weight gets
    gradients from both its uses. In a state dict there is an empty tensor in the bias's place.

    Args:
        layer: a linear layer, with a bias or without, changed in place.
        scale: s, by which inputs are longer than rows.

    Returns:
        The same layer.

    Raises:
        LayerError: it isn't linear, or is parametrised already.
        UnargError: the scale isn't a finite number above 0.

    >>> layer = voronoi_bias(nn.Linear(4, 10))
    >>> bool(torch.allclose(layer.bias, -layer.weight.norm(dim=1) ** 2 / 2))
    True
    """
    parametrization = VoronoiBias(layer, scale)
    weight = require_matrix(layer)
    if "bias" not in layer._parameters and "bias" not in layer._buffers:
        raise LayerError(
            f"this {type(layer).__name__} has no place for a bias; expected nn.Linear or the like"
        )
    # A buffer: nothing is learned in its place, and no optimizer or DDP waits for its gradient.
    del layer.bias
    layer.register_buffer("bias", weight.detach().new_empty(len(weight)))
    parametrize.register_parametrization(layer, "bias", parametrization)
    return layer
