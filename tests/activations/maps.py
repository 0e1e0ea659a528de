"""All maps with scores from their domains, and second ways to compute the projection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback import activations as maps

Map = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """A map, how to move normal scores into its domain, and whether it keeps their order."""

    run: Map
    domain: Callable[[Tensor], Tensor] = lambda z: z
    monotone: bool = True
    sparse: bool = True


CASES: dict[str, Case] = {
    "softmax": Case(maps.softmax, sparse=False),
    "sum_normalization": Case(maps.sum_normalization, torch.abs, sparse=False),
    "spherical_softmax": Case(maps.spherical_softmax, monotone=False, sparse=False),
    "sparsemax": Case(maps.sparsemax),
    "sparsegen_lin": Case(partial(maps.sparsegen, lambda_=0.3)),
    "sparsegen_exp": Case(partial(maps.sparsegen, lambda_=0.3, g="exp")),
    "sparsegen_sq": Case(partial(maps.sparsegen, lambda_=0.3, g="sq"), monotone=False),
    "sparsegen_log": Case(partial(maps.sparsegen, lambda_=0.3, g="log"), torch.abs),
    "sparsegen_tanh": Case(partial(maps.sparsegen, lambda_=0.3, g=torch.tanh)),
    "sparsecone": Case(
        partial(maps.sparsecone, q=0.5), lambda z: z - z.mean(-1, keepdim=True) + 0.3
    ),
    "sparsehourglass": Case(partial(maps.sparsehourglass, q=0.5)),
    "sum_normalization_pp": Case(maps.sum_normalization_pp),
}

MODULES: dict[str, torch.nn.Module] = {
    "sparsegen_lin": maps.Sparsegen(torch.tensor([[0.3], [-1.0], [0.9]]), learnable=True),
    "sparsegen_exp": maps.Sparsegen(0.3, g="exp", learnable=True),
    "sparsecone": maps.Sparsecone(5.0, learnable=True),
    "sparsehourglass": maps.Sparsehourglass(torch.tensor([[0.1], [1.0], [9.0]]), learnable=True),
}


def scores(*shape: int, seed: int = 0, **kwargs: Any) -> Tensor:
    """Normal scores, float64 unless said otherwise."""
    generator = torch.Generator().manual_seed(seed)
    kwargs.setdefault("dtype", torch.float64)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(**kwargs)


def inside(name: str, *shape: int, seed: int = 0) -> Tensor:
    """Scores from a map's domain; sums stay clear of 0 and of sparsecone's border."""
    z = scores(*shape, seed=seed)
    total = z.sum(-1, keepdim=True)
    z = z + (torch.where(total < 0, -1.0, 1.0) - total / shape[-1]) / shape[-1] * (total.abs() < 1)
    return CASES[name].domain(z)


def by_bisection(y: NDArray[np.floating]) -> NDArray[np.float64]:
    """Projection of one row by halving an interval around tau: shares nothing with the package."""
    y = y.astype(np.float64) - y.max()
    low, high = -1.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(y - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.maximum(y - (low + high) / 2, 0)


def exactly(y: list[float]) -> list[Fraction]:
    """Projection of one row in rational arithmetic, by trying every size of the support."""
    row = [Fraction(value) for value in y]
    ordered = sorted(row, reverse=True)
    for size in range(1, len(row) + 1):
        tau = (sum(ordered[:size], Fraction(0)) - 1) / size
        after = ordered[size] if size < len(row) else tau
        if ordered[size - 1] > tau >= after:
            return [max(value - tau, Fraction(0)) for value in row]
    raise AssertionError("no size of the support fits")
