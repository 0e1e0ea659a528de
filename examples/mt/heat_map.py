"""Heat maps of attention weights: with matplotlib, if it is there, and without."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

_CELL = 12


def draw(
    board: Any, tag: str, weights: Tensor, source: list[str], target: list[str], step: int
) -> None:
    """Write a heat map to TensorBoard: a figure with the tokens' names, or else a plain image.

    Args:
        board: TensorBoard's ``SummaryWriter``.
        tag: the name there.
        weights: (heads, T, S), from 0 to 1.
        source: S names.
        target: T names.
        step: of the training.
    """
    if find_spec("matplotlib") is None:
        board.add_image(tag, image(weights), step)
    else:
        board.add_figure(tag, figure(weights, source, target), step)


def image(weights: Tensor) -> Tensor:
    """Grey image (1, height, width) of (heads, T, S) weights: black is 1, white 0."""
    large = (1 - weights).repeat_interleave(_CELL, -1).repeat_interleave(_CELL, -2)
    framed = pad(large, (1, 1, 1, 1), value=0.5)
    return torch.cat(list(framed), -1).unsqueeze(0)


def figure(weights: Tensor, source: list[str], target: list[str]) -> Any:
    """Matplotlib figure of (heads, T, S) weights, with the tokens' names."""
    heads, rows, columns = weights.shape
    size = (1 + 0.22 * heads * columns, 1.2 + 0.22 * rows)
    # Not pyplot, which would choose a window's backend and keep the figure.
    new = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    panels = new.subplots(1, heads, sharey=True, squeeze=False)[0]
    for head, (axes, shown) in enumerate(zip(panels, weights, strict=True)):
        axes.imshow(shown.numpy(), cmap="Greys", vmin=0, vmax=1, aspect="auto")
        axes.set_title(f"head {head}", fontsize=8)
        axes.set_xticks(range(columns), source, rotation=90, fontsize=6)
        axes.set_yticks(range(rows), target, fontsize=6)
    return new
