"""What each map has of the paper's properties (its Table 1, corrected), as the tests prove it.

Usage: ``python -m tests.activations.properties`` measures every cell and prints the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tests.activations.maps import Map, scores
from unarg_callback import activations as maps
from unarg_callback.activations.transforms import Transform

YES, NO = "yes", "no"
COLUMNS = (
    "idempotent",
    "monotone",
    "shift invariant",
    "scale invariant",
    "all of R^K",
    "Lipschitz",
)
LARGEST = 1e-9
"""What rounding may violate of a property that holds."""
_CLEAR = 1e-3
_STEEP = 1e3


@dataclass(frozen=True)
class Row:
    """A map's claims.

    Attributes:
        run: the map at generic parameters.
        claims: for each column but the last "yes", "no", or the parameter for which it holds.
        special: the map at the parameter of each claim that depends on one.
        lipschitz: the smallest Lipschitz constant, in words, and its value for ``run``; infinite if
            there is none.
        steepest: scores of five classes where the Jacobian's norm is near that.
        positive: whether only scores above 0 are in the domain.
    """

    run: Map
    claims: tuple[str, str, str, str, str]
    lipschitz: tuple[str, float]
    steepest: Tensor
    special: dict[str, Map]
    positive: bool = False


def _gen(g: Transform, lambda_: float = 0.3) -> Map:
    return partial(maps.sparsegen, lambda_=lambda_, g=g)


def _hourglass_steepest(q: float) -> Tensor:
    """Sum just above 0, support all, and nearly all probability on one class."""
    p = torch.full((5,), 1e-9, dtype=torch.float64)
    p[0] = 1 - 4e-9
    return (p - p.mean()) * (5 * q) / (1 + 5 * q) + 1e-12


def rows() -> dict[str, Row]:
    """All maps, in the order of the table."""
    flat = torch.zeros(5, dtype=torch.float64)
    tiny = torch.full_like(flat, 1e-5)
    two = torch.tensor([9.0, 9.0, -99.0, -99.0, -99.0], dtype=torch.float64)
    q = 0.2
    bound = math.sqrt((1 + 5 * q) ** 2 + 4) / (5 * q)
    infinite = ("none", math.inf)
    hourglass = partial(maps.sparsehourglass, q=q)
    cone = partial(maps.sparsecone, q=q)
    return {
        "softmax": Row(maps.softmax, (NO, YES, YES, NO, YES), ("1/2", 0.5), two, {}),
        "sum_normalization": Row(
            maps.sum_normalization, (YES, YES, NO, YES, "z >= 0, sum > 0"), infinite, tiny, {}, True
        ),
        "spherical_softmax": Row(
            maps.spherical_softmax, (NO, NO, NO, YES, "z != 0"), infinite, tiny, {}
        ),
        "sparsemax": Row(maps.sparsemax, (YES, YES, YES, NO, YES), ("1", 1.0), flat, {}),
        "sparsegen lin": Row(
            _gen("lin"),
            ("lambda = 0", YES, YES, NO, YES),
            ("1/(1 - lambda)", 1 / 0.7),
            flat,
            {"idempotent": _gen("lin", 0.0)},
        ),
        "sparsegen exp": Row(_gen("exp"), (NO, YES, NO, NO, YES), infinite, flat + 9, {}),
        "sparsegen sq": Row(_gen("sq"), (NO, NO, NO, NO, YES), infinite, flat + 999, {}),
        "sparsegen log": Row(
            _gen("log"), (NO, YES, NO, YES, "z >= 0, some z > 0"), infinite, tiny, {}, True
        ),
        "sparsecone": Row(
            cone,
            (YES, YES, "q = inf", "q = 0", "sum > -Kq"),
            infinite,
            flat - q + 1e-4,
            {
                "shift invariant": partial(maps.sparsecone, q=math.inf),
                "scale invariant": partial(maps.sparsecone, q=0.0),
            },
        ),
        "sparsehourglass": Row(
            hourglass,
            (YES, YES, "q = inf", "q = 0", "q > 0"),
            ("sqrt((1 + Kq)^2 + K - 1)/(Kq)", bound),
            _hourglass_steepest(q),
            {
                "shift invariant": partial(maps.sparsehourglass, q=math.inf),
                "scale invariant": partial(maps.sparsehourglass, q=0.0),
                "all of R^K": hourglass,
            },
        ),
        "sum_normalization_pp": Row(
            maps.sum_normalization_pp, (YES, YES, NO, YES, "sum != 0"), infinite, tiny, {}
        ),
    }


def violation(column: str, run: Map, positive: bool) -> float:
    """How far a map is from a property, at worst over many scores where it is defined."""
    z = scores(4000, 5, seed=7) * torch.tensor([0.1, 1.0, 3.0, 9.0]).repeat(1000)[:, None]
    z = z.abs() if positive else z
    p = run(z)
    if column == "all of R^K":
        odd = torch.tensor([[0.0] * 5, [-9.0] * 5, [2.0, -1.0, -1.0, 0.0, 0.0]]).double()
        return float(run(torch.cat([z, odd])).isnan().any())
    if column == "idempotent":
        z = z.abs() / z.abs().sum(1, keepdim=True)
        difference = run(z) - z
    elif column == "monotone":
        ordered = p.gather(1, z.argsort(1))
        difference = -ordered.diff(dim=1).clamp_max(0)
    elif column == "shift invariant":
        difference = run(z + 2.5) - p
    else:
        difference = run(1.5 * z) - p
    return float(difference.nan_to_num(0.0).abs().max())


def steepness(run: Map, z: Tensor) -> float:
    """The spectral norm of the Jacobian."""
    return float(torch.linalg.matrix_norm(torch.autograd.functional.jacobian(run, z), 2))


def proved(name: str) -> tuple[str, ...]:
    """The cells of one row, each of them measured.

    Raises:
        AssertionError: a claim doesn't hold.
    """
    row = rows()[name]
    for column, claim in zip(COLUMNS[:-1], row.claims, strict=True):
        generic = violation(column, row.run, row.positive and column != "all of R^K")
        if claim == YES:
            assert generic <= LARGEST, (name, column, generic)
        elif column in row.special:
            at_it = violation(column, row.special[column], row.positive)
            assert at_it <= LARGEST, (name, column, at_it)
            assert column == "all of R^K" or generic > _CLEAR, (name, column, generic)
        else:
            assert generic > _CLEAR, (name, column, generic)
    words, bound = row.lipschitz
    z = scores(300, 5, seed=8) * torch.tensor([0.1, 1.0, 9.0]).repeat(100)[:, None]
    steepest = steepness(row.run, row.steepest)
    if math.isinf(bound):
        assert steepest > _STEEP, (name, steepest)
    else:
        assert all(steepness(row.run, x) <= bound * (1 + 1e-9) for x in z), name
        assert bound * 0.999 < steepest <= bound * (1 + 1e-9), (name, steepest, bound)
    return (*row.claims, words)


def table() -> str:
    """The table in Markdown; every cell is measured first."""
    lines = [
        "| map | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    lines += [f"| {name} | " + " | ".join(proved(name)) + " |" for name in rows()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
