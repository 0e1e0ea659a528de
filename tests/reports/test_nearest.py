"""The lowest best leads lie between their bounds, and nobody that isn't listed is below."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests import problems
from tests.reports.layers import NAMES, ROWS
from unarg_callback import OutputLayer, Status, verify
from unarg_callback.class_filter import ClassFilter
from unarg_callback.reports import nearest as nearest_module
from unarg_callback.reports import report_data, to_html, to_markdown
from unarg_callback.reports.nearest import nearest, nearest_as_found


def best_lead(layer: OutputLayer, index: int, radius: float) -> float:
    """``max m: (w_t - w_i) x + b_t - b_i >= m, |x| <= radius``, by HiGHS."""
    weight = layer.weight.double().numpy()
    bias = np.zeros(len(weight)) if layer.bias is None else layer.bias.double().numpy()
    rivals = [i for i in layer.active.tolist() if i != index]
    rows = np.hstack([weight[rivals] - weight[index], np.ones((len(rivals), 1))])
    solved = linprog(
        np.r_[np.zeros(weight.shape[1]), -1.0],
        A_ub=rows,
        b_ub=bias[index] - bias[rivals],
        bounds=[(-radius, radius)] * weight.shape[1] + [(None, None)],
    )
    assert solved.x is not None
    return float(solved.x[-1])


def random_layer(seed: int, classes: int, dim: int) -> OutputLayer:
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(classes, dim)), rng.normal(size=classes)
    return OutputLayer(weight, bias, excluded=[classes // 2])


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 99), st.integers(6, 60), st.integers(1, 4), st.integers(1, 20))
def test_bounds_hold_and_nobody_is_missing(seed: int, classes: int, dim: int, most: int) -> None:
    layer = random_layer(seed, classes, dim)
    report = verify(layer, "box:10")
    found = nearest(report, layer, np.ones(classes, dtype=bool), most=most)
    argmaxable = report.ids(Status.ARGMAXABLE).tolist()
    best = {index: best_lead(layer, index, 10.0) for index in argmaxable}
    room = 1e-7 * report.scale
    assert len(found.ids) == min(most, len(argmaxable))
    assert (np.diff(found.lead) >= 0).all()
    for index, lead, bound in zip(found.ids.tolist(), found.lead, found.bound, strict=True):
        assert lead - room <= best[index] <= bound + room
        assert lead >= report.lead[index]
        # Far closer than a check alone comes.
        assert lead >= 0.75 * best[index] - room
    left = [best[index] for index in argmaxable if index not in found.ids]
    assert found.others <= min(left, default=math.inf) + room
    assert found.others >= found.lead[-1]


def test_those_with_the_lowest_leads_as_found_need_not_be_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why more are looked at than are listed."""
    monkeypatch.setattr(nearest_module, "_AT_A_TIME", 10)
    layer = random_layer(5, 400, 6)
    report = verify(layer, "box:10")
    every = np.ones(400, dtype=bool)
    as_found, closer = nearest_as_found(report, every, 10), nearest(report, layer, every, most=10)
    assert as_found.deepened == 0
    assert set(as_found.ids.tolist()) != set(closer.ids.tolist())
    best = sorted(best_lead(layer, index, 10.0) for index in report.ids(Status.ARGMAXABLE).tolist())
    assert closer.lead[-1] <= best[9] + 1e-7 * report.scale
    # It stops as soon as nobody else can be among them.
    assert 10 < closer.deepened < len(best)


def test_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = random_layer(5, 400, 6)
    report = verify(layer, "box:10")
    every = np.ones(400, dtype=bool)
    found = nearest(report, layer, every, seconds=0)
    assert found.deepened == 0
    assert found.ids.tolist() == nearest_as_found(report, every).ids.tolist()
    monkeypatch.setattr(nearest_module, "_AT_A_TIME", 30)
    monkeypatch.setattr(nearest_module, "Limits", _FewLooks)
    part = nearest(report, layer, every, most=20)
    assert 20 < part.deepened < len(report.ids(Status.ARGMAXABLE))
    assert len(part.ids) == 20
    # Those looked at are listed, though others may be nearer: that is said.
    for index, lead, bound in zip(part.ids.tolist(), part.lead, part.bound, strict=True):
        assert lead - 1e-7 * report.scale <= best_lead(layer, index, 10.0) <= bound
        assert lead >= 0.75 * bound  # None was left halfway.
    left = [i for i in report.ids(Status.ARGMAXABLE).tolist() if i not in part.ids]
    assert part.others <= min(best_lead(layer, index, 10.0) for index in left)
    assert not part.complete
    data = report_data(report, "x", layer=layer)
    assert not data.closest.complete
    assert f"lowest best leads of {data.closest.deepened} that there was time" in data.nearness
    assert "∞" not in to_markdown(data)


class _FewLooks:
    """Limits that are reached in the second batch or the third."""

    limited = True

    def __init__(self, seconds: float | None = None) -> None:
        self.asked = 0

    def reached(self) -> bool:
        self.asked += 1
        return self.asked > 40

    def advance(self, decided: int) -> None:
        """Nobody looks."""


def test_what_the_reports_say() -> None:
    layer = OutputLayer(ROWS, names=NAMES, excluded=[8])
    report = verify(layer)
    data = report_data(report, "x", layer=layer)
    assert data.nearness == (
        "All argmaxable classes with the lowest best leads. The best lead over all inputs of the "
        "domain is proven to lie between two figures."
    )
    for row in data.nearest:
        assert row.lead <= best_lead(layer, row.index, 100.0) * (1 + 1e-9)
        assert row.most >= best_lead(layer, row.index, 100.0) * (1 - 1e-9)
        assert math.isclose(row.share, 100 * row.lead / report.scale)
    assert '<th class="n">best lead at least' in to_html(data)
    assert '<th class="n">at most' in to_html(data)
    table = to_markdown(data).split("## Nearest to unargmaxable")[1]
    assert "| class | name | best lead | % of range |\n" in table
    plain = report_data(report, "x")
    assert "These are lower bounds" in plain.nearness
    assert "best lead at least" not in to_html(plain)
    kept = report_data(report, "x", chosen=ClassFilter(scripts=("Han",)), layer=layer)
    assert [row.index for row in kept.nearest] == [1]


def test_more_than_are_listed() -> None:
    layer = random_layer(1, 900, 8)
    data = report_data(verify(layer), "x", layer=layer)
    assert data.nearness.startswith("The 200 of ")
    assert "Every other class has one of at least " in data.nearness
    assert "The first 20 of these:" in to_markdown(data)


def test_the_free_domain_has_no_best_leads() -> None:
    layer = random_layer(5, 60, 3)
    report = verify(layer, "free")
    data = report_data(report, "x", layer=layer)
    assert data.closest.deepened == 0
    assert "These are lower bounds" in data.nearness


@pytest.mark.parametrize(
    "make",
    [
        problems.single_class,
        problems.two_classes,
        problems.all_rows_equal,
        problems.one_input_only,
        problems.tiny_scale,
        problems.huge_scale,
        problems.zero_column,
        problems.triplicates_excluded,
    ],
)
def test_odd_layers(make: Callable[[], problems.Problem]) -> None:
    problem = make()
    layer = OutputLayer(problem.weight, problem.bias, excluded=problem.excluded)
    report = verify(layer, problem.domain)
    found = nearest(report, layer, np.ones(report.classes, dtype=bool))
    assert sorted(found.ids.tolist()) == report.ids(Status.ARGMAXABLE).tolist()
    assert (found.lead <= found.bound).all()
    assert to_html(report_data(report, "x", layer=layer))
