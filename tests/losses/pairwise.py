"""The losses as printed, with all pairs; and their Fenchel-Young definition by hand."""

from __future__ import annotations

import torch
from torch import Tensor


def pairs(s: Tensor, labels: Tensor, margin: Tensor, shift: Tensor, within: int) -> Tensor:
    """``within / 2 * sum |s_i - s_j - shift_ij| + sum max(margin_i - (s_i - s_j), 0)``."""
    difference = s[:, :, None] - s[:, None, :]
    both = labels[:, :, None] & labels[:, None, :]
    one = labels[:, :, None] & ~labels[:, None, :]
    moved = (difference - (shift[:, :, None] - shift[:, None, :])).abs() * both
    hinge = (margin[:, :, None] - difference).relu() * one
    return within / 2 * moved.sum((1, 2)) + hinge.sum((1, 2))


def equation_7(z: Tensor, eta: Tensor, lambda_: float, within: int = 2) -> Tensor:
    return pairs(z / (1 - lambda_), eta > 0, eta, eta, within)


def equation_6(z: Tensor, labels: Tensor, q: float, within: int = 2) -> Tensor:
    classes = z.shape[1]
    scale = (1 + classes * q) / (z.sum(1, keepdim=True).abs() + classes * q)
    margin = labels.to(z.dtype) / labels.sum(1, keepdim=True).clamp_min(1) / scale
    return pairs(z, labels, margin, torch.zeros_like(z), within)


def label_sets(rows: int, classes: int, seed: int = 0) -> Tensor:
    """Random label sets with one label or more."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.rand(rows, classes, generator=generator) < 0.4
    labels[:, seed % classes] = True
    return labels


def distributions(labels: Tensor, seed: int = 0) -> Tensor:
    """Random distributions over label sets."""
    generator = torch.Generator().manual_seed(seed)
    share = (
        torch.rand(labels.shape, generator=generator, dtype=torch.float64) * labels + 0.1 * labels
    )
    return share / share.sum(1, keepdim=True)
