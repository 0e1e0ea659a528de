"""How many sets there are in all, where theory says so, and sets that real maps put out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.label_sets.heads import RULES, all_sets, normal_head
from unarg_callback import Domain
from unarg_callback.activations import sparsegen, sparsehourglass
from unarg_callback.label_sets import (
    LabelHead,
    Rule,
    SetStatus,
    SetWitness,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
    verify_label_sets,
)


@pytest.mark.parametrize(("labels", "dim"), [(1, 1), (4, 1), (6, 2), (7, 3), (6, 5)])
def test_sign_patterns_are_the_regions_of_an_arrangement(labels: int, dim: int) -> None:
    """Planes in general position: Schlaefli 1852, Cover 1965."""
    rng = np.random.default_rng(labels)
    weight, bias = rng.normal(size=(labels, dim)), rng.normal(size=labels)
    sets = all_sets(labels)
    affine = verify_label_sets(LabelHead(weight, bias), sets, "free").counts
    assert affine["attainable"] == sum(math.comb(labels, i) for i in range(dim + 1))
    central = verify_label_sets(LabelHead(weight), sets, "free").counts
    assert central["attainable"] == 2 * sum(math.comb(labels - 1, i) for i in range(dim))


@pytest.mark.parametrize(("labels", "dim"), [(1, 1), (3, 3), (4, 6)])
@pytest.mark.parametrize("rule", [ThresholdRule(), ThresholdRule(2.0), TopRule()], ids=str)
def test_a_head_of_full_rank_puts_out_everything(labels: int, dim: int, rule: Rule) -> None:
    rng = np.random.default_rng(0)
    head = LabelHead(rng.normal(size=(labels, dim)), rng.normal(size=labels), rule)
    assert verify_label_sets(head, all_sets(labels), "free").counts["attainable"] == 2**labels


@pytest.mark.parametrize("rule", [SparsegenRule(0.5), SparsehourglassRule(0.25)], ids=str)
def test_a_simplex_map_of_full_rank_puts_out_all_but_the_empty_set(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    head = LabelHead(rng.normal(size=(4, 5)), rng.normal(size=4), rule)
    assert verify_label_sets(head, all_sets(4), "free").counts["attainable"] == 15


def support(rule: Rule, z: torch.Tensor) -> torch.Tensor:
    """What the map itself puts out."""
    if isinstance(rule, SparsegenRule):
        return sparsegen(z, rule.lambda_) > 0
    if isinstance(rule, SparsehourglassRule):
        return sparsehourglass(z, rule.q) > 0
    assert isinstance(rule, ThresholdRule)
    return z > torch.as_tensor(rule.thresholds)


@pytest.mark.parametrize("rule", [r for r in RULES if not isinstance(r, TopRule)], ids=str)
@pytest.mark.parametrize("domain", [Domain.box(2.0), Domain.free()], ids=str)
def test_the_map_puts_the_set_out_at_its_witness(rule: Rule, domain: Domain) -> None:
    rng = np.random.default_rng(3)
    head = normal_head(rng, 6, 3, rule)
    sets = all_sets(6)
    report = verify_label_sets(head, sets, domain)
    weight, bias = torch.from_numpy(head.weight), torch.from_numpy(head.bias)
    for at in np.flatnonzero(report.status == SetStatus.ATTAINABLE).tolist():
        proof = report.proof_of(at)
        assert isinstance(proof, SetWitness)
        z = weight @ torch.from_numpy(proof.point) + bias
        assert np.array_equal(support(rule, z).numpy(), sets[at])


@pytest.mark.parametrize("rule", [r for r in RULES if not isinstance(r, TopRule)], ids=str)
def test_what_the_map_puts_out_is_attainable(rule: Rule) -> None:
    rng = np.random.default_rng(4)
    head = normal_head(rng, 7, 2, rule)
    points = rng.uniform(-2, 2, size=(3000, 2))
    z = torch.from_numpy(points @ head.weight.T + head.bias)
    seen = support(rule, z).numpy()
    clear = np.unique(seen, axis=0)
    assert len(clear) > 3
    report = verify_label_sets(head, clear, Domain.box(2.0))
    assert report.counts["attainable"] == len(clear)


def test_what_a_softmax_with_a_threshold_puts_out_holds_the_largest_logits() -> None:
    rng = np.random.default_rng(5)
    head = normal_head(rng, 6, 2, TopRule())
    z = torch.from_numpy(rng.uniform(-3, 3, size=(2000, 2)) @ head.weight.T + head.bias)
    seen = np.unique((z.softmax(1) > 0.2).numpy(), axis=0)
    assert verify_label_sets(head, seen, Domain.box(3.0)).counts["unattainable"] == 0
