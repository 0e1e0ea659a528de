from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.search import KINDS, Stage, random_layer, status_of
from tests.search.test_simplex import enclosed
from unarg_callback import OutputLayer, Status, verify
from unarg_callback.search import settle as module
from unarg_callback.search.batched import BatchedInteriorPoint
from unarg_callback.search.cutting_plane import CuttingPlane
from unarg_callback.search.exact import Outcome
from unarg_callback.search.limits import Limits
from unarg_callback.search.settle import ExactName, settle

WAYS: list[ExactName] = ["interior_point", "cutting_plane"]
CLASSES: dict[ExactName, type[BatchedInteriorPoint] | type[CuttingPlane]] = {
    "interior_point": BatchedInteriorPoint,
    "cutting_plane": CuttingPlane,
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """How many classes each exact way was asked for, call by call."""
    calls: dict[str, list[int]] = {}
    for name, way in CLASSES.items():
        seen = calls[name] = []
        original = way.settle

        def spy(  # noqa: ANN202
            self,  # noqa: ANN001
            targets: torch.Tensor,
            rivals: torch.Tensor,
            limits: Limits,
            seen: list[int] = seen,
            original=original,  # noqa: ANN001
        ):
            seen.append(len(targets))
            return original(self, targets, rivals, limits)

        monkeypatch.setattr(way, "settle", spy)
    return calls


def nobody(stage: Stage) -> torch.Tensor:
    return torch.zeros(stage.checker.sweep.count, dtype=torch.bool)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_a_few_certificates_settle_all_that_lie_together(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, list[int]], way: ExactName, domain: str
) -> None:
    monkeypatch.setattr(module, "_LITTLE", 0)
    stage, inner, known = lying_together(domain)
    outcomes = settle(stage.checker, stage.frame, inner, known, way=way)
    assert sorted(outcomes) == inner.tolist()
    for outcome in outcomes.values():
        assert status_of(stage, outcome) == Status.UNARGMAXABLE
    assert sum(map(sum, asked.values())) <= 30


def test_where_classes_cost_little_all_are_solved_at_once(asked: dict[str, list[int]]) -> None:
    stage = Stage.of(*random_layer("biased", 120, 3))
    settle(stage.checker, stage.frame, stage.everyone, nobody(stage))
    assert asked["interior_point"] == [120]


@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_no_more_are_solved_than_asked_for(asked: dict[str, list[int]], domain: str) -> None:
    stage, inner, known = lying_together(domain)
    outcomes = settle(stage.checker, stage.frame, inner, known, most=4)
    assert asked["interior_point"] == [4]
    # What they share settles others, which is what they were solved for.
    assert len(outcomes) > 100
    assert all(status_of(stage, o) == Status.UNARGMAXABLE for o in outcomes.values())


def lying_together(domain: str) -> tuple[Stage, torch.Tensor, torch.Tensor]:
    """300 classes close together within 300 others; the classes, and who the others are."""
    rng = np.random.default_rng(0)
    sphere = rng.normal(size=(300, 4))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    stage = Stage.of(np.concatenate([sphere, 0.02 * rng.normal(size=(300, 4))]), domain=domain)
    known = nobody(stage)
    known[:300] = True
    return stage, torch.arange(300, 600), known


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_one_certificate_settles_all_that_one_simplex_holds(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, list[int]], way: ExactName, domain: str
) -> None:
    """Its vertices are the only rivals to start with, so every certificate is the same simplex."""
    monkeypatch.setattr(module, "working_set_size", lambda dim, count: 5)
    monkeypatch.setattr(module, "_FIRST_BATCH", 1)
    monkeypatch.setattr(module, "_LITTLE", 0)
    weight, inner = enclosed(4, 300)
    stage = Stage.of(weight, domain=domain)
    known = nobody(stage)
    known[:5] = True
    outcomes = settle(stage.checker, stage.frame, inner, known, way=way)
    assert sorted(outcomes) == inner.tolist()
    for outcome in outcomes.values():
        assert status_of(stage, outcome) == Status.UNARGMAXABLE
    assert sum(map(sum, asked.values())) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("domain", ["box:100", "nonnegative:50", "free"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_class_is_settled_and_every_proof_holds(
    kind: str, domain: str, way: ExactName
) -> None:
    stage = Stage.of(*random_layer(kind, 120, 3, seed=4), domain)
    outcomes = settle(stage.checker, stage.frame, stage.everyone, nobody(stage), way=way)
    assert sorted(outcomes) == list(range(120))
    found = [status_of(stage, outcomes[target]) for target in range(120)]
    assert Status.UNDECIDED not in found
    other: ExactName = "cutting_plane" if way == "interior_point" else "interior_point"
    again = settle(stage.checker, stage.frame, stage.everyone, nobody(stage), way=other)
    assert found == [status_of(stage, again[target]) for target in range(120)]


@pytest.mark.parametrize("way", WAYS)
def test_what_one_way_can_not_settle_the_other_does(
    monkeypatch: pytest.MonkeyPatch, way: ExactName
) -> None:
    def fail(
        self: object, targets: torch.Tensor, rivals: torch.Tensor, limits: Limits
    ) -> list[Outcome]:
        return [Outcome(target, reason="numerical") for target in targets.tolist()]

    monkeypatch.setattr(CLASSES[way], "settle", fail)
    stage = Stage.of(*random_layer("biased", 60, 3))
    seen: list[int] = []
    outcomes = settle(
        stage.checker,
        stage.frame,
        stage.everyone,
        nobody(stage),
        way=way,
        limits=Limits(on_progress=seen.append),
    )
    assert all(outcome.settled for outcome in outcomes.values())
    assert sum(seen) == 60


@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_where_both_ways_fail_classes_are_undecided(
    monkeypatch: pytest.MonkeyPatch, domain: str
) -> None:
    def fail(
        self: object, targets: torch.Tensor, rivals: torch.Tensor, limits: Limits
    ) -> list[Outcome]:
        return [Outcome(target, reason="numerical") for target in targets.tolist()]

    for way in CLASSES.values():
        monkeypatch.setattr(way, "settle", fail)
    stage = Stage.of(*random_layer("gaussian", 30, 3), domain)
    outcomes = settle(stage.checker, stage.frame, stage.everyone, nobody(stage))
    assert {status_of(stage, outcome) for outcome in outcomes.values()} == {Status.UNDECIDED}
    weight, bias = random_layer("gaussian", 30, 3)
    report = verify(OutputLayer(weight, bias), domain, patience=0)
    assert report.complete
    assert report.counts["unargmaxable"] == 0
    assert report.counts["undecided"] > 0
    assert any("undecided: numerical" in note for note in report.notes)


@pytest.mark.parametrize("kind", ["gaussian", "biased"])
@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_progress_counts_each_class_once(kind: str, domain: str) -> None:
    stage = Stage.of(*random_layer(kind, 200, 3), domain)
    seen: list[int] = []
    limits = Limits(on_progress=seen.append)
    targets = stage.everyone[::2]
    outcomes = settle(stage.checker, stage.frame, targets, nobody(stage), limits=limits)
    assert sum(seen) == sum(outcome.settled for outcome in outcomes.values()) == 100


def test_nothing_to_do_and_no_time() -> None:
    stage = Stage.of(*random_layer("gaussian", 30, 3))
    none = torch.zeros(0, dtype=torch.int64)
    assert settle(stage.checker, stage.frame, none, nobody(stage)) == {}
    limits = Limits(0.0)
    late = settle(stage.checker, stage.frame, stage.everyone, nobody(stage), limits=limits)
    assert not any(outcome.settled for outcome in late.values())
    assert limits.cut_short


def test_known_classes_are_left_as_they_were_told() -> None:
    stage = Stage.of(*random_layer("gaussian", 60, 3))
    known = nobody(stage)
    settle(stage.checker, stage.frame, stage.everyone, known)
    assert not known.any()


def test_sharing_that_bears_no_fruit_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def fruitless(checker: object, outcome: Outcome, targets: torch.Tensor) -> list[Outcome]:
        tried.append(outcome.target)
        return []

    monkeypatch.setattr(module, "share", fruitless)
    monkeypatch.setattr(module, "_LITTLE", 0)
    weight, inner = enclosed(4, 60)
    stage = Stage.of(weight)
    outcomes = settle(stage.checker, stage.frame, inner, nobody(stage))
    assert all(outcome.settled for outcome in outcomes.values())
    assert len(tried) == module._FRUITLESS


@pytest.mark.parametrize("kind", ["biased", "ties"])
@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_verify_twice_gives_the_same_bits(kind: str, domain: str) -> None:
    weight, bias = random_layer(kind, 150, 4)
    one, other = (verify(OutputLayer(weight, bias), domain) for _ in range(2))
    for name, value in vars(one).items():
        if isinstance(value, np.ndarray):
            assert value.tobytes() == getattr(other, name).tobytes(), name
    for name, value in vars(one.proofs).items():
        if isinstance(value, np.ndarray):
            assert value.tobytes() == getattr(other.proofs, name).tobytes(), name
    assert one.min_lead == other.min_lead


def test_thousands_that_lie_together_are_neither_searched_nor_solved_one_by_one(
    asked: dict[str, list[int]],
) -> None:
    rng = np.random.default_rng(0)
    sphere = rng.normal(size=(3000, 24))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    weight = np.concatenate([sphere, 1e-6 * rng.normal(size=(2000, 24))])
    report = verify(OutputLayer(weight))
    assert report.counts["unargmaxable"] == 2000
    assert report.counts["undecided"] == 0
    assert sum(map(sum, asked.values())) <= 16
    assert int(report.reflections[3000:].max()) <= 5
