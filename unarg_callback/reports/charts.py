"""Charts as inline SVG that stretches to its frame, with axis labels as text of its real size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WIDTH, _HEIGHT = 1000, 300
_STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Dots:
    """One kind of class in a chart.

    Args:
        label: of the kind.
        style: name of its colour in the page's style.
        x: (n,) int64 ids.
        y: (n,) int64 steps, from 0.
        lift: how much higher to draw them, so that they don't cover others with as many steps.
    """

    label: str
    style: str
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    lift: int = 0


def scatter(kinds: Sequence[Dots], classes: int, x_label: str, y_label: str) -> str:
    """Steps (on a scale of log(1 + steps)) against class ids.

    Args:
        kinds: what to draw, the last on top.
        classes: C, the right end.
        x_label: of the axis.
        y_label: of the axis.
    """
    top = max([int(kind.y.max()) for kind in kinds if len(kind.y)], default=0)
    reach = math.log1p(max(top, 1)) * 1.08
    drawn = []
    for kind in kinds:
        # Dots that would fall on one another are drawn once.
        left = np.rint(kind.x / max(classes - 1, 1) * _WIDTH).astype(np.int64)
        down = np.rint(_HEIGHT * (1 - np.log1p(kind.y) / reach) - kind.lift).astype(np.int64)
        places = np.unique(np.stack([left, down], axis=1), axis=0).tolist()
        path = "".join(f"M{x} {y}h0" for x, y in places)
        drawn.append(f'<path class="dots {kind.style}" d="{path}"/>')
    y_ticks = [(math.log1p(value) / reach, f"{value:,}") for value in _decades(top)]
    x_ticks = [(value / max(classes - 1, 1), f"{value:,}") for value in _round_steps(classes - 1)]
    return _frame("".join(drawn), x_ticks, y_ticks, x_label, y_label)


def histogram(
    values: NDArray[np.float64], style: str, x_label: str, y_label: str, width: float = 0.25
) -> str:
    """How many positive values there are in each part of a decade; others fall in the first part.

    Args:
        values: (n,) float64.
        style: name of the colour.
        x_label: of the axis, which is logarithmic.
        y_label: of the axis.
        width: of a bar, in decades.
    """
    positive = values[values > 0]
    exponents = np.log10(positive) if len(positive) else np.zeros(1)
    # A few values that are tiny by rounding must not push all others into a corner.
    low = math.floor(max(float(exponents.min()), float(np.median(exponents)) - 8) / width) * width
    high = max(math.ceil((float(exponents.max()) + 1e-9) / width) * width, low + 4 * width)
    bars = round((high - low) / width)
    place = np.floor((np.clip(exponents, low, high - width / 2) - low) / width).astype(np.int64)
    heights = np.bincount(place, minlength=bars) if len(positive) else np.zeros(bars, np.int64)
    heights[0] += len(values) - len(positive)
    top = max(int(heights.max()), 1)
    each, unit = _WIDTH / bars, _HEIGHT / 1.04 / top
    path = "".join(
        f"M{each * n + 1:.1f} {_HEIGHT}v{-max(h * unit, 2):.1f}h{each - 2:.1f}V{_HEIGHT}z"
        for n, h in enumerate(heights.tolist())
        if h
    )
    apart = max(1, math.ceil((high - low) / 8))
    decades = range(math.ceil(low), math.floor(high) + 1, apart)
    x_ticks = [((k - low) / (high - low), _power_of_ten(k)) for k in decades]
    y_ticks = [(value / top / 1.04, f"{value:,}") for value in _round_steps(top, 4)]
    return _frame(f'<path class="bars {style}" d="{path}"/>', x_ticks, y_ticks, x_label, y_label)


def _frame(
    drawing: str,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    x_label: str,
    y_label: str,
) -> str:
    lines = "".join(f"M0 {_HEIGHT * (1 - share):.1f}H{_WIDTH}" for share, _ in y_ticks)
    below = "".join(
        f'<span style="left:{100 * share:.1f}%">{text}</span>' for share, text in x_ticks
    )
    beside = "".join(
        f'<span style="bottom:{100 * share:.1f}%">{text}</span>' for share, text in y_ticks
    )
    return (
        f'<div class="chart"><div class="ylabel">{y_label}</div><div class="yticks">{beside}</div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{y_label} against {x_label}"><path class="grid" d="{lines}"/>{drawing}</svg>'
        f'<div class="xticks">{below}</div><div class="xlabel">{x_label}</div></div>'
    )


def _decades(top: int) -> list[int]:
    """0, 1, 10, 100 and so on, with few of them 2 and 5 times these, and the top."""
    found = [0, *(10**k for k in range(12) if 10**k <= top)]
    if top < 30:
        found = [0, 1, *(n for n in (2, 5, 10, 20) if n <= top)]
    # The top has a tick of its own where there is room for one.
    return found if math.log1p(top) < 1.15 * math.log1p(found[-1]) else [*found, top]


def _round_steps(top: int, most: int = 5) -> list[int]:
    """At most so many steps from 0 to ``top``, by round numbers."""
    if top < 1:
        return [0]
    step = next(size * 10**k for k in range(18) for size in _STEPS if top / (size * 10**k) <= most)
    return list(range(0, top + 1, step))


def _power_of_ten(exponent: int) -> str:
    """A power of ten, written out where that is short."""
    if -3 <= exponent <= 4:
        return f"{10.0**exponent:,.{max(-exponent, 0)}f}"
    return f"10<sup>{exponent}</sup>".replace("-", "\N{MINUS SIGN}")
