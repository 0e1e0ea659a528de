"""Verdicts against exact answers for every label set of small heads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.label_sets.exact_simplex import rational
from tests.label_sets.heads import DOMAINS, RULES, all_sets, integral_head, normal_head
from tests.label_sets.oracle import (
    bounds_every_margin,
    exact_margin,
    excludes_every_input,
    is_attainable,
)
from unarg_callback import Domain
from unarg_callback.label_sets import (
    LabelHead,
    LabelSetReport,
    Rule,
    SetCertificate,
    SetStatus,
    SetWitness,
    TopRule,
    check_label_set_proof,
    verify_label_sets,
)

_MOST_SETS = 12


def compare(head: LabelHead, domain: Domain, rng: np.random.Generator) -> LabelSetReport:
    """Verify every set; compare some with the oracle, and check their proofs exactly."""
    sets = all_sets(head.labels)
    report = verify_label_sets(head, sets, domain)
    assert report.counts["undecided"] == 0, report.table()
    for at in rng.permutation(len(sets))[:_MOST_SETS].tolist():
        expected = is_attainable(head, sets[at], domain, report.min_margin)
        found = SetStatus(report.status[at])
        assert (found == SetStatus.ATTAINABLE) == expected, (head, sets[at], domain)
        proof = report.proof_of(at)
        assert proof is not None
        assert check_label_set_proof(head, domain, proof)[0] == found
        trivial = isinstance(head.rule, TopRule) and sets[at].sum() in (0, head.labels)
        if isinstance(proof, SetWitness) and not trivial:
            margin = exact_margin(head, sets[at], proof.point)
            assert margin > rational(report.min_margin)
            assert margin >= rational(report.margin[at])
        if isinstance(proof, SetCertificate) and domain.is_free:
            assert excludes_every_input(head, proof, report.min_margin)
        elif isinstance(proof, SetCertificate):
            assert bounds_every_margin(head, proof, domain, report.min_margin)
    return report


def random_case(seed: int, rule: Rule) -> None:
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(1, 8))
    dim = int(rng.integers(1, 5))
    build = integral_head if rng.integers(4) else normal_head
    compare(build(rng, labels, dim, rule), DOMAINS[rng.integers(len(DOMAINS))], rng)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_agrees_with_exact_answers(rule: Rule) -> None:
    for seed in range(12):
        random_case(seed, rule)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_agrees_with_exact_answers_on_many_heads(rule: Rule) -> None:
    for seed in range(1000, 1200):
        random_case(seed, rule)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_agrees_on_all_sets_of_ten_labels(rule: Rule) -> None:
    rng = np.random.default_rng(5)
    for domain in DOMAINS:
        compare(integral_head(rng, 10, 3, rule), domain, rng)
        compare(normal_head(rng, 10, 4, rule), domain, rng)
