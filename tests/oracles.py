"""Slow, simple answers to compare the package with; they share no code with it.

No float tolerance decides: a linear program only proposes, exact arithmetic decides, and what it
can't confirm is called unclear.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, QhullError

from tests.independent import ARGMAXABLE, UNARGMAXABLE, ExactLayer, InexactError

Floats = NDArray[np.floating]
UNCLEAR = "unclear"


def qhull_vertices(weight: Floats) -> set[int] | None:
    """Argmaxable classes of a layer without bias, the input free; None if Qhull may be wrong.

    Qhull merges facets that are flat within its rounding, so an answer is given only for rows in
    general position: none twice, and none on a facet without being a corner of it.
    """
    if len(np.unique(weight, axis=0)) < len(weight) or len(weight) <= weight.shape[1] + 1:
        return None
    try:
        hull = ConvexHull(weight)
    except QhullError:
        return None
    vertices = {int(i) for i in hull.vertices}
    inner = np.setdiff1d(np.arange(len(weight)), hull.vertices)
    height = weight[inner] @ hull.equations[:, :-1].T + hull.equations[:, -1]
    if (height > -1e-9 * np.abs(weight).max()).any():
        return None
    return vertices


def box_statuses(
    layer: ExactLayer, low: Floats, high: Floats, min_lead: float, classes: list[int]
) -> list[int | str]:
    """Exact status in a box, each class by one linear program over all its rivals."""
    return [_box_status(layer, low, high, min_lead, index) for index in classes]


def _box_status(
    layer: ExactLayer, low: Floats, high: Floats, min_lead: float, index: int
) -> int | str:
    """``max m: (w_t - w_i) x + b_t - b_i >= m, low <= x <= high``, both sides checked exactly."""
    rivals = layer.active[layer.active != index]
    if not len(rivals):
        return ARGMAXABLE
    slope = layer.weight[index] - layer.weight[rivals]
    offset = layer.bias[index] - layer.bias[rivals]
    # A power of two, so that nothing is rounded; HiGHS's tolerances are absolute.
    scale = 2.0 ** -np.frexp(max(np.abs(slope).max(), np.abs(offset).max()) or 1.0)[1]
    bounds = [*zip(low, high, strict=True), (None, None)]
    result = linprog(
        [0.0] * layer.dim + [-1.0],
        A_ub=np.hstack([-slope * scale, np.ones((len(rivals), 1))]),
        b_ub=offset * scale,
        bounds=bounds,
        method="highs",
    )
    if result.x is None:
        return UNCLEAR
    lead = layer.lead(index, np.clip(result.x[:-1], low, high))
    if lead is not None and lead > min_lead:
        return ARGMAXABLE
    weight = np.maximum(-result.ineqlin.marginals, 0.0)
    used = weight > 0
    if used.any() and (layer.box_bound(index, rivals[used], weight[used], low, high) <= min_lead):
        return UNARGMAXABLE
    return UNCLEAR


def free_status(layer: ExactLayer, index: int) -> int | str:
    """Exact status with the input free and a least lead of 0.

    Unargmaxable exactly if the row is a convex combination of other rows with
    ``sum mu_i (b_t - b_i) <= 0``: a linear program finds the support, rational arithmetic decides.
    """
    rivals = layer.active[layer.active != index]
    if not len(rivals):
        return ARGMAXABLE
    slope = layer.weight[index] - layer.weight[rivals]
    offset = layer.bias[index] - layer.bias[rivals]
    scale = 2.0 ** -np.frexp(max(np.abs(slope).max(), np.abs(offset).max()) or 1.0)[1]
    # Homogeneous form: a lead s (w_t - w_i) (x / s) + s (b_t - b_i), s >= 0, is positive or not.
    lines = np.hstack([slope, offset[:, None]]) * scale
    ray = linprog(
        [0.0] * (layer.dim + 1) + [-1.0],
        A_ub=np.hstack([-lines, np.ones((len(rivals), 1))]),
        b_ub=np.zeros(len(rivals)),
        bounds=[(-1, 1)] * layer.dim + [(0, 1), (None, None)],
        method="highs",
    )
    if ray.x is not None:
        point, share = ray.x[:-2], ray.x[-2]
        tries = [point * 2.0**k for k in (0, 4, 8, 16, 32)]
        if share > 1e-12:
            tries.append(point / share)
        if any((layer.lead(index, x) or 0) > 0 for x in tries):
            return ARGMAXABLE
    # A basic solution may sit on a face that the row only seems to lie on: then the mean of a few
    # solutions, whose support is larger, leaves room for the exact correction.
    equal = np.vstack([layer.weight[rivals].T * scale, np.ones(len(rivals))])
    right = np.append(layer.weight[index] * scale, 1.0)
    rng = np.random.default_rng(index)
    mean, found = np.zeros(len(rivals)), 0
    for costs in [offset * scale, *rng.random((6, len(rivals)))]:
        hull = linprog(
            costs,
            A_ub=offset[None] * scale,
            b_ub=[0.0],
            A_eq=equal,
            b_eq=right,
            method="highs",
        )
        if hull.x is None:
            continue
        mean, found = mean + hull.x, found + 1
        for mu in (hull.x, mean / found):
            used = mu > 1e-11
            try:
                bound = layer.free_bound(index, rivals[used], mu[used])
            except InexactError:
                continue
            if bound <= 0:
                return UNARGMAXABLE
    return UNCLEAR
