"""Bounds on the leads of witnesses after a layer has moved: never above the exact lead."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tests.independent import ExactLayer
from unarg_callback import OutputLayer
from unarg_callback.search import screen as module
from unarg_callback.search.screen import screen

Floats = NDArray[np.float64]
Rng = np.random.Generator

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
CHANGES = (
    "small",
    "large",
    "tiny",
    "none",
    "common",
    "common and small",
    "one fast row",
    "fast and slow",
    "rank one",
    "one feature",
    "one bias",
    "biases",
    "grown",
)
POINTS = ("gaussian", "rows", "corners", "near zero", "spread")


def changed(change: str, weight: Floats, bias: Floats, rng: Rng) -> tuple[Floats, Floats]:
    """The layer after a change of one of the kinds in ``CHANGES``."""
    classes, dim, size = len(weight), weight.shape[1], float(np.abs(weight).max())
    noise = rng.normal(size=weight.shape) * size
    one = int(rng.integers(classes))
    row: Floats = np.zeros_like(weight)
    offset: Floats = np.zeros(classes)
    if change in ("small", "large", "tiny"):
        share = {"small": 1e-2, "large": 3.0, "tiny": 1e-7}[change]
        row, offset = share * noise, share * rng.normal(size=classes)
    elif change.startswith("common"):
        row, offset = np.tile(noise[0] * 50, (classes, 1)), np.full(classes, 30.0)
        row = row + 1e-3 * noise * ("small" in change)
    elif change == "one fast row":
        row = 1e-3 * noise
        row[one] = noise[one]
    elif change == "fast and slow":
        row = noise * 10.0 ** -rng.integers(0, 8, (classes, 1))
    elif change == "rank one":
        row = 0.1 * size * np.outer(rng.normal(size=classes), rng.normal(size=dim))
    elif change == "one feature":
        row[:, int(rng.integers(dim))] = 0.1 * noise[:, 0]
    elif change == "one bias":
        # The slowest row of all, and its bias alone decides.
        row = 1e-2 * noise
        row[one], offset[one] = row.mean(0), 20.0
    elif change == "biases":
        offset = 0.3 * rng.normal(size=classes)
    elif change == "grown":
        row = 0.5 * weight
    return weight + row, bias + offset * (np.abs(bias).max() or 1.0)


def some_points(kind: str, weight: Floats, count: int, rng: Rng) -> Floats:
    """(count, d) points of one of the kinds in ``POINTS``."""
    points = rng.normal(size=(count, weight.shape[1]))
    if kind == "rows":
        return weight[rng.integers(len(weight), size=count)] / np.abs(weight).max() + 0.1 * points
    if kind == "corners":
        return np.sign(points) * 100.0
    if kind == "near zero":
        return points * 10.0 ** rng.uniform(-30, -5, (count, 1))
    if kind == "spread":
        return points * 10.0 ** rng.uniform(-4, 4, (count, 1))
    return points


@dataclass(frozen=True, eq=False)
class Case:
    """Two layers, and points with classes whose leads there are known in the first."""

    old: OutputLayer
    new: OutputLayer
    targets: Tensor
    points: Tensor

    @classmethod
    def of(
        cls,
        change: str,
        seed: int = 0,
        *,
        shape: tuple[int, int] = (40, 4),
        dtype: torch.dtype = torch.float32,
        with_bias: bool = True,
        kind: str = "gaussian",
        count: int = 24,
        units: Floats | float = 1.0,
        scale: float = 1.0,
        excluded: tuple[int, ...] = (),
        wide_points: bool = False,
    ) -> Case:
        """A seeded case; classes that win at their point, and some that don't."""
        rng = np.random.default_rng(seed)
        weight, bias = rng.normal(size=shape), rng.normal(size=shape[0])
        points = some_points(kind, weight, count, rng)
        weights = weight, changed(change, weight, bias, rng)[0]
        biases = (bias, changed(change, weight, bias, np.random.default_rng(seed))[1])
        layers = [
            OutputLayer(
                torch.from_numpy(w * units * scale).to(dtype),
                torch.from_numpy(b * scale).to(dtype) if with_bias else None,
                excluded=excluded,
            )
            for w, b in zip(weights, biases, strict=True)
        ]
        reach = torch.from_numpy(points / units).to(torch.float64 if wide_points else torch.float32)
        active = layers[0].active
        logits = reach.double() @ layers[0].rows(active).T + layers[0].biases(active)
        targets = logits.argmax(1)
        targets[::5] = torch.from_numpy(rng.integers(len(active), size=len(targets[::5])))
        return cls(layers[0], layers[1], targets, reach)

    def exact(self, layer: OutputLayer) -> list[Fraction]:
        """Leads in one of the layers."""
        bias = None if layer.bias is None else layer.bias.double().numpy()
        exact = ExactLayer(layer.weight.double().numpy(), bias, layer.excluded)
        ids = layer.active[self.targets].tolist()
        leads, _ = exact.leads(ids, self.points.double().numpy())
        return [lead for lead in leads if lead is not None]

    @property
    def known(self) -> Tensor:
        """(n,) leads in the old layer, rounded down."""
        leads = [np.nextafter(float(lead), -np.inf) for lead in self.exact(self.old)]
        return torch.tensor(leads, dtype=torch.float64)

    def screened(self, above: float = 0.0) -> Tensor:
        return screen(self.old, self.new, self.targets, self.points, self.known, above)

    def require_sound(self, above: float = 0.0) -> Tensor:
        """The bounds, none above the exact lead."""
        lower = self.screened(above)
        assert lower.dtype == torch.float64
        assert not lower.isnan().any()
        leads = self.exact(self.new)
        assert len(leads) == len(lower)
        for at, (bound, lead) in enumerate(zip(lower.tolist(), leads, strict=True)):
            assert bound == -np.inf or Fraction(bound) <= lead, f"{at}: {bound} > {float(lead)}"
        return lower


@settings(deadline=None, print_blob=True, max_examples=200)
@given(
    change=st.sampled_from(CHANGES),
    kind=st.sampled_from(POINTS),
    dtype=st.sampled_from(DTYPES),
    classes=st.sampled_from([2, 3, 15, 16, 17, 60, 300]),
    dim=st.sampled_from([1, 2, 5, 12]),
    with_bias=st.booleans(),
    wide_points=st.booleans(),
    above=st.sampled_from([0.0, 1e-3, 5.0]),
    seed=st.integers(0, 10**6),
)
def test_no_bound_is_above_the_exact_lead(
    change: str,
    kind: str,
    dtype: torch.dtype,
    classes: int,
    dim: int,
    with_bias: bool,
    wide_points: bool,
    above: float,
    seed: int,
) -> None:
    case = Case.of(
        change,
        seed,
        shape=(classes, dim),
        dtype=dtype,
        with_bias=with_bias,
        kind=kind,
        wide_points=wide_points,
    )
    assert case.require_sound(above).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_in_every_dtype(change: str, dtype: torch.dtype, with_bias: bool) -> None:
    for kind in POINTS:
        Case.of(change, 3, dtype=dtype, with_bias=with_bias, kind=kind).require_sound()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("change", ["small", "tiny", "one fast row"])
def test_most_witnesses_survive_a_small_change(change: str, dtype: torch.dtype) -> None:
    case = Case.of(change, 1, shape=(300, 8), dtype=dtype, kind="rows", count=200)
    lower = case.require_sound()
    led = case.known > 0
    assert int(led.sum()) > 150
    share = float((lower > 0)[led].double().mean())
    assert share > {"small": 0.5, "tiny": 0.99, "one fast row": 0.4}[change]


@pytest.mark.parametrize("change", ["small", "large", "fast and slow", "one fast row"])
def test_features_in_very_different_units(change: str) -> None:
    units = 10.0 ** np.linspace(-12, 12, 6)
    for seed in range(5):
        for dtype in (torch.float32, torch.float64):
            case = Case.of(change, seed, shape=(50, 6), dtype=dtype, units=units)
            lower = case.require_sound()
            assert lower.isfinite().all()
            assert change != "small" or int((lower > 0).sum()) >= 4


def test_units_of_features_cost_next_to_nothing() -> None:
    plain = Case.of("small", 2, shape=(200, 6), dtype=torch.float64)
    units = 2.0 ** np.array([-40, -17, 0, 9, 30, 40])
    other = Case.of("small", 2, shape=(200, 6), dtype=torch.float64, units=units)
    assert int((plain.screened() > 0).sum()) > 5
    torch.testing.assert_close(other.screened(), plain.screened(), rtol=0.2, atol=0.05)


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e-6, 1e6, 1e20, 1e35])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_bias", [True, False])
def test_large_and_small_magnitudes(scale: float, dtype: torch.dtype, with_bias: bool) -> None:
    for change in ("small", "common and small", "fast and slow"):
        case = Case.of(change, 4, dtype=dtype, with_bias=with_bias, scale=scale)
        case.require_sound()
    lower = Case.of("small", 4, dtype=dtype, with_bias=with_bias, scale=scale).screened()
    most = 1e7 if dtype == torch.float32 else 1e30
    assert int((lower > 0).sum()) >= 8 or not 1 / most < scale < most


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e60, 1e150, 1e300])
def test_beyond_float32_there_is_no_bound_or_a_right_one(scale: float) -> None:
    for change in ("small", "common", "one fast row", "none"):
        for wide in (True, False):
            case = Case.of(change, 4, dtype=torch.float64, scale=scale, wide_points=wide)
            case.require_sound()
            units = Case.of(change, 4, dtype=torch.float64, units=scale**0.5, wide_points=True)
            units.require_sound()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", POINTS)
def test_without_a_change_the_leads_stay(dtype: torch.dtype, kind: str) -> None:
    case = Case.of("none", 5, dtype=dtype, kind=kind)
    lower, known = case.require_sound(), case.known
    assert bool((lower >= known - 1e-14 * known.abs() - 1e-30).all())


def test_an_offset_that_all_rows_share_costs_only_rounding() -> None:
    """Powers of two and integers, so that the layer holds the sums exactly."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-8, 9, size=(100, 4)).astype(float)
    moved = weight + np.array([1024.0, -512.0, 64.0, 2048.0])
    points = torch.from_numpy(rng.normal(size=(60, 4)).astype(np.float32))
    targets = (points.double() @ torch.from_numpy(weight).T).argmax(1)
    for dtype, error in ((torch.float32, 0.1), (torch.float64, 1e-9)):
        layers = [OutputLayer(torch.from_numpy(w).to(dtype)) for w in (weight, moved)]
        case = Case(layers[0], layers[1], targets, points)
        lower = case.require_sound()
        assert bool((lower >= case.known - error).all())


@pytest.mark.parametrize("above_share", [0.5, 0.99])
def test_where_few_rows_move_every_witness_that_can_be_settled_is(above_share: float) -> None:
    """The bound that the definition gives, from all rows, for comparison."""
    rng = np.random.default_rng(7)
    weight = rng.normal(size=(2000, 8))
    fast = rng.choice(2000, 12, replace=False)
    moved = weight.copy()
    moved[fast] += rng.normal(size=(12, 8))
    points = torch.from_numpy(rng.normal(size=(60, 8)).astype(np.float32))
    targets = torch.from_numpy(weight) @ points.double().T
    layers = [OutputLayer(torch.from_numpy(w)) for w in (weight, moved)]
    case = Case(layers[0], layers[1], targets.argmax(0), points)
    known, settled = case.known, 0
    change = torch.from_numpy(moved - weight) @ points.double().T
    for at, target in enumerate(case.targets.tolist()):
        others = torch.cat([change[:target, at], change[target + 1 :, at]])
        ideal = float(known[at] + change[target, at] - others.amax())
        if ideal <= 0:
            continue
        one = slice(at, at + 1)
        above = above_share * ideal
        lower = screen(layers[0], layers[1], case.targets[one], points[one], known[one], above)
        settled += 1
        assert above < float(lower[0]) <= ideal
    assert settled >= 3


def test_excluded_classes_take_no_part() -> None:
    """Their rows may hold anything, and classes are numbered without them."""
    out = (0, 3, 7, 39)
    plain = Case.of("fast and slow", 6, excluded=out)
    plain.require_sound()
    weights = [layer.weight.clone() for layer in (plain.old, plain.new)]
    weights[0][list(out)], weights[1][list(out)] = torch.nan, torch.inf
    layers = [
        OutputLayer(weight, layer.bias, excluded=out)
        for weight, layer in zip(weights, (plain.old, plain.new), strict=True)
    ]
    other = screen(layers[0], layers[1], plain.targets, plain.points, plain.known, 0.0)
    assert torch.equal(other, plain.screened())
    for seed in range(20):
        for change in ("one fast row", "one bias", "large"):
            Case.of(change, seed, excluded=out).require_sound()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_points_that_are_not_finite_have_no_bound(value: float) -> None:
    case = Case.of("small", 8)
    bad = [2, 11, 17]
    points = case.points.clone()
    points[bad, 1] = value
    lower = screen(case.old, case.new, case.targets, points, case.known, 0.0)
    assert (lower[bad] == -torch.inf).all()
    good = torch.ones(len(lower), dtype=torch.bool)
    good[bad] = False
    assert lower[good].isfinite().all()
    for at in good.nonzero().squeeze(1).tolist():
        assert Fraction(float(lower[at])) <= case.exact(case.new)[at]


def test_leads_that_are_not_known_have_no_bound() -> None:
    case = Case.of("small", 8)
    known = case.known
    known[:3] = torch.tensor([torch.nan, -torch.inf, torch.inf])
    lower = screen(case.old, case.new, case.targets, case.points, known, 0.0)
    assert (lower[:3] == -torch.inf).all()
    assert lower[3:].isfinite().all()


def test_without_float32_products_there_is_no_bound() -> None:
    case = Case.of("tiny", 9)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert (case.screened() == -torch.inf).all()
    finally:
        torch.set_float32_matmul_precision(before)
    assert int((case.screened() > 0).sum()) > 10


def test_nobody_to_screen() -> None:
    case = Case.of("small", 0)
    none = torch.zeros(0, dtype=torch.int64)
    leads = torch.zeros(0, dtype=torch.float64)
    assert screen(case.old, case.new, none, case.points[:0], leads, 0.0).shape == (0,)


def test_a_part_of_the_classes_and_the_same_one_twice() -> None:
    case = Case.of("small", 10, shape=(80, 3), count=10)
    twice = torch.arange(10).repeat_interleave(2)
    doubled = Case(case.old, case.new, case.targets[twice], case.points[twice])
    lower = doubled.require_sound()
    assert torch.equal(lower[::2], lower[1::2])
    again = doubled.screened()
    assert torch.equal(lower, again)


@pytest.mark.parametrize("change", CHANGES)
def test_two_classes(change: str) -> None:
    for seed in range(6):
        case = Case.of(change, seed, shape=(2, 3))
        case.require_sound()
        # Both rows are compared where that is needed: what is lost is rounding alone.
        above = float(sorted(case.exact(case.new))[-1])
        above -= 0.05 if change.startswith("common") else 1e-3
        assert int((case.require_sound(above) > above).sum()) >= 1


def test_duplicated_rows() -> None:
    case = Case.of("small", 11, shape=(40, 3))
    layers = [
        OutputLayer(layer.weight.repeat(2, 1), torch.cat([layer.bias, layer.bias]))
        for layer in (case.old, case.new)
        if layer.bias is not None
    ]
    twins = Case(layers[0], layers[1], case.targets, case.points)
    lower = twins.require_sound()
    assert bool((lower <= 0).all())
    parted = layers[1].weight.clone()
    parted[:40] += 1.0
    Case(layers[0], OutputLayer(parted, layers[1].bias), case.targets, case.points).require_sound()


def test_layers_of_different_dtypes_and_a_bias_that_comes_or_goes() -> None:
    case = Case.of("small", 12)
    half = OutputLayer(case.old.weight.to(torch.float16))
    wide = OutputLayer(case.new.weight.double(), case.new.bias)
    for old, new in ((case.old, half), (half, case.new), (half, wide), (wide, case.old)):
        Case(old, new, case.targets, case.points).require_sound()


@pytest.fixture(scope="module")
def many() -> Case:
    """So many classes and points that there are several chunks, and several numbers of rows."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6000, 6))
    speed = 0.3 * np.arange(1, 6001)[rng.permutation(6000), None] ** -0.5
    moved = weight + speed * rng.normal(size=weight.shape)
    layers = [OutputLayer(torch.from_numpy(w.astype(np.float32))) for w in (weight, moved)]
    points = torch.from_numpy(rng.normal(size=(9000, 6)).astype(np.float32)) * 3
    targets = (points @ layers[0].weight.T).argmax(1)
    return Case(layers[0], layers[1], targets, points)


def test_many_classes(many: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[int] = set()
    real = torch.addmm

    def counted(bias: Tensor, points: Tensor, rows: Tensor) -> Tensor:
        used.add(rows.shape[1])
        return real(bias, points, rows)

    monkeypatch.setattr(torch, "addmm", counted)
    lower = many.require_sound()
    assert lower.isfinite().all()
    assert {16, 64, 128, 256} <= used <= set(module._STEPS)
    assert max(used) <= 1500
    # No more is known of who stands before the last chunk than of who stands in it.
    settled = (lower > 0).double()
    assert float(settled.mean()) > 0.2
    assert abs(float(settled[:8192].mean() - settled[8192:].mean())) < 0.1


def test_more_rows_settle_more(many: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Case(many.old, many.new, many.targets[:1500], many.points[:1500])
    best = some.screened()
    monkeypatch.setattr(module, "_STEPS", (16,))
    few = some.screened()
    assert int((best > 0).sum()) > int((few > 0).sum()) + 50
    assert bool((best >= few - 1e-9).all())


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.of("small", 13, shape=(500, 5), kind="rows", count=300)
    whole = case.screened()
    monkeypatch.setattr(module, "_CHUNK", 7)
    parts = case.require_sound()
    torch.testing.assert_close(parts, whole, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [1, 3, 40])
@pytest.mark.parametrize("spread", [0, 3, 9])
def test_the_residual_bounds_how_badly_a_frame_is_inverted(size: int, spread: int) -> None:
    rng = np.random.default_rng(size)
    frame = rng.normal(size=(size, size)) * 10.0 ** -rng.uniform(0, spread, size)
    a = torch.from_numpy(frame.astype(np.float32))
    inverse = torch.linalg.inv(a.double()).T.float() * (1 + 1e-4)
    residual = module._residual(a, inverse)
    x = torch.from_numpy(rng.normal(size=(2000, size)).astype(np.float32))
    missed = x.double() - (x @ inverse).double() @ a.double().T
    share = missed.norm(dim=1) / x.double().norm(dim=1)
    assert bool((share <= residual).all())
    assert spread or residual <= 50 * size * float(share.amax()) + 1e-3
