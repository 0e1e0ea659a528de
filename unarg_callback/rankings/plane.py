"""A layer of two features, drawn on paper: where each class wins, and where each ranking holds.

Two classes tie on a line; the lines of all pairs are the braid arrangement as the layer's plane
cuts it (Grivas et al. 2022, appendix B). For pictures: coordinates are float64, and a region of a
width near their rounding may be missed.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unarg_callback.errors import LayerError

Floats = NDArray[np.float64]
_TOLERANCE = 1e-9
"""Of the square's width: two lines or corners that are nearer are taken for one."""


class Cell(NamedTuple):
    """A region of the plane in which the classes have one ranking.

    Args:
        corners: (k, 2) the convex polygon, in order.
        ranking: ids of the classes by their logits, the winner first.
    """

    corners: Floats
    ranking: tuple[int, ...]


def plane_of(weight: Floats, bias: Floats | None) -> tuple[Floats, Floats]:
    """Return (C, 2) weight and (C,) bias in float64, zeros for none.

    Raises:
        LayerError: the layer has another number of features than two.
    """
    weight = np.asarray(weight, dtype=np.float64)
    if weight.ndim != 2 or weight.shape[1] != 2:
        raise LayerError(
            f"the weight has shape {weight.shape}; expected (classes, 2), as only a layer of two "
            "features can be drawn"
        )
    given = np.zeros(len(weight)) if bias is None else np.asarray(bias, dtype=np.float64)
    return weight, given


def reach_of(weight: Floats, bias: Floats | None) -> float:
    """Half the width of a square around 0 with a part of every region in it; 1 if any has."""
    weight, bias = plane_of(weight, bias)
    lines = _lines(weight, bias)
    meet = [p for one, other in itertools.combinations(lines, 2) if (p := _meeting(one, other))]
    furthest = max((max(abs(x), abs(y)) for x, y in meet), default=0.0)
    furthest = max([furthest, *(abs(offset) for _, offset in lines)])
    return 1.25 * furthest or 1.0


def cells(weight: Floats, bias: Floats | None = None, radius: float | None = None) -> list[Cell]:
    """Cut the square ``|x_k| <= radius`` into the regions of all rankings that occur in it.

    Args:
        weight: (C, 2). The work grows as C^4: for a dozen classes or so.
        bias: (C,) or None.
        radius: default: as large as it takes for every feasible ranking to occur.

    Returns:
        One cell a ranking.

    Raises:
        LayerError: there are not two features.

    >>> square = np.array([[1.0, 0.2], [-0.3, 1.0], [-1.0, 0.1], [0.1, -1.0]])
    >>> len(cells(square))
    12
    """
    weight, bias = plane_of(weight, bias)
    width = reach_of(weight, bias) if radius is None else radius
    pieces = [_square(width)]
    for normal, offset in _lines(weight, bias):
        pieces = [
            part
            for piece in pieces
            for part in (clip(piece, normal, offset), clip(piece, -normal, -offset))
            if _has_area(part, width)
        ]
    return [
        Cell(p, tuple(int(i) for i in np.argsort(-(weight @ p.mean(axis=0) + bias), kind="stable")))
        for p in pieces
    ]


def wins(weight: Floats, bias: Floats | None = None, radius: float = 100.0) -> list[Floats]:
    """Polygon of each class: where in the square ``|x_k| <= radius`` it is the argmax.

    Args:
        weight: (C, 2).
        bias: (C,) or None.
        radius: of the square.

    Returns:
        C arrays (k, 2) of corners in order; (0, 2) for a class that wins nowhere in the square.
    """
    weight, bias = plane_of(weight, bias)
    found = []
    for t in range(len(weight)):
        region = _square(radius)
        for i in range(len(weight)):
            if i != t and len(region):
                region = clip(region, weight[t] - weight[i], float(bias[t] - bias[i]))
        found.append(region if _has_area(region, radius) else np.empty((0, 2)))
    return found


def clip(polygon: Floats, normal: Floats, offset: float) -> Floats:
    """The part of a convex polygon (k, 2) in which ``normal.x + offset >= 0``; maybe empty."""
    side = polygon @ normal + offset
    kept = []
    for at in range(len(polygon)):
        after = (at + 1) % len(polygon)
        if side[at] >= 0:
            kept.append(polygon[at])
        if side[at] * side[after] < 0:
            share = side[at] / (side[at] - side[after])
            kept.append(polygon[at] + share * (polygon[after] - polygon[at]))
    return np.array(kept).reshape(-1, 2)


def _square(radius: float) -> Floats:
    return radius * np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])


def _lines(weight: Floats, bias: Floats) -> list[tuple[Floats, float]]:
    """Normal, of length 1, and offset of the line on which each pair of classes ties."""
    found = []
    for i, j in itertools.combinations(range(len(weight)), 2):
        normal = weight[i] - weight[j]
        length = float(np.linalg.norm(normal))
        if length > 0:
            found.append((normal / length, float(bias[i] - bias[j]) / length))
    return found


def _meeting(one: tuple[Floats, float], other: tuple[Floats, float]) -> tuple[float, float] | None:
    (a, p), (b, q) = one, other
    area = float(a[0] * b[1] - a[1] * b[0])
    if abs(area) < _TOLERANCE:
        return None
    return float(a[1] * q - b[1] * p) / area, float(b[0] * p - a[0] * q) / area


def _has_area(polygon: Floats, radius: float) -> bool:
    if len(polygon) < 3:
        return False
    x, y = polygon.T
    area = abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
    return area > _TOLERANCE * radius**2 * 1e-3
