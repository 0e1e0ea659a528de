"""Figures 1, 2 and 7 of the paper: a layer of two features, seen in its plane."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from unarg_callback.errors import LayerError
from unarg_callback.figures.canvas import COLOURS, FAINT, INK, canvas, colour, names_of, styled
from unarg_callback.rankings.counts import feasible_rankings
from unarg_callback.rankings.plane import Cell, Floats, cells, plane_of, reach_of, wins

_ALONG = 721
"""Directions at which logits are drawn: every half degree."""
_LABELLED = 12
"""Classes above which their names would hide the picture."""
_RANKED = 4
"""Classes above which regions are too many to write their rankings in them."""
_MOST_RANKED, _MOST_REACHED, _MOST_REGIONS = 20, 100, 5000
"""Classes above which all rankings, how far the regions reach, or the regions take minutes."""
_ROOM = 0.062
"""How far a region's middle must be from its sides to be written in, in half widths."""
_SEEN_IN_SPACE = 4
"""Classes whose logits, less what they have in common, have three dimensions."""
_ALONG_ONES: Floats = (
    np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=np.float64) / 2
)
"""Orthonormal columns orthogonal to (1, 1, 1, 1)."""


def draw_regions(
    weight: Floats,
    bias: Floats | None = None,
    names: Sequence[str] | None = None,
    radius: float | None = None,
) -> Any:
    """Where each class wins, and its logit in every direction (Figure 1).

    Args:
        weight: (C, 2).
        bias: (C,) or None.
        names: of the classes.
        radius: half the width of the square, and how far from 0 the directions are followed;
            default: so that all regions show.

    Returns:
        A matplotlib Figure.

    Raises:
        LayerError: there are not two features, or too many classes.
    """
    weight, bias = plane_of(weight, bias)
    _require_few(len(weight), _MOST_REGIONS, "")
    if radius is None and bias.any():
        _require_few(len(weight), _MOST_REACHED, " where no radius is given")
    radius = (reach_of(weight, bias) if bias.any() else 1.0) if radius is None else radius
    names = names_of(len(weight), names)
    regions = wins(weight, bias, radius)
    angle = np.linspace(0, 2 * np.pi, _ALONG)
    around = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    logits = around @ weight.T + bias
    with styled():
        figure = canvas(6.3, 3.2)
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
        for t, region in enumerate(regions):
            if len(region):
                left.fill(*region.T, facecolor=colour(t), alpha=0.55, edgecolor=INK, linewidth=0.8)
                if len(weight) <= _LABELLED:
                    left.annotate(names[t], region.mean(axis=0), ha="center", va="center")
            never = not len(region)
            right.plot(
                np.degrees(angle),
                logits[:, t],
                color=INK if never else colour(t),
                linestyle="--" if never else "-",
                linewidth=2.0 if never else 1.3,
                label=f"{names[t]}, never" if never else names[t],
            )
        right.plot(
            np.degrees(angle), logits.max(axis=1), color=FAINT, linewidth=4, alpha=0.4, zorder=0
        )
        _square(left, radius)
        left.set_title("the class with the highest logit")
        right.set_title(f"logits at |x| = {radius:.3g}")
        right.set_xlabel("direction of x, degrees")
        right.set_xlim(0, 360)
        right.set_xticks(range(0, 361, 90))
        if len(weight) <= _LABELLED:
            right.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.22), handlelength=1.6)
        return figure


def draw_hull(weight: Floats, names: Sequence[str] | None = None) -> Any:
    """Rows as points, their convex hull, and who is inside: a layer without bias (Figure 2).

    Args:
        weight: (C, 2).
        names: of the classes.

    Returns:
        A matplotlib Figure.

    Raises:
        LayerError: there are not two features.
    """
    weight, none = plane_of(weight, None)
    names = names_of(len(weight), names)
    corners = hull(weight)
    inside = [i for i in range(len(weight)) if i not in corners]
    with styled():
        figure = canvas(3.6, 3.5)
        axes = figure.subplots()
        outline = weight[corners]
        axes.fill(*outline.T, facecolor=COLOURS[0], alpha=0.15, edgecolor=COLOURS[0], linewidth=1)
        axes.scatter(
            *weight[corners].T, color=COLOURS[0], s=28, zorder=3, label="corner: argmaxable"
        )
        if inside:
            axes.scatter(
                *weight[inside].T,
                facecolor="white",
                edgecolor=COLOURS[1],
                linewidth=1.5,
                s=32,
                zorder=3,
                label="inside or on an edge: unargmaxable",
            )
        axes.plot(0, 0, "+", color=FAINT)
        if len(weight) <= _LABELLED:
            for name, (x, y) in zip(names, weight, strict=True):
                axes.annotate(name, (x, y), xytext=(5, 5), textcoords="offset points")
        axes.set_aspect("equal")
        axes.margins(0.15)
        axes.set_xlabel("first feature of w")
        axes.set_ylabel("second feature of w")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), handletextpad=0.3)
        return figure


def _require_few(classes: int, most: int, when: str) -> None:
    if classes > most:
        raise LayerError(
            f"the layer has {classes:,} classes; expected at most {most:,}{when}: the work grows "
            "with a high power of their number"
        )


def hull(points: Floats) -> list[int]:
    """Ids of the corners of the convex hull of (n, 2) points, in order; of equal points the first.

    >>> hull(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 0.5], [1.0, 2.0], [1.0, 0.0]]))
    [0, 1, 3]
    """
    order = sorted(range(len(points)), key=lambda i: (*points[i], i))
    chains: list[int] = []
    for way in (order, order[::-1]):
        chain: list[int] = []
        for at in way:
            while len(chain) > 1 and _turn(points[chain[-2]], points[chain[-1]], points[at]) <= 0:
                chain.pop()
            if not chain or (points[chain[-1]] != points[at]).any():
                chain.append(at)
        chains += chain[:-1]
    return list(dict.fromkeys(chains)) or order[:1]


def draw_braid(
    weight: Floats,
    bias: Floats | None = None,
    names: Sequence[str] | None = None,
    radius: float | None = None,
) -> Any:
    """The rankings in the layer's plane, without its bias and with it (Figure 7).

    For four classes there is a second row: the same plane in the space of the logits, seen along
    (1, 1, 1, 1). The circles are where two logits are equal, on a
    sphere; they bound its 24 rankings.

    Args:
        weight: (C, 2).
        bias: (C,), or None for the first picture alone.
        names: of the classes.
        radius: half the width of the square; default: so that all rankings show.

    Returns:
        A matplotlib Figure.

    Raises:
        LayerError: there are not two features, or too many classes.
    """
    weight, offset = plane_of(weight, bias)
    _require_few(len(weight), _MOST_RANKED, " whose rankings are drawn")
    names = names_of(len(weight), names)
    with styled():
        shown = [(False, offset * 0)] + ([(True, offset)] if bias is not None else [])
        rows = 2 if len(weight) == _SEEN_IN_SPACE else 1
        figure = canvas(3.3 * len(shown), 3.5 * rows)
        for at, (biased, b) in enumerate(shown, start=1):
            width = (reach_of(weight, b) if biased else 1.0) if radius is None else radius
            axes = figure.add_subplot(rows, len(shown), at)
            found = cells(weight, b, radius)
            for cell in found:
                look = {"alpha": 0.45, "edgecolor": INK, "linewidth": 0.8}
                axes.fill(*cell.corners.T, facecolor=colour(cell.ranking[0]), **look)
                if len(weight) <= _RANKED:
                    _name_ranking(axes, cell, names, width)
            _square(axes, width)
            most = feasible_rankings(len(weight), 2, bias=biased)
            title = f"{'Wx + b' if biased else 'Wx'}: {len(found)} rankings"
            axes.set_title(title if len(found) == most else f"{title} (at most {most})")
            if rows == 2:
                space = figure.add_subplot(rows, len(shown), len(shown) + at, projection="3d")
                _draw_in_space(space, weight, b, found)
        return figure


def _draw_in_space(axes: Any, weight: Floats, bias: Floats, found: Sequence[Cell]) -> None:
    """The layer's plane among the hyperplanes of the braid arrangement of four classes."""
    art = import_module("mpl_toolkits.mplot3d.art3d")
    polygons = [(cell.corners @ weight.T + bias) @ _ALONG_ONES for cell in found]
    size = max(float(np.linalg.norm(polygon, axis=1).max()) for polygon in polygons)
    axes.add_collection3d(
        art.Poly3DCollection(
            polygons,
            facecolors=[colour(cell.ranking[0]) for cell in found],
            edgecolors=INK,
            linewidths=0.7,
            alpha=0.6,
        )
    )
    turn = np.linspace(0, 2 * np.pi, 181)
    for i, j in itertools.combinations(range(_SEEN_IN_SPACE), 2):
        normal = _ALONG_ONES[i] - _ALONG_ONES[j]
        _, _, across = np.linalg.svd(normal[None])
        circle = size * (np.cos(turn)[:, None] * across[1] + np.sin(turn)[:, None] * across[2])
        axes.plot(*circle.T, color=FAINT, linewidth=0.8)
    for limits in (axes.set_xlim, axes.set_ylim, axes.set_zlim):
        limits(-0.62 * size, 0.62 * size)
    # Somewhat aslant of the plane's normal, so that its regions and the sphere both show.
    normal = np.cross(*(_ALONG_ONES.T @ weight).T)
    x, y, z = normal / (np.linalg.norm(normal) or 1.0)
    axes.view_init(np.degrees(np.arcsin(z)) - 20, np.degrees(np.arctan2(y, x)) + 25)
    axes.set_box_aspect((1, 1, 1))
    axes.set_axis_off()


def _name_ranking(axes: Any, cell: Cell, names: Sequence[str], width: float) -> None:
    """Write the ranking in its region, the winner first, where there is room."""
    middle = _centroid(cell.corners)
    along = np.roll(cell.corners, -1, axis=0) - cell.corners
    away = middle - cell.corners
    gaps = np.abs(along[:, 0] * away[:, 1] - along[:, 1] * away[:, 0]) / np.hypot(*along.T)
    room = float(gaps.min()) / width
    if room < _ROOM:
        return
    plain = all(name == f"c{i + 1}" for i, name in enumerate(names))
    text = ("" if plain else "\n").join(str(i + 1) if plain else names[i] for i in cell.ranking)
    axes.annotate(text, middle, ha="center", va="center", fontsize=7 if room > 1.4 * _ROOM else 5.5)


def _centroid(corners: Floats) -> Floats:
    after = np.roll(corners, -1, axis=0)
    cross = corners[:, 0] * after[:, 1] - after[:, 0] * corners[:, 1]
    middle: Floats = ((corners + after) * cross[:, None]).sum(axis=0) / (3 * cross.sum())
    return middle


def _square(axes: Any, radius: float) -> None:
    axes.set_xlim(-radius, radius)
    axes.set_ylim(-radius, radius)
    axes.set_aspect("equal")
    axes.set_xlabel("$x_1$")
    axes.set_ylabel("$x_2$")
    axes.spines[["top", "right"]].set_visible(True)


def _turn(o: Floats, a: Floats, b: Floats) -> float:
    return float((a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]))
