from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.search import Floats, Stage, random_layer, status_of
from tests.search.test_simplex import enclosed
from unarg_callback import OutputLayer, Status, verify
from unarg_callback.search.batched import BatchedInteriorPoint
from unarg_callback.search.certify import certifier_of
from unarg_callback.search.exact import Outcome, Window
from unarg_callback.search.limits import Limits
from unarg_callback.search.sharing import share
from unarg_callback.search.working_set import Neighbours


def certified(stage: Stage, target: int, rivals: torch.Tensor) -> Outcome:
    window = Window.of(stage.checker, stage.frame)
    way = BatchedInteriorPoint(stage.checker, window, certifier_of(stage.checker, stage.frame))
    (outcome,) = way.settle(torch.tensor([target]), rivals[None], Limits())
    assert status_of(stage, outcome) == Status.UNARGMAXABLE
    return outcome


@pytest.mark.parametrize("offset", [0.0, 50.0])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_one_certificate_proves_many(offset: float, scale: float) -> None:
    weight, inner = enclosed(6, 200, offset=offset)
    stage = Stage.of(weight * scale)
    first = certified(stage, int(inner[0]), torch.arange(7))
    shared = share(stage.checker, first, inner[1:])
    assert [outcome.target for outcome in shared] == inner[1:].tolist()
    for outcome in shared:
        assert status_of(stage, outcome) == Status.UNARGMAXABLE


@pytest.mark.parametrize("kind", ["gaussian", "biased", "clustered", "offset"])
@pytest.mark.parametrize("domain", ["box:100", "box:-1,2", "nonnegative:10"])
def test_whatever_is_shared_holds(kind: str, domain: str) -> None:
    weight, bias = random_layer(kind, 250, 3, seed=2)
    stage = Stage.of(weight, bias, domain)
    window = Window.of(stage.checker, stage.frame)
    way = BatchedInteriorPoint(stage.checker, window, certifier_of(stage.checker, stage.frame))
    known = torch.zeros(250, dtype=torch.bool)
    seeds = Neighbours(stage.checker.sweep, stage.frame).of(stage.everyone, known, 60)
    outcomes = way.settle(stage.everyone, seeds, Limits())
    losers = verify(OutputLayer(weight, bias), domain).ids(Status.UNARGMAXABLE).tolist()
    proven = [o for o in outcomes if status_of(stage, o) == Status.UNARGMAXABLE]
    assert proven
    count = 0
    for outcome in proven[:12]:
        for found in share(stage.checker, outcome, stage.everyone):
            assert found.target in losers
            assert status_of(stage, found) == Status.UNARGMAXABLE
            count += 1
    assert count >= 12 or kind == "clustered"


def test_its_own_rivals_are_never_proven_by_it() -> None:
    weight, inner = enclosed(4, 10)
    stage = Stage.of(weight)
    first = certified(stage, int(inner[0]), torch.arange(5))
    assert share(stage.checker, first, torch.arange(5)) == []
    assert share(stage.checker, first, torch.zeros(0, dtype=torch.int64)) == []


def degenerate(kind: str) -> Floats:
    """A certificate whose support does not span the space."""
    if kind == "line":
        return np.outer(np.arange(9.0) - 4, [3.0, -2.0, 1.0])[[0, 8, 4, 1, 2, 3, 5, 6, 7]]
    if kind == "repeated":
        return np.array([[1.0, 0, 0], [1.0, 0, 0], [-1.0, 0, 0], [0, 0, 0], [0.5, 0, 0]])
    return np.array([[1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0], [0, -1.0, 0], [0, 0, 0], [0, 0, 9.0]])


@pytest.mark.parametrize("kind", ["line", "repeated", "plane"])
def test_supports_that_do_not_span_the_space(kind: str) -> None:
    weight = degenerate(kind)
    stage = Stage.of(weight)
    target = {"line": 2, "repeated": 3, "plane": 4}[kind]
    rivals = torch.tensor([i for i in range(len(weight)) if i != target])[
        : 2 if kind == "line" else 4
    ]
    if kind == "repeated":
        rivals = torch.tensor([0, 1, 2])
    first = certified(stage, target, rivals)
    shared = share(stage.checker, first, stage.everyone[stage.everyone != target])
    for outcome in shared:
        assert status_of(stage, outcome) == Status.UNARGMAXABLE
    expected = {"line": {3, 4, 5, 6, 7, 8}, "repeated": {4}, "plane": set()}[kind]
    assert {outcome.target for outcome in shared} == expected
