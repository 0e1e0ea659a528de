"""Warm verdicts are cold verdicts."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from tests.label_sets.heads import RULES, all_sets, normal_head
from unarg_callback import Domain
from unarg_callback.label_sets import (
    IncrementalLabelSets,
    LabelHead,
    Rule,
    SetStatus,
    ThresholdRule,
    check_label_set_proof,
    verify_label_sets,
)

_SETS = all_sets(6)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("domain", [Domain.box(2.0), Domain.free()], ids=str)
def test_warm_and_cold_agree_while_a_head_moves(rule: Rule, domain: Domain) -> None:
    rng = np.random.default_rng(11)
    head = normal_head(rng, 6, 2, rule)
    checks = IncrementalLabelSets(domain)
    for step in (0.0, 1e-3, 0.1, 2.0):
        weight = head.weight + step * rng.normal(size=(6, 2))
        head = LabelHead(weight, head.bias + step * rng.normal(size=6), rule)
        warm, cold = checks.update(head, _SETS), verify_label_sets(head, _SETS, domain)
        assert np.array_equal(warm.status, cold.status)
        assert warm.counts["undecided"] == 0
        assert warm.reuse.warm == (step > 0)
        for at in range(0, len(_SETS), 4):
            proof = warm.proof_of(at)
            assert proof is not None
            assert check_label_set_proof(head, domain, proof)[0] == warm.status[at]


def test_a_small_move_keeps_nearly_all_proofs() -> None:
    rng = np.random.default_rng(0)
    head = normal_head(rng, 8, 3, ThresholdRule())
    checks = IncrementalLabelSets("box:5")
    checks.update(head, all_sets(8))
    moved = LabelHead(head.weight + 1e-4 * rng.normal(size=(8, 3)), head.bias)
    reuse = checks.update(moved, all_sets(8)).reuse
    assert reuse.kept + reuse.recertified > 250


def test_sets_may_come_and_go() -> None:
    head = normal_head(np.random.default_rng(1), 6, 2, ThresholdRule())
    checks = IncrementalLabelSets("box:5")
    cold = verify_label_sets(head, _SETS, "box:5")
    for span in (slice(0, 20), slice(10, 50), slice(40, 64), slice(0, 64)):
        assert np.array_equal(checks.update(head, _SETS[span]).status, cold.status[span])


@pytest.mark.parametrize("rule", [RULES[0], RULES[6]], ids=str)
def test_a_saved_state_goes_on_in_another_process(rule: Rule) -> None:
    head = normal_head(np.random.default_rng(2), 6, 2, rule)
    first = IncrementalLabelSets("box:5")
    cold = first.update(head, _SETS)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = IncrementalLabelSets("box:5")
    second.load_state_dict(torch.load(file, weights_only=True))
    warm = second.update(head, _SETS)
    assert np.array_equal(warm.status, cold.status)
    assert warm.reuse.warm
    assert warm.reuse.kept + warm.reuse.recertified == len(_SETS)


def test_nothing_in_a_state_is_believed() -> None:
    rng = np.random.default_rng(3)
    head = normal_head(rng, 6, 2, ThresholdRule())
    checks = IncrementalLabelSets("box:5")
    cold = checks.update(head, _SETS)
    state = checks.state_dict()
    state["weight"] = torch.rand_like(state["weight"])
    state["points"] = state["points"].flip(0)
    other = IncrementalLabelSets("box:5")
    other.load_state_dict(state)
    assert np.array_equal(other.update(head, _SETS).status, cold.status)


@pytest.mark.parametrize(
    "state",
    [{"version": 7}, {"version": 1, "labels": 6}, 5, {"version": 1, "labels": "x", "sets": None}],
    ids=str,
)
def test_a_damaged_state_is_left_out_and_said(state: object) -> None:
    checks = IncrementalLabelSets("box:5")
    checks.load_state_dict(state)  # type: ignore[arg-type]
    head = normal_head(np.random.default_rng(2), 6, 2, ThresholdRule())
    report = checks.update(head, _SETS)
    assert not report.reuse.warm
    assert "Started from nothing" in report.notes[0]
    assert not checks.update(head, _SETS).notes


def test_a_state_with_labels_out_of_range_is_left_out() -> None:
    head = normal_head(np.random.default_rng(2), 6, 2, ThresholdRule())
    checks = IncrementalLabelSets("box:5")
    checks.update(head, _SETS)
    state = checks.state_dict()
    state["support"] = state["support"] + 100
    checks.load_state_dict(state)
    assert "Started from nothing" in checks.update(head, _SETS).notes[0]


def test_another_size_starts_from_nothing() -> None:
    checks = IncrementalLabelSets("box:5")
    checks.update(normal_head(np.random.default_rng(0), 6, 2, ThresholdRule()), _SETS)
    report = checks.update(normal_head(np.random.default_rng(0), 6, 3, ThresholdRule()), _SETS)
    assert report.notes[0] == "Started from nothing: the head was 6 x 2 and is 6 x 3."
    checks.reset()
    assert checks.state_dict() == {}


@pytest.mark.parametrize("domain", ["box:5", "free"])
def test_a_time_limit_leaves_sets_undecided(domain: str) -> None:
    rng = np.random.default_rng(5)
    head = normal_head(rng, 8, 2, ThresholdRule())
    report = verify_label_sets(head, all_sets(8), domain, time_limit=0.0)
    assert report.counts["undecided"] > 0
    assert not report.complete
    assert "cut short" in report.summary()
    checks = IncrementalLabelSets(domain)
    checks.update(head, all_sets(8), time_limit=0.0)
    assert checks.update(head, all_sets(8)).counts["undecided"] == 0


def test_activations_settle_the_sets_that_they_put_out() -> None:
    rng = np.random.default_rng(6)
    head = normal_head(rng, 6, 2, ThresholdRule())
    points = rng.uniform(-1, 1, size=(500, 2))
    sets = points @ head.weight.T + head.bias > 0
    seen = np.vstack([points, [[np.nan, 0.0]], [[1e9, 0.0]]])
    report = verify_label_sets(head, sets, "box:1", time_limit=0.0, activations=seen)
    assert (report.status == SetStatus.ATTAINABLE).mean() > 0.9
    assert (report.status != SetStatus.UNATTAINABLE).all()
