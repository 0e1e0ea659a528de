"""Certificates over the supports that they had, for a layer that has moved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.search import Stage, random_layer, status_of
from tests.search.test_simplex import enclosed
from unarg_callback import Domain, OutputLayer, Status
from unarg_callback.geometry.certificates import CertificatePart
from unarg_callback.geometry.checker import Checker
from unarg_callback.search import resolve as module
from unarg_callback.search.batched import BatchedInteriorPoint
from unarg_callback.search.certify import certifier_of
from unarg_callback.search.exact import Outcome, Window
from unarg_callback.search.frame import whitening_frame
from unarg_callback.search.limits import Limits
from unarg_callback.search.resolve import resolve, slim
from unarg_callback.search.stages import Stages
from unarg_callback.search.working_set import Neighbours
from unarg_callback.verification import from_scratch

Parts = dict[int, CertificatePart]
DOMAINS = ("box:100", "box:-1,2", "nonnegative:10")


def stage_over(domain: Domain, weight: np.ndarray, bias: np.ndarray | None = None) -> Stage:
    layer = OutputLayer(weight, bias)
    checker = Checker(layer, domain)
    return Stage(layer, checker, whitening_frame(checker.sweep))


def parts_of(stage: Stage) -> Parts:
    """The certificates of a check from nothing."""
    stages = Stages(stage.checker, Limits())
    from_scratch(stages, None, "interior_point")
    return {
        target: (outcome.support, outcome.weight)
        for target, outcome in stages.outcomes.items()
        if outcome.support is not None and outcome.weight is not None
    }


def require_accepted(stage: Stage, parts: Parts, found: dict[int, Outcome]) -> None:
    """Every outcome is a certificate of its class over its own support."""
    assert set(found) <= set(parts)
    for target, outcome in found.items():
        assert outcome.target == target
        assert status_of(stage, outcome) == Status.UNARGMAXABLE
        assert outcome.support is not None
        assert outcome.weight is not None
        assert set(outcome.support.tolist()) <= set(parts[target][0].tolist())
        assert (outcome.weight > 0).all()
        assert outcome.lead <= stage.checker.min_lead


def moved(weight: np.ndarray, share: float, seed: int = 1) -> np.ndarray:
    return weight + share * np.random.default_rng(seed).normal(size=weight.shape)


@pytest.mark.parametrize("kind", ["gaussian", "biased", "clustered", "offset"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_most_certificates_hold_over_their_supports(kind: str, domain: str) -> None:
    weight, bias = random_layer(kind, 200, 3, seed=2)
    parts = parts_of(Stage.of(weight, bias, domain))
    assert len(parts) > 10
    stage = Stage.of(moved(weight, 1e-4), bias, domain)
    as_they_were = [
        target
        for target, (support, old) in parts.items()
        if stage.checker.certificate(target, support.astype(np.int64), old)[0]
    ]
    found = resolve(stage.checker, parts)
    require_accepted(stage, parts, found)
    assert set(as_they_were) <= set(found)
    assert len(found) > 0.7 * len(parts)
    assert len(found) > len(as_they_were) or domain != "box:100" or kind == "biased"


def test_a_box_of_unequal_sides() -> None:
    domain = Domain.box([-1.0, -7.0, 0.25], [4.0, 2.0, 0.25])
    weight, bias = random_layer("biased", 200, 3, seed=3)
    parts = parts_of(stage_over(domain, weight, bias / 30 if bias is not None else None))
    stage = stage_over(domain, moved(weight, 1e-2), bias / 30 if bias is not None else None)
    found = resolve(stage.checker, parts)
    require_accepted(stage, parts, found)
    assert len(found) > 0.7 * len(parts) > 10


def test_a_layer_that_has_not_moved_keeps_its_weights() -> None:
    weight, bias = random_layer("gaussian", 200, 3, seed=4)
    stage = Stage.of(weight, bias)
    parts = parts_of(stage)
    found = resolve(stage.checker, parts)
    require_accepted(stage, parts, found)
    assert set(found) == set(parts)
    for target, (support, old) in parts.items():
        np.testing.assert_array_equal(found[target].support, support)
        np.testing.assert_array_equal(found[target].weight, old)


def test_weights_of_zero_are_left_out() -> None:
    weight = np.array([[1.0, 0], [-1, 0], [0, 1], [0, 0]])
    stage = Stage.of(weight)
    found = resolve(stage.checker, {3: (np.array([0, 2, 1]), np.array([0.5, 0.0, 0.5]))})
    assert found[3].support is not None
    assert found[3].support.tolist() == [0, 1]


def supports_of_unequal_size(dim: int) -> tuple[Stage, Parts]:
    """Classes in a simplex; their supports are the simplex and more and more of each other."""
    weight, inner = enclosed(dim, 20)
    bias = np.zeros(len(weight))
    bias[inner] = -1.0
    parts: Parts = {}
    for more, target in enumerate(inner.flip(0).tolist()):
        # Small ids first: those of the simplex stand last.
        others = [i for i in inner.tolist() if i != target][:more]
        support = np.array(others + list(range(dim, -1, -1)))
        parts[target] = (support, np.ones(len(support)))
    return Stage.of(weight, bias), parts


@pytest.mark.parametrize("dim", [2, 5])
def test_supports_of_unequal_size_do_not_disturb_each_other(
    dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, parts = supports_of_unequal_size(dim)
    together = resolve(stage.checker, parts)
    require_accepted(stage, parts, together)
    assert set(together) == set(parts)
    monkeypatch.setattr(module, "_LARGEST_BATCH", 1)
    alone = resolve(stage.checker, parts)
    require_accepted(stage, parts, alone)
    assert set(alone) == set(parts)


def test_a_short_support_is_not_helped_by_its_padding() -> None:
    """Class 0 would help class 3, and stands where a support is too short."""
    weight = np.array([[1.0, 0], [-1, 0.5], [-1, -0.5], [0, 0], [0, 9], [9, -9], [-9, -9], [0, 0]])
    stage = Stage.of(weight)
    long = np.array([4, 5, 6, 0, 1, 2])
    parts: Parts = {3: (np.array([1, 2]), np.ones(2)), 7: (long, np.ones(6))}
    found = resolve(stage.checker, parts)
    require_accepted(stage, parts, found)
    assert set(found) == {7}
    parts[3] = (np.array([1, 2, 0]), np.ones(3))
    assert set(resolve(stage.checker, parts)) == {3, 7}


def test_what_can_be_argmaxable_gets_nothing() -> None:
    weight, bias = random_layer("gaussian", 100, 3, seed=5)
    stage = Stage.of(weight, bias)
    parts = parts_of(stage)
    winners = [t for t in range(100) if t not in parts]
    rng = np.random.default_rng(0)
    hopeless: Parts = {}
    for target in winners:
        support = rng.choice([t for t in range(100) if t != target], 30, replace=False)
        hopeless[target] = (support, rng.random(30))
    assert resolve(stage.checker, hopeless) == {}
    assert set(resolve(stage.checker, {**hopeless, **parts})) == set(parts)


def test_a_support_with_the_class_itself_or_unknown_rivals_proves_nothing() -> None:
    weight, _ = random_layer("gaussian", 30, 3, seed=6)
    stage = Stage.of(weight)
    one = np.ones(1)
    assert resolve(stage.checker, {4: (np.array([4]), one)}) == {}
    assert resolve(stage.checker, {4: (np.array([4, 4]), np.array([np.nan, 1.0]))}) == {}


def test_weights_that_are_nothing_are_only_a_start() -> None:
    weight, inner = enclosed(3, 5)
    stage = Stage.of(weight)
    for bad in (np.nan, np.inf, -1.0, 0.0):
        parts: Parts = {t: (np.arange(4), np.full(4, bad)) for t in inner.tolist()}
        found = resolve(stage.checker, parts)
        require_accepted(stage, parts, found)
        assert set(found) == set(parts)


def test_nobody() -> None:
    weight, _ = random_layer("gaussian", 10, 3)
    checker = Stage.of(weight).checker
    assert resolve(checker, {}) == {}
    assert resolve(checker, {}, Limits(0.0)) == {}
    assert slim(checker, {}) == {}


def test_without_time_there_is_one_batch_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, parts = supports_of_unequal_size(3)
    monkeypatch.setattr(module, "_LARGEST_BATCH", 4)
    limits = Limits(0.0)
    backwards = dict(reversed(parts.items()))
    found = resolve(stage.checker, backwards, limits)
    assert sorted(found) == sorted(list(backwards)[:4])
    assert limits.cut_short
    assert set(resolve(stage.checker, parts, Limits(1000.0))) == set(parts)


def wide_outcomes(stage: Stage) -> dict[int, Outcome]:
    """Certificates as the interior point leaves them: every rival has some weight."""
    window = Window.of(stage.checker, stage.frame)
    way = BatchedInteriorPoint(stage.checker, window, certifier_of(stage.checker, stage.frame))
    known = torch.zeros(len(stage.everyone), dtype=torch.bool)
    seeds = Neighbours(stage.checker.sweep, stage.frame).of(stage.everyone, known, 60)
    return {o.target: o for o in way.settle(stage.everyone, seeds, Limits())}


@pytest.mark.parametrize("domain", DOMAINS)
def test_slim_certificates_hold_and_are_small(domain: str) -> None:
    weight, bias = random_layer("gaussian", 200, 3, seed=7)
    stage = Stage.of(weight, bias, domain)
    wide = wide_outcomes(stage)
    sizes = {t: len(o.support) for t, o in wide.items() if o.support is not None}
    large = {target for target, size in sizes.items() if size > 12}
    assert len(large) > 10
    found = slim(stage.checker, wide)
    assert set(found) <= large
    assert len(found) > 0.5 * len(large)
    for target, outcome in found.items():
        assert status_of(stage, outcome) == Status.UNARGMAXABLE
        assert outcome.support is not None
        support = wide[target].support
        assert support is not None
        assert len(outcome.support) <= 12
        assert set(outcome.support.tolist()) < set(support.tolist())


def test_slim_keeps_the_heaviest() -> None:
    """Of 40 rivals only three enclose the class, and the others have next to no weight."""
    weight = np.concatenate([np.random.default_rng(0).normal(size=(40, 2)) * 1e-3, np.eye(2)])
    weight = np.concatenate([weight * 5, [[-5.0, -5.0], [0, 0]]])
    bias = np.zeros(len(weight))
    bias[43] = -1.0
    stage = Stage.of(weight, bias, "box:1")
    heavy = np.full(43, 1e-4)
    heavy[40:] = 1.0
    outcome = Outcome(43, lead=0.0, support=np.arange(43), weight=heavy)
    assert status_of(stage, outcome) == Status.UNARGMAXABLE
    small = slim(stage.checker, {43: outcome})[43]
    assert status_of(stage, small) == Status.UNARGMAXABLE
    assert small.support is not None
    assert {40, 41, 42} <= set(small.support.tolist())
    assert len(small.support) <= 12
    assert slim(stage.checker, {43: small}) == {}


def test_slim_leaves_witnesses_and_failures_alone() -> None:
    weight, _ = random_layer("gaussian", 10, 3)
    checker = Stage.of(weight).checker
    point = torch.ones(3, dtype=torch.float64)
    assert slim(checker, {0: Outcome(0, point, 1.0), 1: Outcome(1, reason="a limit")}) == {}
