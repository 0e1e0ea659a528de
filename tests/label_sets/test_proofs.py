"""Proofs stand by themselves, and wrong ones are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.label_sets.heads import RULES, all_sets, normal_head
from unarg_callback import Domain
from unarg_callback.label_sets import (
    Combination,
    LabelHead,
    LabelSetReport,
    Rule,
    SetCertificate,
    SetStatus,
    SetWitness,
    SparsegenRule,
    ThresholdRule,
    check_label_set_proof,
    verify_label_sets,
)
from unarg_callback.label_sets.checker import SetChecker
from unarg_callback.label_sets.problem import Problem

_SETS = all_sets(6)


def some_report(rule: Rule, domain: Domain) -> tuple[LabelHead, LabelSetReport]:
    head = normal_head(np.random.default_rng(7), 6, 2, rule)
    return head, verify_label_sets(head, _SETS, domain)


def certificates(report: LabelSetReport) -> list[SetCertificate]:
    found = [report.proof_of(at) for at in range(len(_SETS))]
    return [p for p in found if isinstance(p, SetCertificate) and p.labels.any()]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("domain", [Domain.box(2.0), Domain.free()], ids=str)
def test_a_proof_of_one_set_does_not_prove_another(rule: Rule, domain: Domain) -> None:
    head, report = some_report(rule, domain)
    for at in range(0, len(_SETS), 3):
        proof = report.proof_of(at)
        assert proof is not None
        for other in range(0, len(_SETS), 5):
            status, _ = check_label_set_proof(head, domain, replace(proof, labels=_SETS[other]))
            assert status in (SetStatus.UNDECIDED, report.status[other])


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_certificate_for_a_box_is_none_for_a_much_larger_one(rule: Rule) -> None:
    head, report = some_report(rule, Domain.box(0.25))
    larger = verify_label_sets(head, _SETS, Domain.box(20.0))
    changed = (report.status == SetStatus.UNATTAINABLE) & (larger.status == SetStatus.ATTAINABLE)
    for at in np.flatnonzero(changed).tolist():
        proof = report.proof_of(at)
        assert proof is not None
        assert check_label_set_proof(head, Domain.box(20.0), proof)[0] == SetStatus.UNDECIDED


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_damaged_certificates_are_refused(rule: Rule) -> None:
    head, report = some_report(rule, Domain.box(2.0))
    for proof in certificates(report)[:8]:
        part = proof.combinations[0]
        for wrong in (
            replace(part, weight=-part.weight),
            replace(part, weight=part.weight * np.nan),
            replace(part, weight=part.weight[:-1]),
            replace(part, support=part.support + 6),
            replace(part, support=np.zeros_like(part.support), weight=part.weight)
            if len(part.support) > 1
            else replace(part, support=part.support - 1000),
            replace(part, sign_weight=-1.0),
            Combination(np.zeros(0, dtype=np.int64), np.zeros(0)),
        ):
            if not len(part.support) and not len(wrong.support) and wrong.sign_weight >= 0:
                continue
            bad = SetCertificate(proof.labels, (wrong, *proof.combinations[1:]))
            status, _ = check_label_set_proof(head, Domain.box(2.0), bad)
            assert status == SetStatus.UNDECIDED
        none = SetCertificate(proof.labels, proof.combinations[1:])
        assert check_label_set_proof(head, Domain.box(2.0), none)[0] == SetStatus.UNDECIDED


def test_witnesses_outside_of_the_domain_are_refused() -> None:
    head = LabelHead([[1.0, 0.0], [0.0, 1.0]])
    both = np.array([True, True])
    for point in ([2.0, 0.5], [np.nan, 0.5], [np.inf, 0.5], [0.5], [0.0, 0.5], [-0.5, 0.5]):
        status, _ = check_label_set_proof(head, "box:1", SetWitness(both, np.array(point)))
        assert status == SetStatus.UNDECIDED
    good = SetWitness(both, np.array([1.0, 0.5]))
    status, margin = check_label_set_proof(head, "box:1", good)
    assert status == SetStatus.ATTAINABLE
    assert margin == pytest.approx(0.5)


def test_min_margin_decides_on_both_sides() -> None:
    """The best margin of the set is 1 in this box, at its corner."""
    head = LabelHead([[1.0, 0.0], [0.0, 1.0]])
    both = [[0, 1]]
    for domain in ("box:1", "nonnegative:1"):
        assert verify_label_sets(head, both, domain, min_margin=0.999).counts["attainable"] == 1
        assert verify_label_sets(head, both, domain, min_margin=1.001).counts["unattainable"] == 1
    assert verify_label_sets(head, both, "box:1").margin[0] <= 1
    report = verify_label_sets(head, both, "box:1", min_margin=1.5)
    assert 1 <= report.margin[0] <= 1.5


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_margins_bound_each_other(rule: Rule) -> None:
    """What a witness has from below no certificate for a larger min_margin denies."""
    head, report = some_report(rule, Domain.box(2.0))
    best = report.margin[(report.status == SetStatus.ATTAINABLE) & np.isfinite(report.margin)]
    limit = float(best.max())
    stricter = verify_label_sets(head, _SETS, Domain.box(2.0), min_margin=limit)
    denied = (stricter.status == SetStatus.UNATTAINABLE) & (report.status == SetStatus.ATTAINABLE)
    assert denied.any()
    assert (stricter.margin[denied] >= report.margin[denied]).all()
    kept = stricter.status == SetStatus.ATTAINABLE
    assert (stricter.margin[kept] > limit).all()


def test_rounding_leaves_undecided_what_it_could_turn() -> None:
    """A margin of a few units in the last place is no proof, nor is its absence."""
    head = LabelHead([[1.0, 1.0], [1.0, 1.0 + 2.0**-50]], [-1.0, -1.0])
    sets = np.array([[False, True]])
    point = np.array([[0.5, 0.5]])
    accepted, margin = SetChecker(Problem(head, Domain.box(1.0), 0.0)).margins(sets, point)
    assert not accepted[0]
    assert margin[0] < 0


def test_a_threshold_of_zero_weight_is_enough_to_tell_rules_apart() -> None:
    head, report = some_report(ThresholdRule(), Domain.box(2.0))
    other = LabelHead(head.weight, head.bias, SparsegenRule())
    for proof in certificates(report)[:10]:
        status, _ = check_label_set_proof(other, Domain.box(2.0), proof)
        truth = verify_label_sets(other, proof.labels[None], Domain.box(2.0)).status[0]
        assert status in (SetStatus.UNDECIDED, truth)
