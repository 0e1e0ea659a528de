"""Which classes can be first by |z|."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.label_sets.exact_simplex import rational
from tests.label_sets.oracle import Form, best_free, best_in_box, logits
from unarg_callback import Domain, OutputLayer, Status
from unarg_callback.activations import sparsegen, spherical_softmax
from unarg_callback.label_sets import LabelHead, verify_absolute


def can_be_first(head: LabelHead, index: int, domain: Domain, min_lead: float) -> bool:
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
