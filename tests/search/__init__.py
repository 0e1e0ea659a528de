"""Layers and stages that the tests of this folder share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback import Certificate, Domain, OutputLayer, Status, Witness, check
from unarg_callback.geometry.checker import Checker
from unarg_callback.search.exact import Outcome
from unarg_callback.search.frame import Frame, whitening_frame

Floats = NDArray[np.float64]

KINDS = ("gaussian", "biased", "clustered", "ties", "offset")


def random_layer(kind: str, classes: int, dim: int, seed: int = 0) -> tuple[Floats, Floats | None]:
    """Weight and bias with argmaxable and unargmaxable classes, of one of the ``KINDS``."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(classes, dim))
    if kind == "biased":
        return weight, rng.normal(size=classes) * 30
    if kind == "clustered":
        centres = rng.normal(size=(4, dim)) * 3
        weight = centres[rng.integers(4, size=classes)] + 0.05 * weight
    if kind == "ties":
        return rng.integers(-1, 2, size=(classes, dim)).astype(float), None
    if kind == "offset":
        weight = weight + 50.0
    return weight, None


@dataclass(frozen=True)
class Stage:
    """A layer in a domain, ready for any part of the search."""

    layer: OutputLayer
    checker: Checker
    frame: Frame

    @classmethod
    def of(
        cls,
        weight: Floats,
        bias: Floats | None = None,
        domain: str = "box:100",
        dtype: torch.dtype = torch.float32,
        excluded: tuple[int, ...] = (),
        min_lead: float | None = None,
    ) -> Stage:
        layer = OutputLayer(weight, bias, excluded=excluded)
        checker = Checker(layer, Domain.parse(domain), min_lead, dtype)
        return cls(layer, checker, whitening_frame(checker.sweep))

    @property
    def everyone(self) -> torch.Tensor:
        return torch.arange(self.checker.sweep.count)


def status_of(stage: Stage, outcome: Outcome) -> Status:
    """What the outcome's proof shows, by :func:`unarg_callback.check` alone; it must hold."""
    active = stage.layer.active.numpy()
    index = int(active[outcome.target])
    proof: Witness | Certificate
    if outcome.point is not None:
        proof, expected = Witness(index, outcome.point.double().numpy()), Status.ARGMAXABLE
    elif outcome.support is not None:
        assert outcome.weight is not None
        proof = Certificate(index, active[outcome.support], outcome.weight)
        expected = Status.UNARGMAXABLE
    else:
        assert not outcome.settled
        assert outcome.reason
        return Status.UNDECIDED
    assert outcome.settled
    verdict = check(stage.layer, stage.checker.domain, proof, stage.checker.min_lead)
    assert verdict.status == expected
    return verdict.status
