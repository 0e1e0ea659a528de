"""What changes the problem by name or by unit only changes no verdict."""

from __future__ import annotations

import numpy as np
import pytest

from tests.label_sets.heads import RULES, all_sets, integral_head
from unarg_callback import Domain
from unarg_callback.label_sets import (
    LabelHead,
    Rule,
    SparsegenRule,
    ThresholdRule,
    TopRule,
    verify_label_sets,
)

_SETS = all_sets(6)


def head_of(seed: int, rule: Rule) -> LabelHead:
    return integral_head(np.random.default_rng(seed), 6, 2, rule)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("domain", [Domain.box(3.0), Domain.free()], ids=str)
def test_the_order_of_labels_does_not_matter(rule: Rule, domain: Domain) -> None:
    for seed in range(3):
        head = head_of(seed, rule)
        order = np.random.default_rng(seed).permutation(6)
        other = LabelHead(head.weight[order], head.bias[order], rule)
        one = verify_label_sets(head, _SETS, domain)
        two = verify_label_sets(other, _SETS[:, order], domain)
        assert np.array_equal(one.status, two.status)


@pytest.mark.parametrize("factor", [2.0**-300, 1e-9, 2.0**-20, 3.0, 1e12, 2.0**300])
@pytest.mark.parametrize("domain", [Domain.box(3.0), Domain.free()], ids=str)
def test_the_unit_of_the_logits_does_not_matter(factor: float, domain: Domain) -> None:
    pairs: list[tuple[Rule, Rule]] = [
        (ThresholdRule(0.5), ThresholdRule(0.5 * factor)),
        (TopRule(), TopRule()),
    ]
    if 1 - (1 - 0.5 * factor) == 0.5 * factor:
        pairs.append((SparsegenRule(0.5), SparsegenRule(1 - 0.5 * factor)))
    for seed, (rule, scaled) in enumerate(pairs):
        head = head_of(seed, rule)
        other = LabelHead(head.weight * factor, head.bias * factor, scaled)
        one, two = (verify_label_sets(h, _SETS, domain) for h in (head, other))
        assert np.array_equal(one.status, two.status)
        assert one.counts["undecided"] == 0


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("factor", [1e-6, 1024.0, 1e7])
def test_the_unit_of_the_features_does_not_matter(rule: Rule, factor: float) -> None:
    head = head_of(1, rule)
    other = LabelHead(head.weight / factor, head.bias, rule)
    one = verify_label_sets(head, _SETS, Domain.box(3.0))
    two = verify_label_sets(other, _SETS, Domain.box(3.0 * factor))
    assert np.array_equal(one.status, two.status)


@pytest.mark.parametrize("rule", [TopRule(), SparsegenRule()], ids=str)
def test_a_common_offset_of_all_rows_does_not_matter(rule: Rule) -> None:
    head = head_of(2, rule)
    other = LabelHead(head.weight + 2.0**20, head.bias - 2.0**20, rule)
    one, two = (verify_label_sets(h, _SETS, "box:3") for h in (head, other))
    assert np.array_equal(one.status, two.status)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_equal_sets_get_one_verdict_and_the_order_of_sets_does_not_matter(rule: Rule) -> None:
    head = head_of(3, rule)
    order = np.random.default_rng(0).integers(len(_SETS), size=200)
    one = verify_label_sets(head, _SETS, "box:2")
    many = verify_label_sets(head, _SETS[order], "box:2")
    assert np.array_equal(many.status, one.status[order])
    assert many.distinct == len(set(order.tolist()))
    assert many.counts["attainable"] == int((one.status[order] == 1).sum())
