"""Which classes can be first by |z|."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.label_sets.exact_simplex import rational
from tests.label_sets.oracle import Form, best_free, best_in_box, logits
from unarg_callback import Domain, OutputLayer, Status, verify
from unarg_callback.absolute import AbsoluteReport, folded, mirrored, verify_absolute
from unarg_callback.activations import sparsegen, spherical_softmax
from unarg_callback.label_sets import LabelHead


def can_be_first(head: LabelHead, index: int, domain: Domain, min_lead: float) -> bool:
    if head.labels == 1:
        return True
    z = logits(head)
    for sign in (1, -1):
        own = z[index].times(rational(sign))
        rivals = [i for i in range(head.labels) if i != index]
        rows: list[Form] = [own]
        for i in rivals:
            rows += [own.plus(z[i], rational(1)), own.plus(z[i], rational(-1))]
        best = best_free(rows, None) if domain.is_free else best_in_box(rows, None, domain)
        if best is not None and best > rational(min_lead):
            return True
    return False


@pytest.mark.parametrize(
    "domain", [Domain.box(2.0), Domain.nonnegative(1.0), Domain.free()], ids=str
)
def test_agrees_with_exact_answers(domain: Domain) -> None:
    rng = np.random.default_rng(0)
    for case in range(12):
        labels, dim = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        weight = rng.integers(-3, 4, size=(labels, dim)).astype(float)
        bias = rng.integers(-2, 3, size=labels).astype(float) if case % 2 else None
        report = verify_absolute(OutputLayer(weight, bias), domain)
        head = LabelHead(weight, bias)
        for index in range(labels):
            expected = can_be_first(head, index, domain, report.mirrored.min_lead)
            status = Status.ARGMAXABLE if expected else Status.UNARGMAXABLE
            assert report.status[index] == status, (weight, bias, index)


def test_the_maps_put_the_class_first_at_its_witness() -> None:
    rng = np.random.default_rng(1)
    weight, bias = rng.normal(size=(12, 2)), rng.normal(size=12)
    report = verify_absolute(OutputLayer(weight, bias), "box:3")
    assert 0 < report.counts["unargmaxable"] < 12
    for index in np.flatnonzero(report.status == Status.ARGMAXABLE).tolist():
        proofs = report.mirrored.proofs
        witness = proofs.proof_of(index) or proofs.proof_of(index + 12)
        if report.mirrored.status[index] != Status.ARGMAXABLE:
            witness = proofs.proof_of(index + 12)
        assert witness is not None
        z = torch.from_numpy(weight @ witness.point + bias)  # type: ignore[union-attr]
        assert int(spherical_softmax(z).argmax()) == index
        assert int(sparsegen(z, g="sq").argmax()) == index
        top = z.abs().topk(2).values
        assert float(top[0] - top[1]) >= report.lead[index]


def test_a_class_may_win_by_its_negative_logit_only() -> None:
    """Class 2 is never the argmax, and the first by |z| at x = -1."""
    weight = [[1.0], [-1.0], [3.0]]
    domain = Domain.box(-1.0, 0.0)
    report = verify_absolute(OutputLayer(weight), domain)
    assert report.status.tolist() == [2, 2, 1]
    assert report.mirrored.status.tolist() == [2, 2, 2, 2, 2, 1]


def test_names_and_excluded_classes_carry_over() -> None:
    layer = OutputLayer([[2.0], [1.0], [9.0]], names=["a", "b", "c"], excluded=[2])
    report = verify_absolute(layer, "box:1")
    assert report.status.tolist() == [Status.ARGMAXABLE, Status.UNARGMAXABLE, Status.EXCLUDED]
    assert report.mirrored.names == ("a", "b", "c", "-a", "-b", "-c")


def test_folded_reports() -> None:
    """Rows: a corner, its mirror image, zeros twice, one inside, one excluded, one of the same."""
    rows = np.array([[2.0, 0], [-2, 0], [0, 0], [0, 0], [0.5, 0.5], [9, 9], [0, 1], [0, 1]])
    names = tuple("abcdefgh")
    layer = OutputLayer(rows, names=names, excluded=[5])
    report = verify(mirrored(layer), "box:1")
    found = folded(report, names)
    verdicts = AbsoluteReport.of(report)
    assert found.status.tolist() == verdicts.status.tolist()
    assert found.names == names
    assert (found.classes, found.dim) == (8, 2)
    assert found.duplicate_of.tolist() == [1, 0, 3, 2, -1, -1, 7, 6]
    U, X = Status.UNARGMAXABLE, Status.EXCLUDED
    assert found.status.tolist() == [U, U, U, U, U, X, U, U]
    assert found.counts["duplicates"] == 6
    assert not found.potential[found.status == X].any()
    beaten = np.flatnonzero(found.status == U)
    # Its own mirror image is no rival of a class.
    assert (found.rival[beaten] != beaten).all()
    assert (found.rival[beaten] != 5).all()
    assert np.isnan(found.lead[5])
    assert any("size of their logits" in note for note in found.notes)


def test_a_folded_report_tells_of_the_sign_that_leads() -> None:
    """Class 2 leads at x = -1 by its negative logit only; 0 and 1 are beaten by its mirror."""
    layer = OutputLayer([[1.0], [-0.5], [3.0]])
    report = verify(mirrored(layer), Domain.box(-1.0, 0.0))
    found = folded(report, None)
    assert found.status.tolist() == [2, 2, 1]
    assert found.lead[2] == report.lead[5] > 0
    marks: Any = np.arange(6)
    told_apart = folded(replace(report, measured=marks, rival=np.full(6, -1)), None)
    assert told_apart.measured.tolist() == [0, 1, 5]
    assert found.reflections.tolist() == (report.reflections[:3] + report.reflections[3:]).tolist()
    assert found.rival[0] in (1, 2)
    assert found.rival[1] in (0, 2)
    assert found.rival[2] == -1
    assert found.age.tolist() == [0, 0, 0]
    assert found.potential.tolist() == (report.potential[:3] & report.potential[3:]).tolist()


def test_folded_ages_are_those_of_undecided_classes() -> None:
    layer = OutputLayer(np.random.default_rng(0).normal(size=(6, 2)))
    report = verify(mirrored(layer), "box:1")
    status = report.status.copy()
    status[[1, 7]] = Status.UNDECIDED  # Both signs of class 1.
    status[2], status[8] = Status.UNDECIDED, Status.ARGMAXABLE
    status[3], status[9] = Status.UNDECIDED, Status.UNARGMAXABLE
    age = np.arange(12)
    found = folded(replace(report, status=status, age=age), None)
    assert found.status[1:4].tolist() == [0, 1, 0]
    assert found.age[1:4].tolist() == [7, 0, 9]


@pytest.mark.parametrize("seed", range(8))
def test_twins_and_rivals_are_other_classes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for case in range(12):
        rows = rng.integers(-2, 3, size=(int(rng.integers(1, 8)), int(rng.integers(1, 3))))
        bias = rng.integers(-2, 3, size=len(rows)) if case % 2 else np.zeros(len(rows), dtype=int)
        layer = OutputLayer(rows.astype(float), bias.astype(float) if case % 2 else None)
        found = folded(verify(mirrored(layer), "box:1"), None)
        lines = np.column_stack([rows, bias])
        for t, line in enumerate(lines):
            same = (lines == line).all(1) | (lines == -line).all(1)
            others = np.flatnonzero(same & (np.arange(len(lines)) != t))
            assert found.duplicate_of[t] == (others[0] if len(others) else -1), (rows, bias, t)
        assert (found.rival != np.arange(len(lines))).all(), (rows, bias)
        assert (found.rival < len(lines)).all()
        assert (found.rival[found.status == Status.ARGMAXABLE] == -1).all()
