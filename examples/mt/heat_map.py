"""Heat maps of attention weights: with matplotlib, if it is there, and without.

In all of them only a weight of exactly 0 is white: however small another is, its cell has a tint.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

_CELL = 12
_TINT = 0.2
_INCHES = 0.16


class Sentence(NamedTuple):
    """What is drawn of a sentence.

    Attributes:
        source: S names of tokens.
        target: T names of tokens.
        weights: for each panel (T, S), from 0 to 1.
    """

    source: list[str]
    target: list[str]
    weights: Sequence[Tensor]


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
        titles = [f"head {head}" for head in range(len(weights))]
        sentence = Sentence(source, target, list(weights))
        # TensorBoard shows images small: two side by side can be read there, four can't.
        board.add_figure(tag, figure(titles, [sentence], columns=2), step)


def image(weights: Tensor) -> Tensor:
    """Grey image (1, height, width) of (heads, T, S) weights: 1 is black, and only 0 is white."""
    grey = (1 - weights) * (1 - _TINT * (weights > 0))
    large = grey.repeat_interleave(_CELL, -1).repeat_interleave(_CELL, -2)
    framed = pad(large, (1, 1, 1, 1), value=0.5)
    return torch.cat(list(framed), -1).unsqueeze(0)


def figure(titles: Sequence[str], sentences: Sequence[Sentence], columns: int) -> Any:
    """Matplotlib figure with a panel for each of a sentence's weights, sentences below each other.

    Source tokens are across, target tokens down, and their names at the sides.

    Args:
        titles: of a sentence's panels.
        sentences: at least one.
        columns: panels side by side.
    """
    lines = [sentence for sentence in sentences for _ in range(0, len(titles), columns)]
    tall = [len(sentence.target) for sentence in lines]
    wide = max(len(sentence.source) for sentence in lines)
    size = (1.7 + columns * (_INCHES * wide + 0.1), sum(_INCHES * t + 1.0 for t in tall))
    # Not pyplot, which would choose a window's backend and keep the figure.
    new = import_module("matplotlib.figure").Figure(figsize=size, dpi=100, layout="constrained")
    grid = new.subplots(len(lines), columns, sharey="row", squeeze=False, height_ratios=tall)
    free = list(grid.flat)
    for sentence in sentences:
        for title, weights in zip(titles, sentence.weights, strict=True):
            axes = free.pop(0)
            axes.set_title(title, fontsize=8)
            shown = _panel(axes, sentence, weights)
        for _ in range(-len(titles) % columns):
            free.pop(0).remove()
    bar = new.colorbar(shown, ax=new.axes, shrink=min(1, 1.5 / size[1]), aspect=12, pad=0.01)
    bar.set_label("weight; 0 is white", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return new


def _panel(axes: Any, sentence: Sentence, weights: Tensor) -> Any:
    """Draw one heat map; return what a colour bar needs."""
    colours = import_module("matplotlib").colormaps["YlGnBu"]
    tinted = import_module("matplotlib.colors").ListedColormap(
        colours(np.linspace(_TINT, 1, 256)), name="tinted"
    )
    values = weights.numpy()
    shown = axes.imshow(np.ma.masked_equal(values, 0), cmap=tinted, vmin=0, vmax=1, aspect="auto")
    length, width = values.shape
    # Turned, SentencePiece's sign for a space is far from the token; "$" would start a formula.
    source, target = ([name.replace("▁", "_") for name in side] for side in sentence[:2])
    axes.set_xticks(range(width), source, rotation=90, fontsize=7, parse_math=False)
    axes.set_yticks(range(length), target, fontsize=7, parse_math=False)
    # Thin lines between the cells, so that rows and columns of white ones can be followed.
    axes.set_xticks(np.arange(0.5, width - 1), minor=True)
    axes.set_yticks(np.arange(0.5, length - 1), minor=True)
    axes.grid(which="minor", color="0.9", lw=0.5)
    axes.tick_params(which="both", length=0, pad=2)
    axes.spines[:].set(color="0.6", lw=0.6)
    return shown
