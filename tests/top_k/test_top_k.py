"""Who can be among the K best, against exact answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from unarg_callback import Domain, OutputLayer, Status, verify
from unarg_callback.errors import UnargError
from unarg_callback.geometry.proof import Certificate
from unarg_callback.top_k import (
    Reach,
    TopKCertificate,
    TopKWitness,
    check_top_k_proof,
    verify_top_k,
)

DOMAINS = [Domain.box(3.0), Domain.nonnegative(2.0), Domain.free()]


def reachable(layer: OutputLayer, target: int, k: int, domain: Domain, min_lead: float) -> bool:
    """Whether the class is argmaxable once some K - 1 rivals are gone: the definition."""
    rivals = [i for i in layer.active.tolist() if i != target]
    for gone in combinations(rivals, min(k - 1, len(rivals))):
        left = OutputLayer(layer.weight, layer.bias, excluded=[*layer.excluded, *gone])
        report = verify(left, domain, min_lead=min_lead)
        assert report.status[target] != Status.UNDECIDED
        if report.status[target] == Status.ARGMAXABLE:
            return True
    return False


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_leaving_out_each_set_of_rivals(domain: Domain, seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes, dim = int(rng.integers(5, 9)), int(rng.integers(1, 4))
    weight = rng.integers(-3, 4, size=(classes, dim)).astype(float)
    bias = rng.integers(-2, 3, size=classes).astype(float)
    layer = OutputLayer(weight, bias, excluded=[int(rng.integers(classes))])
    for k in (1, 2, 3):
        report = verify_top_k(layer, k, domain)
        for index in layer.active.tolist():
            expected = reachable(layer, index, k, domain, report.argmax.min_lead)
            status = Reach.REACHABLE if expected else Reach.UNREACHABLE
            assert report.status[index] == status, (seed, k, index)
        assert report.status[layer.excluded[0]] == Reach.EXCLUDED


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_every_proof_is_accepted_and_no_other(domain: Domain) -> None:
    rng = np.random.default_rng(5)
    layer = OutputLayer(rng.normal(size=(40, 3)), rng.normal(size=40) / 4)
    report = verify_top_k(layer, 2, domain)
    kinds = {type(proof) for proof in report.proofs.values()}
    assert TopKCertificate in kinds
    for index, proof in report.proofs.items():
        least = report.argmax.min_lead
        assert check_top_k_proof(layer, 2, domain, proof, least) == report.status[index]
        if isinstance(proof, TopKCertificate):
            # One set less, and somebody could hit all of them.
            short = replace(proof, parts=proof.parts[:1])
            assert check_top_k_proof(layer, 2, domain, short, least) == Reach.UNDECIDED
            own = Certificate(index, np.array([index]), np.array([1.0]))
            forged = replace(proof, parts=(own, own))
            assert check_top_k_proof(layer, 2, domain, forged, least) == Reach.UNDECIDED
        else:
            assert check_top_k_proof(layer, 1, domain, proof, least) == Reach.UNDECIDED


def test_more_are_reached_the_larger_k() -> None:
    rng = np.random.default_rng(2)
    layer = OutputLayer(rng.normal(size=(60, 2)))
    reports = [verify_top_k(layer, k, time_limit=60) for k in (1, 2, 4, 60)]
    reached = [set(report.ids(Reach.REACHABLE).tolist()) for report in reports]
    assert reached[0] < reached[1] < reached[2]
    assert len(reached[3]) == 60


def test_equal_rows_need_room_for_both() -> None:
    layer = OutputLayer([[1.0], [1.0], [-1.0], [0.0]])
    statuses = [verify_top_k(layer, k, "box:1").status.tolist() for k in (1, 2)]
    one, both = Reach.UNREACHABLE, Reach.REACHABLE
    assert statuses == [[one, one, both, one], [both, both, both, both]]


def test_without_time_nothing_but_the_argmaxable_is_known() -> None:
    rng = np.random.default_rng(2)
    layer = OutputLayer(rng.normal(size=(60, 2)))
    report = verify_top_k(layer, 2, report=verify(layer), time_limit=1e-9)
    assert not report.complete
    assert report.counts["undecided"] > 0
    assert "cut short" in report.summary()


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "2"])
def test_k_is_a_whole_number_from_one(k: object) -> None:
    with pytest.raises(UnargError, match="whole number from 1"):
        verify_top_k(OutputLayer([[1.0], [2.0]]), k)  # type: ignore[arg-type]


def test_a_report_of_another_layer_is_refused() -> None:
    layer = OutputLayer([[1.0], [2.0]])
    with pytest.raises(UnargError, match="2 classes x 1 features"):
        verify_top_k(OutputLayer([[1.0], [2.0], [0.0]]), 2, report=verify(layer))


def test_a_witness_outside_of_the_domain_proves_nothing() -> None:
    layer = OutputLayer([[1.0], [2.0], [3.0]])
    inside, outside = (TopKWitness(1, np.array([x])) for x in (1.0, 2.0))
    assert check_top_k_proof(layer, 2, "box:1", inside) == Reach.REACHABLE
    assert check_top_k_proof(layer, 2, "box:1", outside) == Reach.UNDECIDED
    assert check_top_k_proof(layer, 2, "box:1", TopKWitness(1, np.zeros(2))) == Reach.UNDECIDED
