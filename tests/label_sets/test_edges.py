"""Heads and sets at the edge of what there is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.label_sets.heads import RULES, all_sets
from unarg_callback import Domain, DomainError
from unarg_callback.label_sets import (
    IncrementalLabelSets,
    LabelHead,
    LabelSetError,
    Rule,
    RuleError,
    SetStatus,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
    verify_label_sets,
)
from unarg_callback.label_sets.checker import SetChecker
from unarg_callback.label_sets.problem import Problem

DOMAINS = [Domain.box(2.0), Domain.free()]


def attained(head: LabelHead, domain: Domain | str) -> list[tuple[int, ...]]:
    sets = all_sets(head.labels)
    report = verify_label_sets(head, sets, domain)
    assert report.counts["undecided"] == 0
    found = sets[report.status == SetStatus.ATTAINABLE]
    return [tuple(np.flatnonzero(row).tolist()) for row in found]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_one_label(domain: Domain) -> None:
    assert attained(LabelHead([[1.0]]), domain) == [(), (0,)]
    assert attained(LabelHead([[0.0]], [1.0]), domain) == [(0,)]
    assert attained(LabelHead([[0.0]]), domain) == []
    assert attained(LabelHead([[1.0]], rule=TopRule()), domain) == [(), (0,)]
    assert attained(LabelHead([[1.0]], rule=SparsegenRule()), domain) == [(0,)]
    assert attained(LabelHead([[1.0]], rule=SparsehourglassRule()), domain) == [(0,)]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_head_of_zeros(rule: Rule, domain: Domain) -> None:
    head = LabelHead(np.zeros((3, 2)), rule=rule)
    expected: list[tuple[int, ...]] = [(0, 1, 2)]
    if isinstance(rule, ThresholdRule):
        # Logits at the threshold are on neither side; below it they are off.
        expected = [()] if np.asarray(rule.thresholds) > 0 else []
    elif isinstance(rule, TopRule):
        expected = [(), (0, 1, 2)]
    elif rule == SparsehourglassRule(0.0):
        expected = []  # The map is undefined where the logits sum to 0.
    assert attained(head, domain) == expected


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_equal_labels_come_and_go_together(rule: Rule, domain: Domain) -> None:
    head = LabelHead([[1.0, 0.5], [1.0, 0.5], [-1.0, 2.0]], [0.1, 0.1, 0.2], rule)
    apart = [s for s in attained(head, domain) if len({0, 1} & set(s)) == 1]
    assert not apart


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_opposite_labels_are_never_both_on(domain: Domain) -> None:
    head = LabelHead([[1.0, 2.0], [-1.0, -2.0]])
    assert attained(head, domain) == [(1,), (0,)]


def test_a_dependent_row_only_allows_what_its_parts_do() -> None:
    head = LabelHead([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert set(attained(head, "free")) == {(), (0,), (1,), (0, 2), (1, 2), (0, 1, 2)}


def test_thresholds_of_their_own_for_each_label() -> None:
    head = LabelHead([[1.0], [1.0]], rule=ThresholdRule([0.0, 1.0]))
    assert attained(head, "free") == [(), (0,), (0, 1)]


def test_the_size_of_a_sparsemax_support_is_bounded_by_its_box() -> None:
    """Two logits differ by at most 2r; the second is out where they differ by 1 or more."""
    head = LabelHead([[1.0], [-1.0]], rule=SparsegenRule())
    assert attained(head, "box:0.4") == [(0, 1)]
    assert attained(head, "box:0.6") == [(1,), (0,), (0, 1)]
    wider = LabelHead([[1.0], [-1.0]], rule=SparsegenRule(-1.0))
    assert attained(wider, "box:0.6") == [(0, 1)]


def test_the_sign_of_the_sum_is_told_apart() -> None:
    """The gap is 1/3 where the sum is 0, and grows with its size on both sides."""
    head = LabelHead([[1.0], [1.0]], [0.25, -0.25], SparsehourglassRule(0.25))
    assert attained(head, "box:0.2") == [(0,), (0, 1)]
    # z = (x + .25, x - .25): both are on where 1/2 < (2|x| + .5) / 1.5, so |x| > .125.
    assert attained(head, "box:0.1") == [(0,)]
    assert attained(head, "nonnegative:0.2") == [(0,), (0, 1)]
    assert attained(head, Domain.box(-0.2, 0.0)) == [(0,), (0, 1)]


def test_a_point_for_a_box() -> None:
    head = LabelHead([[1.0], [-1.0]])
    assert attained(head, Domain.box(1.0, 1.0)) == [(0,)]


def test_no_sets() -> None:
    report = verify_label_sets(LabelHead([[1.0], [-1.0]]), np.zeros((0, 2), dtype=bool))
    assert report.counts["distinct"] == 0
    assert "0 label sets" in report.summary()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_more_labels_than_the_working_set(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    head = LabelHead(rng.normal(size=(700, 3)), rng.normal(size=700), rule)
    points = rng.uniform(-1, 1, size=(4, 3)) * 5
    z = points @ head.weight.T
    sets = z > np.sort(z, axis=1)[:, -5:-4]
    for domain in (Domain.box(5.0), Domain.free()):
        report = verify_label_sets(head, sets, domain)
        assert report.counts["undecided"] == 0


def test_logits_that_overflow_are_an_error_in_a_box_and_none_in_the_free_domain() -> None:
    head = LabelHead([[1e308, 0.0], [0.0, 1e308], [-1e308, -1e308]])
    with pytest.raises(DomainError, match="overflow"):
        verify_label_sets(head, [[0]], "box:10")
    assert len(attained(head, "free")) == 6


SAMPLES = 20_000
ALL = [[i for i in range(5) if number >> i & 1] for number in range(32)]


@pytest.mark.parametrize(
    ("rule", "mask", "size"),
    [
        ("sparsegen:0.999999", 0.0, 100.0),
        ("sparsemax", -1e10, 1.0),
        ("sparsemax", 0.0, 1e8),
        ("top", -1e9, 1.0),
        ("threshold:0", -1e12, 0.02),
        ("sparsehourglass:1e-6", -1e9, 1.0),
    ],
)
def test_an_odd_scale_puts_nothing_out_of_reach(rule: str, mask: float, size: float) -> None:
    """A masked label, a tiny gap or large weights: what inputs put out isn't called impossible."""
    rng = np.random.default_rng(0)
    bias = rng.normal(size=5)
    bias[4] += mask
    head = LabelHead(rng.normal(size=(5, 3)) * size, bias, rule)
    report = verify_label_sets(head, ALL, "box:100")
    assert report.counts["attainable"] > 0
    if rule == "top":
        return
    points = rng.uniform(-100, 100, size=(SAMPLES, 3))
    produced = SetChecker(Problem(head, Domain.box(100.0))).produced(points)
    put_out = np.unique(produced > 0, axis=0)
    for members in put_out:
        at = ALL.index(np.flatnonzero(members).tolist())
        assert report.status[at] != SetStatus.UNATTAINABLE, members


def test_a_decayed_row_is_judged_by_its_own_size() -> None:
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(5, 3))
    weight[4] *= 1e-11
    report = verify_label_sets(LabelHead(weight), ALL, "box:100")
    whole = verify_label_sets(LabelHead(np.vstack([weight[:4], weight[4:] * 1e11])), ALL, "box:100")
    attainable = whole.status == SetStatus.ATTAINABLE
    assert attainable.any()
    assert (report.status[attainable] == SetStatus.ATTAINABLE).all()
    assert not (report.status[~attainable] == SetStatus.ATTAINABLE).any()


def test_rules_by_name_and_what_is_none() -> None:
    rows = [[1.0, 0.0], [0.0, 1.0]]
    assert LabelHead(rows, rule="top").rule == TopRule()
    for wrong in (3, "nonsense", object()):
        with pytest.raises(RuleError):
            LabelHead(rows, rule=wrong)  # type: ignore[arg-type]
    for wrong in ("a", None, [1.0, 2.0]):
        with pytest.raises(RuleError):
            SparsegenRule(wrong)  # type: ignore[arg-type]
    with pytest.raises(RuleError):
        ThresholdRule("a")


@pytest.mark.parametrize("sets", [None, 3, {0: [1]}, "01", [3]])
def test_what_are_no_sets(sets: object) -> None:
    with pytest.raises(LabelSetError):
        verify_label_sets(LabelHead([[1.0, 0.0], [0.0, 1.0]]), sets)  # type: ignore[arg-type]


def test_an_update_without_sets_is_no_end() -> None:
    checks = IncrementalLabelSets("box:10")
    head = LabelHead([[1.0, 0.0], [0.0, 1.0]])
    for sets in ([[0]], [], [[0], [1]]):
        assert len(checks.update(head, sets).status) == len(sets)
