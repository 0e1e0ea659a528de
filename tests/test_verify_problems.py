"""verify gives the known answer to every layer of problems.py, each with a right proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from tests import problems
from tests.independent import check_proofs
from unarg_callback import Domain, OutputLayer
from unarg_callback.verification import verify

EXACT: tuple[Literal["interior_point", "cutting_plane"], ...] = ("interior_point", "cutting_plane")


@pytest.mark.parametrize("exact", EXACT)
@pytest.mark.parametrize("patience", [None, 0], ids=["searched", "exact-only"])
@pytest.mark.parametrize("problem", problems.ALL, ids=lambda f: f.__name__)
def test_known_answer(
    problem: Callable[[], problems.Problem],
    patience: int | None,
    exact: Literal["interior_point", "cutting_plane"],
) -> None:
    weight, bias, domain, expected, excluded = problem()
    layer = OutputLayer(weight, bias, excluded=excluded)
    report = verify(layer, domain, patience=patience, exact=exact)
    assert report.status.tolist() == list(expected)
    assert report.complete
    summary = check_proofs(vars(report.proofs), weight, bias, excluded)
    for index, lead in summary.leads.items():
        assert lead is None or report.lead[index] <= lead
    for index, bound in summary.bounds.items():
        assert report.lead[index] >= bound


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_a_layer_of_small_integers_has_the_same_answer_in_any_dtype(dtype: type) -> None:
    weight, bias, domain, expected, _ = problems.grid_with_ties()
    layer = OutputLayer(weight.astype(dtype), bias)
    assert verify(layer, domain).status.tolist() == list(expected)


def test_duplicates_are_named_with_the_class_they_equal() -> None:
    weight, bias, domain, _, _ = problems.duplicates()
    report = verify(OutputLayer(weight, bias), domain)
    assert report.duplicate_of.tolist() == [3, -1, -1, 0]
    assert report.counts["duplicates"] == 2
    # Equal rows with another bias are no duplicates: one of them can lead.
    weight, bias, domain, _, _ = problems.duplicates_with_bias()
    report = verify(OutputLayer(weight, bias), domain)
    assert report.duplicate_of.tolist() == [-1] * 4
    # Nor is an excluded row.
    weight, bias, domain, _, excluded = problems.triplicates_excluded()
    report = verify(OutputLayer(weight, bias, excluded=excluded), domain)
    assert report.duplicate_of.tolist() == [-1] * 5


def test_the_rival_of_a_certificate_takes_part_and_is_another_class() -> None:
    for problem in problems.ALL:
        weight, bias, domain, expected, excluded = problem()
        report = verify(OutputLayer(weight, bias, excluded=excluded), domain)
        for index in np.flatnonzero(np.array(expected) == 2).tolist():
            rival = int(report.rival[index])
            assert 0 <= rival < len(weight), problem.__name__
            assert rival != index, problem.__name__
            assert rival not in excluded, problem.__name__


@pytest.mark.parametrize("exact", ["interior_point", "cutting_plane"])
def test_a_box_between_two_float32_numbers(
    exact: Literal["interior_point", "cutting_plane"],
) -> None:
    """No float32 point lies in it, so the search has to run in float64."""
    flat = Domain.box([0.1, -1.0], [0.1, 1.0])
    alone = verify(OutputLayer([[1.0, 2.0]]), flat, exact=exact, patience=0)
    assert alone.counts["argmaxable"] == 1
    three = OutputLayer([[0.0, 1.0], [0.0, -1.0], [5.0, 0.0]], [0.0, 0.0, -1.0])
    assert verify(three, flat, exact=exact).status.tolist() == [1, 1, 2]
