"""The paper's linear programme for one class: the largest ball in its region.

Grivas et al. (2022), section 3.3.1, after Boyd and Vandenberghe (2004), section 8.5.1:

    max r   subject to   (w_i - w_t).x + |w_i - w_t|_2 r <= b_t - b_i  (i != t),  low <= x <= high

Only the centre is held in the box, as in the paper; the ball may reach out of it. The paper asks
for r >= 0 and reads infeasibility as unargmaxable. Here r is free, so that a negative optimum tells
how far the class is from a region of its own, and neither is a verdict: the centre is a candidate
witness, and ``verify`` finds the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.errors import DomainError, LayerError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.search.linear_program import LinearProgram

_ROUNDS = 500
_CUTS = 64
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class ChebyshevCentre:
    """The largest ball in the region of a class, as a linear programme sees it.

    Args:
        point: (d,) float64, the centre.
        radius: the ball's radius, a distance in x; negative where the class has no region, then
            the least by which every x misses one.
        converged: False if the solver or its limits ended the search first.
    """

    point: NDArray[np.float64]
    radius: float
    converged: bool


def chebyshev_centre(
    layer: OutputLayer,
    index: int,
    domain: Domain | str | float = "box:100",
    *,
    time_limit: float = float("inf"),
) -> ChebyshevCentre | None:
    """Solve the paper's LP for one class, by cuts.

    Args:
        layer: the layer.
        index: the class, by id.
        domain: a box.
        time_limit: seconds for each LP.

    Returns:
        The centre and radius, or None where no ball exists because another class has the same row
        and at least the same bias.

    Raises:
        LayerError: the class takes no part.
        DomainError: the domain is free; the largest ball may be unbounded there.

    >>> square = OutputLayer([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> found = chebyshev_centre(square, 0, 1.0)
    >>> round(found.radius, 3), abs(found.point).round(3).tolist()
    (0.707, [1.0, 0.0])
    """
    box = Domain.of(domain)
    if box.is_free:
        raise DomainError("the free domain has no largest ball; expected a box")
    if index not in layer.active.tolist():
        raise LayerError(f"class {index} takes no part or does not exist; expected an active class")
    rivals = layer.active[layer.active != index]
    difference, gap, length = _halfspaces(layer, index, rivals)
    if (gap[length == 0] <= 0).any():
        return None
    use = length > 0
    normal = difference[use] / length[use, None]
    distance = gap[use] / length[use]
    return _solve(normal, distance, box.bounds(layer.dim), time_limit)


def _halfspaces(
    layer: OutputLayer, index: int, rivals: torch.Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Rows ``w_i - w_t``, right sides ``b_t - b_i`` and the rows' lengths."""
    own = torch.tensor([index])
    difference = (layer.rows(rivals) - layer.rows(own)).cpu().numpy()
    gap = (layer.biases(own) - layer.biases(rivals)).cpu().numpy()
    # A power of two takes extreme scales out of the squares, and changes no ball.
    scale = 2.0 ** -np.frexp(max(float(np.abs(difference).max(initial=0.0)), 1e-300))[1]
    difference, gap = difference * scale, gap * scale
    return difference, gap, np.linalg.norm(difference, axis=1)


def _solve(
    normal: NDArray[np.float64],
    distance: NDArray[np.float64],
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
    time_limit: float,
) -> ChebyshevCentre:
    low, high = bounds
    point = (low + high) / 2
    if not len(normal):
        return ChebyshevCentre(point, float("inf"), True)
    cost = np.append(np.zeros(len(low)), -1.0)
    program = LinearProgram(cost, np.append(low, -np.inf), np.append(high, np.inf))
    present = np.zeros(len(normal), dtype=bool)
    radius = float((distance - normal @ point).min())
    bound = np.inf
    for _ in range(_ROUNDS):
        slack = distance - normal @ point - (bound if np.isfinite(bound) else 0.0)
        slack[present] = np.inf
        nearest = np.argsort(slack)[:_CUTS]
        violated = nearest[slack[nearest] < -_TOLERANCE] if np.isfinite(bound) else nearest
        if not len(violated):
            return ChebyshevCentre(point, float((distance - normal @ point).min()), True)
        present[violated] = True
        rows = np.hstack([normal[violated], np.ones((len(violated), 1))])
        program.add_rows(rows, np.full(len(violated), -np.inf), distance[violated])
        found = program.solve(time_limit)
        if found is None:
            break
        point, bound = found.value[:-1].clip(low, high), float(found.value[-1])
        radius = float((distance - normal @ point).min())
    return ChebyshevCentre(point, radius, False)
