"""Classes that can win only by little."""

from __future__ import annotations

import numpy as np
import pytest

from unarg_callback import Domain, OutputLayer, Status, verify
from unarg_callback.errors import UnargError
from unarg_callback.margins import least_asked, require_above, verify_margin


def test_agrees_with_the_best_leads_of_linear_programmes() -> None:
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(40, 3)), rng.normal(size=40) / 4
    report = verify(OutputLayer(weight, bias), "box:1")
    found = verify_margin(OutputLayer(weight, bias), 0.5, "box:1", report=report)
    best = {}
    for t in report.ids(Status.ARGMAXABLE).tolist():
        rivals = [i for i in range(40) if i != t]
        solution = linprog(
            [0, 0, 0, -1],
            A_ub=np.column_stack([weight[rivals] - weight[t], np.ones(39)]),
            b_ub=bias[t] - bias[rivals],
            bounds=[(-1, 1)] * 3 + [(None, None)],
        )
        assert solution.fun is not None
        best[t] = -float(solution.fun)
    assert set(found.weak.tolist()) == {t for t, lead in best.items() if lead <= 0.5}
    assert 0 < len(found.weak) < len(best)
    assert len(found.undecided) == 0
    assert all(found.led.lead[t] >= best[t] - 1e-9 for t in found.weak.tolist())


def test_the_table_lists_those_that_lead_by_least_first() -> None:
    names = ["right", "up", "down", "left"]
    layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [-1.01, 0.0]], names=names)
    lines = verify_margin(layer, 0.1, "box:1").table().splitlines()
    assert lines[0].startswith("1 classes can win, but provably never by more than 0.1")
    assert lines[2].split()[:3] == ["3", "left", "<="]
    assert "... and 1 more" in verify_margin(layer, 0.1, "box:1").table(0)


@pytest.mark.parametrize("least", [0.0, -1.0, float("nan"), float("inf")])
def test_the_least_lead_is_above_that_of_the_report(least: float) -> None:
    with pytest.raises(UnargError, match="finite number above"):
        verify_margin(OutputLayer([[1.0], [-1.0]]), least)


@pytest.mark.parametrize("domain", [Domain.box(2.0), Domain.free()])
def test_what_a_check_asks_of_a_lead_is_known_before_it(domain: Domain) -> None:
    layer = OutputLayer(np.random.default_rng(1).normal(size=(30, 3)))
    asked = least_asked(layer, domain)
    assert asked == verify(layer, domain).min_lead
    require_above(asked + 1e-6, asked)
    with pytest.raises(UnargError, match="above"):
        require_above(asked, asked)
