"""A layer in parts gets the verdicts of the whole, in two and three real processes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests import problems
from tests.distributed.processes import in_processes
from tests.distributed.row_layers import Answer, even_cuts, verified
from tests.independent import check_proofs
from tests.problems import Problem
from unarg_callback import OutputLayer, Report
from unarg_callback.distributed.row_evidence import joined_proofs
from unarg_callback.verification import verify

SIZES = [2, pytest.param(3, marks=pytest.mark.slow)]


def random_layer(rng: np.random.Generator, domain: str) -> Problem:
    """Rows of any kind: clustered, tied or repeated elsewhere, and excluded ones among them."""
    dim = int(rng.integers(1, 7))
    classes = int(rng.integers(dim + 2, 60))
    weight = rng.normal(size=(classes, dim))
    kind = rng.integers(4)
    if kind == 1:
        centres = rng.normal(size=(4, dim)) * 3
        weight = centres[rng.integers(4, size=classes)] + 0.1 * weight
    if kind == 2:
        weight = weight.round()
    if kind == 3:
        weight[rng.permutation(classes)[: classes // 3]] = weight[: classes // 3]
    bias = rng.normal(size=classes).round(1) * rng.choice([0.0, 1.0, 10.0])
    few = min(3, classes - 1)
    excluded = rng.permutation(classes)[:few] if rng.integers(2) else np.zeros(0, np.int64)
    return Problem(weight, bias, domain, (), tuple(sorted(excluded.tolist())))


def cuts_of(rng: np.random.Generator, classes: int, size: int) -> list[int]:
    """Uneven cuts; now and then a rank has no rows."""
    return [0, *sorted(rng.integers(0, classes + 1, size=size - 1).tolist()), classes]


def whole(problem: Problem) -> Report:
    layer = OutputLayer(problem.weight, problem.bias, excluded=problem.excluded)
    return verify(layer, problem.domain)


def assert_same(answers: Sequence[Answer], problem: Problem, expected: Report) -> None:
    """All ranks say what ``verify`` says of the whole; exact arithmetic accepts their proofs."""
    for answer in answers:
        told = answer.report
        assert told["status"].tolist() == expected.status.tolist()
        assert told["duplicate_of"].tolist() == expected.duplicate_of.tolist()
        assert told["min_lead"] == expected.min_lead
        assert told["scale"] == expected.scale
        assert told["complete"]
        assert answer.summary == expected.summary().split(":", 1)[1]
        for name in ("lead", "rival", "potential"):
            assert np.array_equal(told[name], answers[0].report[name], equal_nan=True)
        beaten = expected.status == 2
        assert (told["rival"][beaten] >= 0).all()
        assert not set(told["rival"][beaten].tolist()) & set(problem.excluded)
    joined = joined_proofs([answer.proofs for answer in answers])
    summary = check_proofs(vars(joined), problem.weight, problem.bias, problem.excluded)
    assert summary.undecided == 0
    told = answers[0].report
    for index, lead in summary.leads.items():
        assert lead is None or told["lead"][index] <= lead
    for index, bound in summary.bounds.items():
        assert told["lead"][index] >= bound


def assert_all_same(cases: Sequence[tuple[Problem, Sequence[int]]], size: int) -> None:
    answers = in_processes(verified, cases, size=size)
    for at, (problem, _) in enumerate(cases):
        expected = whole(problem)
        for place in (2 * at, 2 * at + 1):
            assert_same([each[place] for each in answers], problem, expected)


@pytest.mark.parametrize("size", SIZES)
def test_known_answers(size: int) -> None:
    layers = [problem() for problem in problems.ALL]
    cases = [(layer, even_cuts(len(layer.weight), size)) for layer in layers]
    answers = in_processes(verified, cases, size=size)
    for at, layer in enumerate(layers):
        for place in (2 * at, 2 * at + 1):
            assert answers[0][place].report["status"].tolist() == list(layer.expected)
            assert_same([each[place] for each in answers], layer, whole(layer))


@pytest.mark.parametrize("size", SIZES)
def test_random_layers_cut_anywhere(size: int) -> None:
    rng = np.random.default_rng(size)
    domains = ["box:100", "nonnegative:10", "box:-1,3", "free"] * 6
    layers = [random_layer(rng, domain) for domain in domains]
    assert_all_same([(one, cuts_of(rng, len(one.weight), size)) for one in layers], size)


def test_ranks_without_rows_or_without_classes_that_take_part() -> None:
    rng = np.random.default_rng(0)
    layer = Problem(rng.normal(size=(40, 3)), rng.normal(size=40), "box:100", ())
    half = layer._replace(excluded=tuple(range(20, 40)))
    nobody = layer._replace(excluded=tuple(range(40)))
    cases = [(layer, [0, 0, 40]), (layer, [0, 40, 40]), (half, [0, 20, 40]), (nobody, [0, 9, 40])]
    assert_all_same(cases, 2)


def test_classes_masked_by_their_bias() -> None:
    rng = np.random.default_rng(0)
    bias = rng.normal(size=40)
    bias[[3, 30]] = [-1e12, -3e38]
    layer = Problem(rng.normal(size=(40, 3)), bias, "box:100", ())
    assert whole(layer).counts["argmaxable"] > 5
    assert_all_same([(layer, [0, 20, 40]), (layer, [0, 2, 40])], 2)


def test_equal_rows_on_different_ranks() -> None:
    """With equal bias, with a lower one, and with -0.0 for 0.0."""
    weight = np.array([[1.0, 0], [-1, 2], [-1, -2], [0, 5], [1, -0.0], [0, 5], [-1, 2], [3, 3]])
    layer = Problem(weight, np.array([0.0, 1, 0, 2, 0, 1, 1, 0]), "box:100", ())
    cuts = ([0, 4, 8], [0, 5, 8], [0, 1, 8])
    answers = in_processes(verified, [(layer, one) for one in cuts])
    for at in range(2 * len(cuts)):
        told = answers[0][at].report
        assert told["duplicate_of"].tolist() == [4, 6, -1, -1, 0, -1, 1, -1]
        assert told["rival"][[0, 4, 5, 1, 6]].tolist() == [4, 0, 3, 6, 1]
        assert_same([each[at] for each in answers], layer, whole(layer))


def test_one_process_alone() -> None:
    rng = np.random.default_rng(1)
    layer = random_layer(rng, "box:100")
    assert_same(verified([(layer, [0, len(layer.weight)])])[:1], layer, whole(layer))
