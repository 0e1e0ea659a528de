from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from tests.search import KINDS, Stage, random_layer
from tests.shared_data import load_snapshot, needs_shared
from unarg_callback import Domain, OutputLayer
from unarg_callback.geometry.checker import Checker
from unarg_callback.search.deepen import Deepened, deepen
from unarg_callback.search.frame import whitening_frame
from unarg_callback.search.interior_point import InteriorPoint
from unarg_callback.search.limits import Limits
from unarg_callback.search.working_set import Neighbours

UNEQUAL = Domain.box([-1.0, -7.0, -0.5, -3.0], [4.0, 2.0, 0.25, 3.0])


def best_leads(stage: Stage, targets: torch.Tensor | None = None) -> torch.Tensor:
    """(n,) best leads, each by one linear program over all rivals; default of all classes."""
    weight = stage.layer.rows(stage.layer.active).numpy()
    bias = stage.layer.biases(stage.layer.active).numpy()
    low, high = stage.checker.domain.bounds(stage.layer.dim)
    # HiGHS's tolerances are absolute.
    scale = max(np.abs(weight).max(), np.abs(bias).max())
    best = []
    for at in (stage.everyone if targets is None else targets).tolist():
        others = np.arange(len(weight)) != at
        result = linprog(
            [0.0] * stage.layer.dim + [-1.0],
            A_ub=np.hstack([(weight[others] - weight[at]) / scale, np.ones((others.sum(), 1))]),
            b_ub=(bias[at] - bias[others]) / scale,
            bounds=[*zip(low, high, strict=True), (None, None)],
            method="highs",
        )
        assert result.x is not None
        best.append(float(result.x[-1]) * scale)
    return torch.tensor(best, dtype=torch.float64)


def run(
    stage: Stage,
    targets: torch.Tensor,
    leads: torch.Tensor,
    limits: Limits | None = None,
) -> Deepened:
    """Deepen, and check all that can be checked without knowing the best leads."""
    count = stage.checker.sweep.count
    known = torch.ones(count, dtype=torch.bool)
    neighbours = Neighbours(stage.checker.sweep, stage.frame)
    found = deepen(stage.checker, stage.frame, neighbours, targets, leads, known, limits=limits)
    assert found.points.dtype == stage.checker.sweep.dtype
    assert found.points.shape == (len(found.targets), stage.layer.dim)
    assert found.bound.shape == targets.shape
    assert found.lead.dtype == found.bound.dtype == torch.float64
    position = [targets.tolist().index(t) for t in found.targets.tolist()]
    assert position == sorted(position)
    assert bool((found.lead > 1.05 * leads[position]).all())
    assert bool((found.lead <= found.bound[position]).all())
    assert bool(stage.checker.witnesses(found.targets, found.points).accepted.all())
    fresh = Checker(stage.layer, stage.checker.domain, stage.checker.min_lead, torch.float64)
    again = fresh.witnesses(found.targets, found.points.double())
    assert bool(again.accepted.all())
    torch.testing.assert_close(again.lead, found.lead, rtol=1e-9, atol=0.0)
    return found


def deepen_all(stage: Stage, most: int = 1000) -> int:
    """Deepen the argmaxable classes from a tenth of their best lead; return how many there are."""
    targets = stage.everyone[:most]
    best = best_leads(stage, targets)
    targets, best = targets[best > 1e-6 * best.abs().max()], best[best > 1e-6 * best.abs().max()]
    found = run(stage, targets, 0.1 * best)
    assert bool((found.bound >= best * (1 - 1e-7)).all())
    assert bool((found.bound <= best * 1.5).all())
    assert torch.equal(found.targets, targets)
    assert bool((found.lead >= 0.6 * best).all())
    assert not len(best) or float((found.lead / best).median()) > 0.8
    return len(targets)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", ["box:100", "box:-1,3", "nonnegative:50"])
def test_leads_are_near_the_best_and_bounds_above_it(kind: str, domain: str) -> None:
    sizes = ((2, 60), (4, 90), (9, 110))
    layers = [random_layer(kind, classes, dim, seed=dim) for dim, classes in sizes]
    assert sum(deepen_all(Stage.of(*layer, domain)) for layer in layers) >= 5


@pytest.mark.parametrize("kind", ["gaussian", "biased"])
def test_more_rivals_than_the_working_set(kind: str) -> None:
    assert deepen_all(Stage.of(*random_layer(kind, 700, 6), "box:100"), most=80)


@pytest.mark.parametrize("kind", KINDS)
def test_a_box_with_unequal_sides(kind: str) -> None:
    layer = OutputLayer(*random_layer(kind, 90, 4))
    checker = Checker(layer, UNEQUAL)
    deepen_all(Stage(layer, checker, whitening_frame(checker.sweep)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_dtypes_of_the_sweep(dtype: torch.dtype) -> None:
    deepen_all(Stage.of(*random_layer("biased", 90, 4), dtype=dtype))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_any_scale(scale: float) -> None:
    weight, bias = random_layer("biased", 60, 3)
    assert bias is not None
    deepen_all(Stage.of(weight * scale, bias * scale))


def test_one_dimension() -> None:
    deepen_all(Stage.of(*random_layer("biased", 30, 1)))
    deepen_all(Stage.of(np.array([[1.0], [0.0], [-1.0]]), np.array([0.0, 3.0, 0.0])))


def test_two_classes_have_one_rival_each() -> None:
    """The difference is (1, 2) . x - 1, at most 29 and at least -31 in the box."""
    stage = Stage.of(np.array([[2.0, 3.0], [1.0, 1.0]]), np.array([0.0, 1.0]), "box:10")
    found = run(stage, torch.tensor([0, 1]), torch.tensor([0.5, 0.5], dtype=torch.float64))
    torch.testing.assert_close(found.lead, torch.tensor([29.0, 31.0]).double(), rtol=0.3, atol=0)
    assert 29 <= float(found.bound[0]) < 40


def test_the_fixed_corner_of_a_square() -> None:
    """By symmetry the corner (1, 1) leads most at (10, 10): by 20 over its neighbours."""
    square = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    found = run(Stage.of(square, domain="box:10"), torch.tensor([0]), torch.zeros(1).double())
    assert 17 < float(found.lead[0]) <= 20 <= float(found.bound[0]) < 23


def test_a_single_class_has_no_lead() -> None:
    stage = Stage.of(np.ones((1, 2)))
    found = run(stage, torch.tensor([0]), torch.zeros(1).double())
    assert not len(found.targets)
    assert torch.isinf(found.bound).all()


def test_one_target_no_target_and_any_order() -> None:
    stage = Stage.of(*random_layer("gaussian", 60, 3))
    best = best_leads(stage)
    some = (best > 0.1 * best.max()).nonzero().squeeze(1).flip(0)
    together = run(stage, some, 0.1 * best[some])
    assert torch.equal(together.targets, some)
    for at, target in enumerate(some):
        alone = run(stage, target[None], 0.1 * best[target][None])
        assert torch.equal(alone.targets, target[None])
        torch.testing.assert_close(alone.lead[0], together.lead[at])
    nobody = run(stage, some[:0], best[:0])
    assert not len(nobody.targets)
    assert not len(nobody.bound)


def test_classes_near_their_best_lead_are_left_alone_and_bounded() -> None:
    stage = Stage.of(*random_layer("gaussian", 60, 3))
    best = best_leads(stage)
    targets = (best > 0.1 * best.max()).nonzero().squeeze(1)
    found = run(stage, targets, best[targets])
    assert not len(found.targets)
    assert bool((found.bound >= best[targets]).all())
    assert bool((found.bound <= 2 * best[targets]).all())


def test_unargmaxable_targets_are_bounded_and_get_no_witness() -> None:
    """Nobody asks for them, but a report may be wrong about a layer that has changed since."""
    stage = Stage.of(*random_layer("biased", 80, 3))
    best = best_leads(stage)
    targets = (best < -1.0).nonzero().squeeze(1)
    assert len(targets)
    found = run(stage, targets, torch.full((len(targets),), -torch.inf, dtype=torch.float64))
    assert not len(found.targets)
    assert bool((found.bound >= best[targets]).all())


def test_excluded_classes_are_no_rivals() -> None:
    """Without the corners of the square, the middles of its edges lead by more than nothing."""
    rows = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [1, 0], [-1, 0], [0, 1], [0, -1]])
    deepen_all(Stage.of(rows, excluded=(0, 1, 2, 3)))


@pytest.mark.parametrize("domain", ["box:0", "box:1,1"])
def test_a_box_of_one_point(domain: str) -> None:
    stage = Stage.of(np.array([[1.0, 0], [0, 1], [-1, -1]]), np.array([1.0, 3, 2]), domain)
    best = best_leads(stage)
    targets = (best > 0).nonzero().squeeze(1)
    found = run(stage, targets, 0.1 * best[targets])
    torch.testing.assert_close(found.lead, best[targets], rtol=1e-6, atol=0.0)


def test_the_free_domain_has_nothing_to_find() -> None:
    stage = Stage.of(*random_layer("gaussian", 40, 3), "free")
    found = run(stage, stage.everyone, torch.zeros(40).double())
    assert not len(found.targets)
    assert torch.isinf(found.bound).all()


def test_out_of_time_nothing_is_found() -> None:
    stage = Stage.of(*random_layer("gaussian", 50, 3))
    limits = Limits(0.0)
    found = run(stage, stage.everyone, torch.zeros(50).double(), limits)
    assert not len(found.targets)
    assert torch.isinf(found.bound).all()
    assert limits.cut_short


class After(Limits):
    """Limits that are reached after so many looks at the clock."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def reached(self) -> bool:
        self.looks -= 1
        self.cut_short |= self.looks < 0
        return self.cut_short


def test_what_was_found_before_the_limit_is_kept() -> None:
    stage = Stage.of(*random_layer("gaussian", 400, 8))
    leads = torch.full((400,), 1e-3, dtype=torch.float64)
    counts = []
    for looks in (1, 8, 20, 1000):
        found = run(stage, stage.everyone, leads, After(looks))
        counts.append(len(found.targets))
    assert 0 < counts[0] <= counts[1] <= counts[2] <= counts[3]


def test_a_failing_solver_gives_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: InteriorPoint) -> torch.Tensor:
        return torch.zeros(len(self.lead), dtype=torch.bool)

    monkeypatch.setattr(InteriorPoint, "step", fail)
    stage = Stage.of(*random_layer("biased", 50, 3))
    best = best_leads(stage)
    found = run(stage, stage.everyone, torch.zeros(50).double())
    assert bool((found.bound >= best - 1e-9 * best.abs()).all())


def test_a_solver_of_nonsense_gives_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.manual_seed(0)

    def lie(self: InteriorPoint) -> torch.Tensor:
        nan = torch.tensor(torch.nan, dtype=torch.float64)
        shape = self.primal.shape
        self.primal = torch.randn(shape, dtype=torch.float64, generator=generator)
        self.primal[::5] = nan
        self.weight = torch.randn(self.weight.shape, dtype=torch.float64, generator=generator)
        self.weight[::7] = nan
        return torch.ones(len(self.lead), dtype=torch.bool)

    monkeypatch.setattr(InteriorPoint, "step", lie)
    stage = Stage.of(*random_layer("biased", 50, 3))
    best = best_leads(stage)
    found = run(stage, stage.everyone, torch.zeros(50).double())
    assert bool((found.bound >= best - 1e-9 * best.abs()).all())


def test_the_same_again() -> None:
    stage = Stage.of(*random_layer("biased", 90, 4))
    one, other = (run(stage, stage.everyone, torch.zeros(90).double()) for _ in range(2))
    for name in Deepened.__dataclass_fields__:
        assert torch.equal(getattr(one, name), getattr(other, name))


@needs_shared
def test_rare_tokens_of_a_real_layer() -> None:
    """From the witness that the search starts with to clearly larger leads, near the bound."""
    weight, bias = load_snapshot("ru64_550")
    layer = OutputLayer(weight, bias)
    checker = Checker(layer, Domain.box(100.0))
    stage = Stage(layer, checker, whitening_frame(checker.sweep))
    targets = torch.arange(20000, 20060)
    start = stage.frame.start(checker.sweep.rows(targets))
    points = (100 * start / start.abs().amax(1, keepdim=True)).float().clamp(-100, 100)
    leads = checker.witnesses(targets, points).lead
    found = run(stage, targets, leads)
    assert len(found.targets) == len(targets)
    assert float((found.lead / leads).median()) > 1.5
    assert float((found.lead / found.bound).median()) > 0.8
