from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.search import KINDS, Floats, Stage, random_layer, status_of
from unarg_callback import Status
from unarg_callback.search.batched import BatchedInteriorPoint
from unarg_callback.search.certify import certifier_of
from unarg_callback.search.cutting_plane import CuttingPlane
from unarg_callback.search.exact import Outcome, Window
from unarg_callback.search.interior_point import InteriorPoint
from unarg_callback.search.limits import Limits
from unarg_callback.search.linear_program import LinearProgram
from unarg_callback.search.working_set import Neighbours

WAYS: list[type[BatchedInteriorPoint] | type[CuttingPlane]] = [BatchedInteriorPoint, CuttingPlane]


def settle(
    way: type[BatchedInteriorPoint] | type[CuttingPlane],
    stage: Stage,
    targets: torch.Tensor | None = None,
    rivals: int = 64,
    limits: Limits | None = None,
) -> list[Outcome]:
    """All classes by one way alone, from a working set of the nearest rows."""
    targets = stage.everyone if targets is None else targets
    known = torch.zeros(stage.checker.sweep.count, dtype=torch.bool)
    rivals = min(rivals, stage.checker.sweep.count - 1)
    seeds = Neighbours(stage.checker.sweep, stage.frame).of(targets, known, rivals)
    window = Window.of(stage.checker, stage.frame)
    certifier = certifier_of(stage.checker, stage.frame)
    outcomes = way(stage.checker, window, certifier).settle(targets, seeds, limits or Limits())
    assert [outcome.target for outcome in outcomes] == targets.tolist()
    return outcomes


@pytest.mark.parametrize("domain", ["box:100", "box:-1,3", "nonnegative:50", "free"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_give_every_class_the_same_proven_verdict(kind: str, domain: str) -> None:
    settled = 0
    for dim, classes in ((2, 60), (4, 90), (9, 70)):
        stage = Stage.of(*random_layer(kind, classes, dim, seed=dim), domain)
        verdicts = [[status_of(stage, o) for o in settle(way, stage)] for way in WAYS]
        for interior, simplex in zip(*verdicts, strict=True):
            # Undecided is allowed, another verdict is not; see the counts below.
            assert Status.UNDECIDED in (interior, simplex) or interior == simplex
        settled += sum(status != Status.UNDECIDED for status in verdicts[0])
        assert all(status != Status.UNDECIDED for status in verdicts[1])
    # Without a box, a tie is exact: the interior point leaves some to the simplex method.
    assert settled >= (220 if domain != "free" else 200)


def test_sixteen_dimensions() -> None:
    stage = Stage.of(*random_layer("gaussian", 500, 16), "box:100")
    one, other = (
        [status_of(stage, o) for o in settle(way, stage, torch.arange(40))] for way in WAYS
    )
    assert one == other
    assert Status.UNDECIDED not in one


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rivals", [1, 2, 5])
def test_a_working_set_that_starts_too_small_grows_or_changes(
    way: type[BatchedInteriorPoint] | type[CuttingPlane], rivals: int
) -> None:
    """The simplex method adds rows; the interior point's set has a fixed size, and may give up."""
    stage = Stage.of(*random_layer("biased", 60, 3))
    expected = [status_of(stage, o) for o in settle(CuttingPlane, stage)]
    found = [status_of(stage, o) for o in settle(way, stage, rivals=rivals)]
    if way is CuttingPlane:
        assert found == expected
    for one, other in zip(found, expected, strict=True):
        assert one in (other, Status.UNDECIDED)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_excluded_classes_are_no_rivals(
    way: type[BatchedInteriorPoint] | type[CuttingPlane], domain: str
) -> None:
    """The corners of a square take no part: the edges' middles lead."""
    square = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [1, 0], [-1, 0], [0, 1], [0, -1]])
    inner = np.array([[0.1, 0.2]])
    stage = Stage.of(np.concatenate([square, inner]), domain=domain, excluded=(0, 1, 2, 3))
    found = [status_of(stage, outcome) for outcome in settle(way, stage)]
    assert found == [Status.ARGMAXABLE] * 4 + [Status.UNARGMAXABLE]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_out_of_time_nothing_is_settled(
    way: type[BatchedInteriorPoint] | type[CuttingPlane], domain: str
) -> None:
    stage = Stage.of(*random_layer("gaussian", 50, 3), domain)
    limits = Limits(0.0)
    for outcome in settle(way, stage, limits=limits):
        assert not outcome.settled
        assert "limit" in outcome.reason
    assert limits.cut_short


@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_an_interior_point_that_fails_leaves_classes_undecided(
    monkeypatch: pytest.MonkeyPatch, domain: str
) -> None:
    def fail(self: InteriorPoint) -> torch.Tensor:
        return torch.zeros(len(self.lead), dtype=torch.bool)

    monkeypatch.setattr(InteriorPoint, "step", fail)
    stage = Stage.of(*random_layer("biased", 50, 3), domain)
    outcomes = settle(BatchedInteriorPoint, stage)
    assert not all(outcome.settled for outcome in outcomes)
    for outcome in outcomes:
        status_of(stage, outcome)  # A lucky start may prove something, and then it holds.


def test_an_interior_point_of_nonsense_proves_nothing_false(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage.of(*random_layer("biased", 50, 3))
    expected = [status_of(stage, o) for o in settle(CuttingPlane, stage)]
    generator = torch.manual_seed(0)

    def lie(self: InteriorPoint) -> torch.Tensor:
        dtype = self.primal.dtype
        self.primal = torch.randn(self.primal.shape, dtype=dtype, generator=generator)
        self.weight = torch.rand(self.weight.shape, dtype=dtype, generator=generator)
        self.pull = torch.full_like(self.pull, -1e-3)
        return torch.ones(len(self.lead), dtype=torch.bool)

    monkeypatch.setattr(InteriorPoint, "step", lie)
    for outcome, truth in zip(settle(BatchedInteriorPoint, stage), expected, strict=True):
        assert status_of(stage, outcome) in (truth, Status.UNDECIDED)


@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_a_simplex_method_that_fails_leaves_all_undecided(
    monkeypatch: pytest.MonkeyPatch, domain: str
) -> None:
    monkeypatch.setattr(LinearProgram, "solve", lambda self, seconds=1.0: None)
    stage = Stage.of(*random_layer("gaussian", 40, 3), domain)
    for outcome in settle(CuttingPlane, stage):
        assert not outcome.settled
        assert outcome.reason


def test_without_highs_the_free_domain_is_undecided_for_all_that_lose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage.of(*random_layer("gaussian", 40, 3), "free")
    expected = [status_of(stage, o) for o in settle(CuttingPlane, stage)]
    monkeypatch.setattr(LinearProgram, "solve", lambda self, seconds=1.0: None)
    for outcome, truth in zip(settle(BatchedInteriorPoint, stage), expected, strict=True):
        assert status_of(stage, outcome) in (truth, Status.UNDECIDED)
        assert outcome.support is None


def outcome_key(outcome: Outcome) -> tuple[int, bytes, bytes, bytes, str]:
    return (
        outcome.target,
        b"" if outcome.point is None else outcome.point.numpy().tobytes(),
        b"" if outcome.support is None else outcome.support.tobytes(),
        b"" if outcome.weight is None else outcome.weight.tobytes(),
        outcome.reason,
    )


@pytest.mark.parametrize("way", WAYS)
def test_the_same_again(way: type[BatchedInteriorPoint] | type[CuttingPlane]) -> None:
    stage = Stage.of(*random_layer("biased", 60, 4))
    one, other = (list(map(outcome_key, settle(way, stage))) for _ in range(2))
    assert one == other


def degenerate() -> dict[str, tuple[Floats, Floats | None]]:
    rng = np.random.default_rng(0)
    return {
        "all rows equal": (np.full((6, 3), 0.7), None),
        "all rows equal but for the bias": (np.full((6, 3), 0.7), np.arange(6.0)),
        "zeros": (np.zeros((5, 2)), None),
        "one dimension": (rng.normal(size=(30, 1)), rng.normal(size=30)),
        "two classes": (np.array([[1.0, 2.0], [1.0, 1.0]]), np.array([0.0, 1.0])),
        "two equal classes": (np.array([[1.0, 2.0], [1.0, 2.0]]), None),
        "a zero column": (np.insert(rng.normal(size=(20, 2)), 1, 0.0, axis=1), None),
        "tiny": (rng.normal(size=(30, 3)) * 1e-30, rng.normal(size=30) * 1e-30),
        "huge": (rng.normal(size=(30, 3)) * 1e30, rng.normal(size=30) * 1e30),
    }


@pytest.mark.parametrize("domain", ["box:100", "box:0", "box:1,2", "free"])
@pytest.mark.parametrize("name", degenerate())
def test_degenerate_layers(name: str, domain: str) -> None:
    stage = Stage.of(*degenerate()[name], domain)
    one, other = ([status_of(stage, o) for o in settle(way, stage)] for way in WAYS)
    for interior, simplex in zip(one, other, strict=True):
        assert Status.UNDECIDED in (interior, simplex) or interior == simplex
        assert {interior, simplex} != {Status.UNDECIDED}
