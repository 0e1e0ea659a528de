"""The oracles and the problems' answers agree with each other, before they judge the package."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import problems
from tests.independent import ARGMAXABLE, EXCLUDED, UNARGMAXABLE, ExactLayer
from tests.oracles import UNCLEAR, box_statuses, free_status, qhull_vertices


def _bounds(domain: str, dim: int) -> tuple[np.ndarray, np.ndarray]:
    kind, _, numbers = domain.partition(":")
    values = [float(part) for part in numbers.split(",")]
    if kind == "nonnegative":
        values = [0.0, *values]
    low, high = values if len(values) == 2 else (-values[0], values[0])
    return np.full(dim, low), np.full(dim, high)


@pytest.mark.parametrize("problem", problems.ALL, ids=lambda f: f.__name__)
def test_known_answers_agree_with_exact_linear_programs(
    problem: Callable[[], problems.Problem],
) -> None:
    weight, bias, domain, expected, excluded = problem()
    layer = ExactLayer(weight, bias, excluded)
    classes = layer.active.tolist()
    if domain == "free":
        found = [free_status(layer, index) for index in classes]
    else:
        low, high = _bounds(domain, layer.dim)
        reach = np.abs(layer.weight).sum(1) * np.abs(np.stack([low, high])).max()
        least = 1e-9 * float((reach + np.abs(layer.bias)).max())
        found = box_statuses(layer, low, high, least, classes)
    assert found == [expected[index] for index in classes]
    assert [i for i, status in enumerate(expected) if status == EXCLUDED] == list(excluded)


def test_qhull_agrees_with_the_free_oracle() -> None:
    rng = np.random.default_rng(5)
    for dim in (2, 3, 4):
        weight = rng.normal(size=(40, dim))
        vertices = qhull_vertices(weight)
        assert vertices is not None
        found = [free_status(ExactLayer(weight, None), index) for index in range(40)]
        expected = [ARGMAXABLE if i in vertices else UNARGMAXABLE for i in range(40)]
        assert found == expected
        assert 0 < len(vertices) < 40


@pytest.mark.parametrize(
    "weight",
    [
        [[1, 1], [1, -1], [-1, 1], [-1, -1], [1, 0]],  # a row on an edge
        [[1, 1], [1, -1], [-1, 1], [-1, -1], [1, 1]],  # a row twice
        [[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]],  # all on a line
        [[0, 0], [1, 0], [0, 1]],  # too few rows
    ],
)
def test_qhull_declines_degenerate_rows(weight: list[list[int]]) -> None:
    assert qhull_vertices(np.array(weight, dtype=float)) is None


@pytest.mark.parametrize("marginals", [[0.0, 0.0], [0.0, -1.0], [1.0, 1.0]])
def test_what_exact_arithmetic_cannot_confirm_is_unclear(
    monkeypatch: pytest.MonkeyPatch, marginals: list[float]
) -> None:
    def wrong(*_: Any, **__: Any) -> SimpleNamespace:
        dual = SimpleNamespace(marginals=np.array(marginals))
        return SimpleNamespace(x=np.array([0.0, 9.0]), ineqlin=dual)

    layer = ExactLayer([[-1.0], [1.0], [0.0]], None)
    low, high = np.array([-10.0]), np.array([10.0])
    assert box_statuses(layer, low, high, 0.0, [0, 2]) == [ARGMAXABLE, UNARGMAXABLE]
    monkeypatch.setattr("tests.oracles.linprog", wrong)
    assert box_statuses(layer, low, high, 0.0, [0, 2]) == [UNCLEAR, UNCLEAR]


def test_a_failed_linear_program_is_unclear(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = ExactLayer([[-1.0], [1.0], [0.0]], None)
    monkeypatch.setattr("tests.oracles.linprog", lambda *_, **__: SimpleNamespace(x=None))
    assert box_statuses(layer, np.array([-1.0]), np.array([1.0]), 0.0, [2]) == [UNCLEAR]
    assert free_status(layer, 2) == UNCLEAR
