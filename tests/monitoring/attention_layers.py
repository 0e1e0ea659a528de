"""What tests of watched attention layers have in common."""

from __future__ import annotations

import torch
from torch import Tensor, nn

N, T, S, WIDTH, HEADS = 3, 4, 6, 8, 2


def split(projected: Tensor) -> Tensor:
    """(N, heads, S, d) of (N, S, width)."""
    return projected.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def torch_keys(layer: nn.MultiheadAttention, key: Tensor) -> Tensor:
    """As torch's own function projects them."""
    bias = layer.in_proj_bias
    whole = layer._qkv_same_embed_dim
    weight = layer.in_proj_weight.chunk(3)[1] if whole else layer.k_proj_weight
    return split(nn.functional.linear(key, weight, None if bias is None else bias.chunk(3)[1]))


def hooks(model: nn.Module) -> int:
    return sum(len(part._forward_pre_hooks) for part in model.modules())


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
