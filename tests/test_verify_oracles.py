"""verify against Qhull and against exact linear programs, on thousands of random classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.independent import ARGMAXABLE, UNARGMAXABLE, ExactLayer, check_proofs
from tests.oracles import UNCLEAR, box_statuses, free_status, qhull_vertices
from unarg_callback import Domain, OutputLayer, Report
from unarg_callback.verification import verify

Floats = NDArray[np.float64]
# The three seeded tests below assert how many classes they compare: 4 x 1200, 5 x 1200 and 5 x 360
# at least, 12,600 together.
KINDS = ("gaussian", "heavy-tailed", "clustered", "crowded", "ties")


def random_rows(rng: np.random.Generator, kind: str, classes: int, dim: int) -> Floats:
    """(C, d) rows of one kind; ``crowded`` has most rows deep inside, ``ties`` small integers."""
    if kind == "heavy-tailed":
        return rng.standard_t(1.5, size=(classes, dim))
    if kind == "clustered":
        centres = rng.normal(size=(5, dim))
        return centres[rng.integers(0, 5, classes)] + 0.05 * rng.normal(size=(classes, dim))
    rows = rng.normal(size=(classes, dim))
    if kind == "crowded":
        rows *= rng.random((classes, 1)) ** 2
    return np.round(1.5 * rows) if kind == "ties" else rows


def differences(report: Report, expected: dict[int, int | str]) -> list[str]:
    """A line for each class whose status is not the expected one, unclear ones left out."""
    return [
        f"class {index}: {status}, verify says {report.status[index]}"
        for index, status in expected.items()
        if status not in (UNCLEAR, report.status[index])
    ]


@pytest.mark.parametrize("kind", ["gaussian", "heavy-tailed", "clustered", "crowded"])
def test_agrees_with_qhull(kind: str) -> None:
    compared = inside = 0
    for seed in range(28):
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        dim = 2 + seed % 7
        weight = random_rows(rng, kind, 24 + 4 * dim, dim)
        vertices = qhull_vertices(weight)
        if vertices is None:
            continue
        report = verify(OutputLayer(weight), "free")
        expected: dict[int, int | str] = {
            i: ARGMAXABLE if i in vertices else UNARGMAXABLE for i in range(len(weight))
        }
        assert not differences(report, expected), f"seed {seed}, {kind}, d = {dim}"
        check_proofs(vars(report.proofs), weight, None)
        compared += len(weight)
        inside += len(weight) - len(vertices)
    assert compared >= 1200
    assert inside >= 200


def random_box(rng: np.random.Generator, dim: int) -> tuple[Floats, Floats]:
    """Bounds of a box: symmetric, nonnegative, or of its own for every dimension."""
    radius = 10.0 ** rng.integers(-1, 4)
    shape = rng.integers(0, 3)
    if shape == 0:
        return np.full(dim, -radius), np.full(dim, radius)
    if shape == 1:
        return np.zeros(dim), np.full(dim, radius)
    ends = np.sort(radius * rng.normal(size=(2, dim)), axis=0)
    return ends[0], ends[1]


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_linear_programs_in_a_box(kind: str) -> None:
    compared, unclear, found = 0, 0, {ARGMAXABLE: 0, UNARGMAXABLE: 0}
    for seed in range(30):
        rng = np.random.default_rng([seed, KINDS.index(kind), 1])
        dim = int(rng.integers(1, 9))
        weight = random_rows(rng, kind, 42, dim)
        bias = rng.normal(size=42) * 10.0 ** rng.integers(-2, 2)
        bias = np.round(bias) if kind == "ties" else bias
        excluded = rng.choice(42, 2, replace=False).tolist()
        low, high = random_box(rng, dim)
        report = verify(OutputLayer(weight, bias, excluded=excluded), Domain.box(low, high))
        layer = ExactLayer(weight, bias, excluded)
        classes = layer.active.tolist()
        statuses = box_statuses(layer, low, high, report.min_lead, classes)
        wrong = differences(report, dict(zip(classes, statuses, strict=True)))
        assert not wrong, f"seed {seed}, {kind}, d = {dim}"
        check_proofs(vars(report.proofs), weight, bias, excluded)
        compared += len(classes)
        unclear += statuses.count(UNCLEAR)
        for status in found:
            found[status] += statuses.count(status)
    assert compared == 1200
    assert unclear < 0.01 * compared
    assert min(found.values()) > 0.05 * compared


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_rational_arithmetic_without_a_box(kind: str) -> None:
    compared, unclear, found = 0, 0, {ARGMAXABLE: 0, UNARGMAXABLE: 0}
    for seed in range(10):
        rng = np.random.default_rng([seed, KINDS.index(kind), 2])
        dim = int(rng.integers(1, 7))
        weight = random_rows(rng, kind, 36, dim)
        bias = rng.normal(size=36) * 10.0 ** rng.integers(-2, 1)
        bias = np.round(bias) if kind == "ties" else bias
        report = verify(OutputLayer(weight, bias), "free")
        assert report.min_lead == 0
        layer = ExactLayer(weight, bias)
        statuses = [free_status(layer, index) for index in range(36)]
        wrong = differences(report, dict(enumerate(statuses)))
        assert not wrong, f"seed {seed}, {kind}, d = {dim}"
        check_proofs(vars(report.proofs), weight, bias)
        compared += len(statuses)
        unclear += statuses.count(UNCLEAR)
        for status in found:
            found[status] += statuses.count(status)
    assert compared == 360
    assert unclear < 0.01 * compared
    assert min(found.values()) > 0.05 * compared


@st.composite
def integer_layers(draw: st.DrawFn) -> dict[str, Any]:
    """Small layers of small integers: duplicates, ties and degenerate rows of every kind."""
    classes, dim = draw(st.integers(1, 10)), draw(st.integers(1, 4))
    entry = st.integers(-3, 3)
    weight = draw(
        st.lists(st.lists(entry, min_size=dim, max_size=dim), min_size=classes, max_size=classes)
    )
    bias = draw(st.none() | st.lists(entry, min_size=classes, max_size=classes))
    excluded = draw(st.sets(st.integers(0, classes - 1), max_size=2))
    return {
        "weight": np.array(weight, dtype=np.float64),
        "bias": None if bias is None else np.array(bias, dtype=np.float64),
        "excluded": sorted(excluded),
    }


@settings(deadline=None, print_blob=True, max_examples=60)
@given(integer_layers(), st.sampled_from([0.5, 1.0, 3.0, 100.0]), st.booleans())
def test_layers_of_small_integers_in_a_box(
    layer: dict[str, Any], radius: float, nonnegative: bool
) -> None:
    domain = Domain.nonnegative(radius) if nonnegative else Domain.box(radius)
    report = verify(OutputLayer(**layer), domain)
    exact = ExactLayer(**layer)
    classes = exact.active.tolist()
    low, high = domain.bounds(exact.dim)
    statuses = box_statuses(exact, low, high, report.min_lead, classes)
    assert not differences(report, dict(zip(classes, statuses, strict=True)))
    assert UNCLEAR not in statuses
    check_proofs(vars(report.proofs), **layer)


@settings(deadline=None, print_blob=True, max_examples=60)
@given(integer_layers())
def test_layers_of_small_integers_without_a_box(layer: dict[str, Any]) -> None:
    report = verify(OutputLayer(**layer), "free")
    exact = ExactLayer(**layer)
    statuses = {index: free_status(exact, index) for index in exact.active.tolist()}
    assert not differences(report, statuses)
    assert UNCLEAR not in statuses.values()
    check_proofs(vars(report.proofs), **layer)
