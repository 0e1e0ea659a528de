"""What is particular to the simplex method; ``test_batched`` compares both ways."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.independent import ARGMAXABLE, UNARGMAXABLE, ExactLayer
from tests.oracles import box_statuses
from tests.search import Stage, random_layer, status_of
from tests.search.test_batched import settle
from unarg_callback import Domain, Status
from unarg_callback.search.certify import certifier_of
from unarg_callback.search.cutting_plane import CuttingPlane
from unarg_callback.search.exact import Window
from unarg_callback.search.limits import Limits
from unarg_callback.search.linear_program import LinearProgram, Solution


@pytest.mark.parametrize("kind", ["gaussian", "biased"])
@pytest.mark.parametrize("domain", ["box:100", "box:-1,3"])
def test_verdicts_are_those_of_one_lp_over_all_rivals(kind: str, domain: str) -> None:
    weight, bias = random_layer(kind, 60, 3, seed=5)
    stage = Stage.of(weight, bias, domain)
    found = [int(status_of(stage, o)) for o in settle(CuttingPlane, stage)]
    low, high = Domain.parse(domain).bounds(3)
    exact = ExactLayer(weight, bias)
    assert found == box_statuses(exact, low, high, stage.checker.min_lead, list(range(60)))
    assert set(found) == {ARGMAXABLE, UNARGMAXABLE}


def test_only_violated_rows_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3000 rivals a few hundred are enough (DESIGN, fact 3)."""
    rows: list[int] = []
    add = LinearProgram.add_rows

    def count(self: LinearProgram, matrix: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        rows.append(len(matrix))
        add(self, matrix, low, high)

    monkeypatch.setattr(LinearProgram, "add_rows", count)
    stage = Stage.of(*random_layer("gaussian", 3000, 4))
    targets = torch.arange(6)
    found = [status_of(stage, o) for o in settle(CuttingPlane, stage, targets)]
    assert Status.UNDECIDED not in found
    assert sum(rows) < 6 * 500


def test_no_rivals_to_start_with() -> None:
    weight, bias = random_layer("biased", 40, 3)
    stage = Stage.of(weight, bias)
    window = Window.of(stage.checker, stage.frame)
    way = CuttingPlane(stage.checker, window, certifier_of(stage.checker, stage.frame))
    none = torch.zeros(40, 0, dtype=torch.int64)
    expected = [status_of(stage, o) for o in settle(CuttingPlane, stage)]
    found = [status_of(stage, o) for o in way.settle(stage.everyone, none, Limits())]
    assert [s for s in found if s != Status.UNDECIDED] == [
        e for e, s in zip(expected, found, strict=True) if s != Status.UNDECIDED
    ]


def test_a_solver_that_lies_proves_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage.of(*random_layer("biased", 50, 3))
    expected = [status_of(stage, o) for o in settle(CuttingPlane, stage)]
    solve = LinearProgram.solve
    rng = np.random.default_rng(0)

    def lie(self: LinearProgram, seconds: float = 1.0) -> Solution | None:
        found = solve(self, seconds)
        assert found is not None
        value = rng.uniform(-1, 1, size=len(found.value))
        value[-1] = -1.0  # "Certainly unargmaxable".
        return Solution(value, rng.exponential(size=len(found.dual)))

    monkeypatch.setattr(LinearProgram, "solve", lie)
    for outcome, truth in zip(settle(CuttingPlane, stage), expected, strict=True):
        assert status_of(stage, outcome) in (truth, Status.UNDECIDED)
