"""Compact proofs and the proofs by class ids that they stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.independent import check_proofs
from unarg_callback import Certificate, Domain, OutputLayer, Status, Witness, check
from unarg_callback.geometry.certificates import Certificates
from unarg_callback.geometry.compact import CompactPoints
from unarg_callback.geometry.evidence import Evidence

# Ids 1 and 4 take no part; positions 0 to 5 are the ids 0, 2, 3, 5, 6 and 7.
WEIGHT = np.array(
    [[4, 0], [9, 9], [-4, 0], [0, 4], [-9, 9], [0, -4], [1, 0], [0, 1]], dtype=np.float64
)
EXCLUDED = (1, 4)
ACTIVE = np.array([0, 2, 3, 5, 6, 7])
EVEN = np.full(4, 0.25)


def evidence(status: list[int], certificates: Certificates, third: float = 1.0) -> Evidence:
    points = torch.tensor([[1.0, 0], [-1, 0], [0, third], [0, -1], [9, 9], [0, 0]])
    return Evidence(
        active=ACTIVE,
        classes=8,
        domain=Domain.box(1.0),
        min_lead=0.5,
        status=np.array(status, dtype=np.int8),
        lead=np.where(np.array(status) == Status.UNDECIDED, np.nan, 1.0),
        points=CompactPoints.pack(
            points, {0: torch.tensor([1.0, 1 / 3], dtype=torch.float64)}, 1.0
        ),
        certificates=certificates,
    )


@pytest.fixture
def held() -> Evidence:
    # The simplex of the four corners encloses the last two with two of them to spare.
    parts = {
        4: (np.array([0, 1, 2, 3]), np.array([0.5, 0.25, 0.125, 0.125])),
        5: (np.array([3, 2, 1, 0]), np.array([0.125, 0.375, 0.25, 0.25])),
    }
    return evidence([1, 1, 1, 1, 2, 2], Certificates.of(parts))


def test_proofs_are_by_class_ids(held: Evidence) -> None:
    proofs = held.proofs()
    assert proofs.status.tolist() == [1, 3, 1, 1, 3, 1, 2, 2]
    assert proofs.status.dtype == np.int8
    assert proofs.witness_class.tolist() == [0, 2, 3, 5]
    np.testing.assert_array_equal(proofs.witness, [[1, 1 / 3], [-1, 0], [0, 1], [0, -1]])
    assert proofs.certificate_class.tolist() == [6, 7]
    assert proofs.certificate_offsets.tolist() == [0, 4, 8]
    assert proofs.certificate_support.tolist() == [0, 2, 3, 5, 5, 3, 2, 0]
    assert proofs.certificate_weight[:4].tolist() == [0.5, 0.25, 0.125, 0.125]
    assert proofs.min_lead == 0.5
    np.testing.assert_array_equal(proofs.domain_low, [-1, -1])
    np.testing.assert_array_equal(proofs.domain_high, [1, 1])


def test_they_are_accepted(held: Evidence) -> None:
    proofs = held.proofs()
    summary = check_proofs(vars(proofs), WEIGHT, None, EXCLUDED)
    assert (summary.argmaxable, summary.unargmaxable, summary.excluded) == (4, 2, 2)
    layer = OutputLayer(WEIGHT, excluded=EXCLUDED)
    for index in ACTIVE.tolist():
        proof = proofs.proof_of(index)
        assert isinstance(proof, (Witness, Certificate))
        verdict = check(layer, held.domain, proof, held.min_lead)
        assert verdict.status == proofs.status[index]


@pytest.mark.parametrize("status", [Status.UNDECIDED, Status.ARGMAXABLE])
@pytest.mark.parametrize("other", [4, 5])
def test_a_certificate_that_is_only_kept_proves_nothing(
    status: Status, other: int, held: Evidence
) -> None:
    changed = held.status.copy()
    changed[other] = status
    proofs = replace(held, status=changed).proofs()
    index, left = int(ACTIVE[other]), int(ACTIVE[9 - other])
    assert proofs.status[index] == status
    assert proofs.certificate_class.tolist() == [left]
    assert proofs.certificate_offsets.tolist() == [0, 4]
    np.testing.assert_array_equal(
        proofs.certificate_weight, held.certificates.parts([9 - other])[9 - other][1]
    )
    assert (index in proofs.witness_class.tolist()) is (status == Status.ARGMAXABLE)
    if status == Status.UNDECIDED:
        assert proofs.proof_of(index) is None
        summary = check_proofs(vars(proofs), WEIGHT, None, EXCLUDED)
        assert (summary.undecided, summary.unargmaxable) == (1, 1)


def test_nothing_is_known() -> None:
    proofs = evidence([0] * 6, Certificates.of({})).proofs()
    assert proofs.status.tolist() == [0, 3, 0, 0, 3, 0, 0, 0]
    assert proofs.witness.shape == (0, 2)
    assert proofs.certificate_offsets.tolist() == [0]
    assert check_proofs(vars(proofs), WEIGHT, None, EXCLUDED).undecided == 6


def test_points_off_the_grid_are_exact() -> None:
    proofs = evidence([0, 0, 1, 0, 0, 0], Certificates.of({}), third=0.1).proofs()
    assert proofs.witness.tolist() == [[0.0, float(np.float32(0.1))]]


def test_the_free_domain_has_infinite_bounds(held: Evidence) -> None:
    proofs = replace(held, domain=Domain.free()).proofs()
    assert np.isneginf(proofs.domain_low).all()
    assert np.isposinf(proofs.domain_high).all()
    assert proofs.domain.is_free


def test_nbytes_is_what_the_arrays_take(held: Evidence) -> None:
    arrays = (held.active, held.status, held.lead, *vars(held.certificates).values())
    tensors = (held.points.half, held.points.odd, held.points.full)
    size = sum(a.nbytes for a in arrays) + sum(t.numel() * t.element_size() for t in tensors)
    assert held.nbytes == size
    assert size > 6 * (8 + 1 + 8)
