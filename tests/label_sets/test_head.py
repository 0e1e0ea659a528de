"""Heads, rules, sets and reports as people meet them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unarg_callback import DomainError, LayerError, UnargError
from unarg_callback.label_sets import (
    LabelHead,
    LabelSetError,
    RuleError,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    verify_label_sets,
)

HEAD = LabelHead([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], names=["cat", "dog\n", "pet"])


@pytest.mark.parametrize(
    "sets",
    [
        [[0, 1], []],
        np.array([[1, 1, 0], [0, 0, 0]]),
        np.array([[True, True, False], [False, False, False]]),
        torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        torch.tensor([[1, 1, 0], [0, 0, 0]], dtype=torch.bfloat16),
        ((0, 1), ()),
        [np.array([0, 1]), np.array([], dtype=int)],
    ],
    ids=["ids", "integers", "bools", "floats", "bfloat16", "tuples", "arrays"],
)
def test_sets_in_every_form(sets: object) -> None:
    report = verify_label_sets(HEAD, sets)  # type: ignore[arg-type]
    assert report.status.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (np.zeros((2, 4)), "expected \\(n, 3\\)"),
        (np.full((1, 3), 0.5), "other values than 0 and 1"),
        (np.full((1, 3), np.nan), "other values than 0 and 1"),
        ([[0, 3]], "holds 3"),
        ([[-1]], "holds -1"),
        ([[True]], "holds True"),
        ([[0.5]], "holds 0.5"),
    ],
)
def test_sets_that_do_not_fit(sets: object, message: str) -> None:
    with pytest.raises(LabelSetError, match=message):
        verify_label_sets(HEAD, sets)  # type: ignore[arg-type]


def test_bad_arguments() -> None:
    with pytest.raises(RuleError, match="below 1"):
        SparsegenRule(1.0)
    with pytest.raises(RuleError, match="from 0"):
        SparsehourglassRule(-1.0)
    with pytest.raises(RuleError, match="from 0"):
        SparsehourglassRule(float("nan"))
    with pytest.raises(RuleError, match="finite"):
        ThresholdRule([0.0, float("inf")])
    with pytest.raises(RuleError, match="2 thresholds for 1 labels"):
        LabelHead([[1.0]], rule=ThresholdRule([0.0, 1.0]))
    with pytest.raises(LayerError):
        LabelHead([1.0])
    with pytest.raises(DomainError):
        verify_label_sets(HEAD, [[0]], "sphere:1")
    with pytest.raises(DomainError, match="min_margin"):
        verify_label_sets(HEAD, [[0]], min_margin=-1.0)
    with pytest.raises(DomainError, match="overflow"):
        verify_label_sets(LabelHead([[1e300]]), [[0]], "box:1e300")
    with pytest.raises(UnargError, match="time_limit"):
        verify_label_sets(HEAD, [[0]], time_limit=-1.0)
    with pytest.raises(UnargError, match="LabelHead"):
        verify_label_sets(np.eye(3), [[0]])  # type: ignore[arg-type]
    with pytest.raises(LabelSetError, match="activations"):
        verify_label_sets(HEAD, [[0]], activations=np.zeros((4, 3)))


def test_low_precision_weights_are_taken_exactly() -> None:
    weight = torch.tensor([[0.1, 0.0], [0.0, 0.1], [0.1, 0.1]], dtype=torch.bfloat16)
    head = LabelHead(weight)
    assert np.array_equal(head.weight, weight.double().numpy())
    assert verify_label_sets(head, [[0, 1]]).counts["unattainable"] == 1


def test_a_parameter_may_change_afterwards() -> None:
    weight = torch.nn.Parameter(torch.eye(2))
    head = LabelHead(weight)
    with torch.no_grad():
        weight.zero_()
    assert head.weight.sum() == 2


def test_the_table_shows_what_is_out_of_reach_most_common_first() -> None:
    report = verify_label_sets(HEAD, [[0, 1], [2], [2], [0, 2]], "box:3")
    lines = report.table().splitlines()
    assert lines[0] == (
        "4 label sets (3 different) of 3 labels x 2 features, threshold 0, box:-3,3: "
        "1 attainable, 3 provably out of reach, 0 undecided"
    )
    assert lines[3].split() == ["2", "unattainable", "<=", report_bound(lines[3]), "pet"]
    assert lines[4].endswith("cat, dog\\n")
    assert report.counts["distinct_unattainable"] == 2
    assert report.table(limit=1).endswith("... and 1 more")


def report_bound(line: str) -> str:
    return line.split("<=")[1].split()[0]


def test_under_autocast_and_inference_mode() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        report = verify_label_sets(HEAD, [[0, 1], [0, 1, 2]], "box:3")
    assert report.status.tolist() == [2, 1]
