"""Computed leads against exact ones, by the rational arithmetic of ``tests.independent``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.independent import ExactLayer
from unarg_callback import OutputLayer
from unarg_callback.geometry.leaders import Ends, LeadEvaluator, Leads

STORAGE = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
SWEEPS = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Sweep:
    """Weights, biases and points as stored, and which target goes with which point."""

    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    points: Tensor


@st.composite
def sweeps(draw: st.DrawFn) -> Sweep:
    """Random layers of all dtypes, offsets, scales and kinds of ties."""
    storage, sweep = draw(st.sampled_from(STORAGE)), draw(st.sampled_from(SWEEPS))
    classes, dim = draw(st.integers(1, 30)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.normal(size=(classes, dim)) + draw(st.sampled_from([0.0, 50.0]))
    if draw(st.booleans()):
        rows = rows.round()  # Ties, and rows that are equal.
    if draw(st.booleans()):
        rows[rng.integers(classes)] = rows[rng.integers(classes)]
    exponent = draw(st.integers(-30, 30)) if storage != torch.float16 else 0
    # Powers of ten, so that scaling rounds every entry.
    weight = torch.from_numpy(rows * 10.0**exponent).to(storage)
    bias = None
    if draw(st.booleans()):
        offsets = rng.normal(size=classes) * 10.0 ** draw(st.integers(-3, 3))
        bias = torch.from_numpy(offsets * 10.0**exponent).to(storage)
        bias = torch.where(torch.isfinite(bias), bias, 0)
    count = draw(st.integers(1, 12))
    targets = torch.from_numpy(rng.integers(classes, size=count))
    points = rng.normal(size=(count, dim))
    if draw(st.booleans()):
        # The rows themselves: leads of every size, cancellation in the offset.
        points = rows[targets.numpy()].copy()
    reach = draw(st.integers(-30, 30)) if sweep == torch.float64 else draw(st.integers(-12, 12))
    return Sweep(weight, bias, targets, torch.from_numpy(points * 10.0**reach).to(sweep))


def evaluated(sweep: Sweep) -> tuple[ExactLayer, Leads]:
    layer = OutputLayer(sweep.weight, sweep.bias)
    exact = ExactLayer(
        sweep.weight.double().numpy(),
        None if sweep.bias is None else sweep.bias.double().numpy(),
    )
    return exact, LeadEvaluator(layer, sweep.points.dtype).leads(sweep.targets, sweep.points)


def assert_within_error(exact: ExactLayer, leads: Leads, targets: Tensor, points: Tensor) -> None:
    inputs = points.double().numpy()
    truth, _ = exact.leads(targets.tolist(), inputs)
    for at, value in enumerate(truth):
        lead, error = float(leads.lead[at]), float(leads.error[at])
        if value is None:
            assert lead == math.inf
            assert int(leads.rival[at]) == -1
            continue
        if not math.isfinite(error):
            continue
        assert error >= 0
        assert abs(value - Fraction(lead)) <= Fraction(error)
        rival, target = int(leads.rival[at]), int(targets[at])
        assert (rival == -1) is (lead > 0)
        if rival == -1:
            assert math.isnan(leads.rival_lead[at])
            continue
        assert rival != target
        (over_all,), _ = exact.leads([rival], inputs[at][None])
        assert over_all is not None
        assert abs(over_all - Fraction(float(leads.rival_lead[at]))) <= Fraction(error)
        # Nobody is above the rival by more than the error.
        assert over_all >= -Fraction(error)


@settings(deadline=None, print_blob=True, max_examples=250)
@given(sweeps())
def test_leads_are_within_their_error(sweep: Sweep) -> None:
    exact, leads = evaluated(sweep)
    assert_within_error(exact, leads, sweep.targets, sweep.points)


@settings(deadline=None, print_blob=True, max_examples=60)
@given(sweeps())
def test_errors_are_of_the_size_of_rounding(sweep: Sweep) -> None:
    """A bound that is always infinite would pass the other tests."""
    _, leads = evaluated(sweep)
    rows = sweep.weight.double()
    size = 2 * (rows - rows.mean(0)).norm(dim=1).amax() * sweep.points.double().norm(dim=1)
    if sweep.bias is not None:
        size = size + 2 * (sweep.bias.double().amax() - sweep.bias.double().amin())
    dim = sweep.weight.shape[1]
    roundoff = torch.finfo(sweep.points.dtype).eps
    finite = torch.isfinite(leads.error)
    smallest = 4 * (dim + 4) * torch.finfo(sweep.points.dtype).tiny
    allowed = 8 * (dim + 8) * roundoff * size + 4 * smallest * (1 + rows.abs().amax()) * (
        2 + sweep.points.double().abs().amax(1)
    )
    assert (leads.error[finite] <= allowed[finite]).all()
    assert finite.float().mean() > 0.5 or sweep.points.dtype == torch.float32


@pytest.mark.parametrize("reach", [1e-150, 1e-165, 1e-200, 1e-300, 5e-324])
def test_errors_hold_at_points_whose_squares_underflow(reach: float) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(50, 8))
    points = torch.from_numpy(rng.normal(size=(50, 8)) * reach)
    targets = torch.arange(50)
    leads = LeadEvaluator(OutputLayer(weight), torch.float64).leads(targets, points)
    assert_within_error(ExactLayer(weight, None), leads, targets, points)


@pytest.mark.parametrize("scale", [1e-300, 1e-320, 1e300])
def test_errors_hold_at_weights_near_the_ends_of_float64(scale: float) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(50, 8)) * scale
    points = torch.from_numpy(rng.normal(size=(50, 8)))
    targets = torch.arange(50)
    leads = LeadEvaluator(OutputLayer(weight), torch.float64).leads(targets, points)
    assert_within_error(ExactLayer(weight, None), leads, targets, points)


@pytest.mark.parametrize("dtype", SWEEPS)
def test_errors_hold_over_several_tiles_and_blocks(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(2500, 6)).astype(np.float32)
    bias = rng.normal(size=2500).astype(np.float32)
    # Some lose in their own tile, some only to another, some to nobody.
    targets = torch.from_numpy(rng.permutation(2500)[:1300])
    points = torch.from_numpy(weight[targets.numpy()] * rng.uniform(0.1, 9, (1300, 1))).to(dtype)
    leads = LeadEvaluator(OutputLayer(weight, bias), dtype).leads(targets, points)
    assert 50 < int((leads.rival >= 0).sum()) < 1290
    some = torch.arange(0, 1300, 7)
    picked = Leads(*(getattr(leads, name)[some] for name in vars(leads)))
    assert_within_error(ExactLayer(weight, bias), picked, targets[some], points[some])


@pytest.mark.parametrize("dtype", SWEEPS)
def test_small_integers_are_exact_in_every_tile(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(2)
    weight, bias = rng.integers(-9, 10, size=(2500, 5)), rng.integers(-9, 10, size=2500)
    points = rng.integers(-9, 10, size=(700, 5))
    targets = rng.integers(2500, size=700)
    logits = points @ weight.T + bias
    mine = logits[np.arange(700), targets]
    logits[np.arange(700), targets] = -(10**6)
    leads = LeadEvaluator(OutputLayer(weight, bias), dtype).leads(
        torch.from_numpy(targets), torch.from_numpy(points).to(dtype)
    )
    assert leads.lead.tolist() == (mine - logits.max(1)).tolist()
    losing = mine <= logits.max(1)
    rival = leads.rival.numpy()
    assert ((rival >= 0) == losing).all()
    assert (logits[losing, rival[losing]] == logits.max(1)[losing]).all()
    second = np.maximum(np.sort(logits, axis=1)[:, -2], mine)
    assert leads.rival_lead[losing].tolist() == (logits.max(1) - second)[losing].tolist()


@pytest.mark.parametrize("dtype", SWEEPS)
@pytest.mark.parametrize(("classes", "count"), [(2500, 9), (1025, 1), (30, 29), (30, 400), (1, 5)])
def test_strongest_rivals_in_order(dtype: torch.dtype, classes: int, count: int) -> None:
    rng = np.random.default_rng(3)
    weight, bias = rng.integers(-9, 10, size=(classes, 5)), rng.integers(-9, 10, size=classes)
    points = rng.integers(-9, 10, size=(40, 5))
    targets = rng.integers(classes, size=40)
    logits = points @ weight.T + bias
    mine = logits[np.arange(40), targets]
    ids, above = LeadEvaluator(OutputLayer(weight, bias), dtype).strongest(
        torch.from_numpy(targets), torch.from_numpy(points).to(dtype), count
    )
    width = min(count, classes - 1)
    assert ids.shape == above.shape == (40, width)
    assert not (ids == torch.from_numpy(targets)[:, None]).any()
    assert all(len(set(row)) == width for row in ids.tolist())
    gaps = np.take_along_axis(logits, ids.numpy(), 1) - mine[:, None]
    assert above.tolist() == gaps.tolist()
    logits[np.arange(40), targets] = -(10**6)
    best = -np.sort(-logits, axis=1)[:, :width] - mine[:, None]
    assert above.tolist() == best.tolist()


@pytest.mark.parametrize("dtype", SWEEPS)
def test_leads_do_not_depend_on_the_batch(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(4)
    layer = OutputLayer(rng.normal(size=(1500, 7)) + 50, rng.normal(size=1500))
    evaluator = LeadEvaluator(layer, dtype)
    targets = torch.from_numpy(rng.integers(1500, size=600))
    points = torch.from_numpy(rng.normal(size=(600, 7))).to(dtype)
    together = evaluator.leads(targets, points)
    for part in (slice(0, 1), slice(3, 20), slice(500, 600)):
        alone = evaluator.leads(targets[part], points[part])
        assert torch.equal(alone.error, together.error[part])
        assert ((alone.lead - together.lead[part]).abs() <= 2 * alone.error).all()
        both = (alone.rival >= 0) & (together.rival[part] >= 0)
        gap = (alone.rival_lead - together.rival_lead[part]).abs()
        assert (gap[both] <= 2 * alone.error[both]).all()


def test_excluded_rows_beat_nobody() -> None:
    weight = np.array([[1.0, 0.0], [np.nan, np.inf], [0.0, 1.0], [100.0, 100.0]])
    layer = OutputLayer(weight, [0.0, np.nan, 0.0, 1e30], excluded=[1, 3])
    evaluator = LeadEvaluator(layer, torch.float64)
    leads = evaluator.leads(torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]).double())
    assert leads.lead.tolist() == [1.0, -1.0]
    assert leads.rival.tolist() == [-1, 0]
    assert evaluator.count == 2


def test_no_points_and_no_classes() -> None:
    evaluator = LeadEvaluator(OutputLayer([[1.0], [2.0]]), torch.float32)
    leads = evaluator.leads(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 1))
    assert all(len(getattr(leads, name)) == 0 for name in vars(leads))
    assert LeadEvaluator(OutputLayer([[1.0]], excluded=[0]), torch.float32).count == 0


@settings(deadline=None, print_blob=True, max_examples=60)
@given(sweeps())
def test_the_order_of_classes_changes_no_centre_unit_or_error(sweep: Sweep) -> None:
    order = torch.randperm(len(sweep.weight), generator=torch.manual_seed(0))
    back = torch.argsort(order)
    bias = None if sweep.bias is None else sweep.bias[order]
    one = LeadEvaluator(OutputLayer(sweep.weight, sweep.bias), sweep.points.dtype)
    other = LeadEvaluator(OutputLayer(sweep.weight[order], bias), sweep.points.dtype)
    assert torch.equal(one.middle, other.middle)
    assert one.unit == other.unit
    first = one.leads(sweep.targets, sweep.points)
    second = other.leads(back[sweep.targets], sweep.points)
    assert torch.equal(first.error, second.error)


@settings(deadline=None, print_blob=True, max_examples=100)
@given(sweeps(), st.integers(0, 30))
def test_a_part_measured_against_the_ends_of_the_whole(sweep: Sweep, cut: int) -> None:
    """Centre, unit and logits of a part are those of the whole, and its bounds no smaller."""
    dtype = sweep.points.dtype
    layer = OutputLayer(sweep.weight, sweep.bias)
    both = LeadEvaluator(layer, dtype)
    parts = [
        OutputLayer(sweep.weight[span], None if sweep.bias is None else sweep.bias[span])
        for span in (slice(cut), slice(cut, None))
        if len(sweep.weight[span])
    ]
    ends = [Ends.of(part) for part in parts]
    common = Ends(
        torch.stack([one.low for one in ends]).amin(0),
        torch.stack([one.high for one in ends]).amax(0),
        torch.stack([one.bias_low for one in ends]).amin(),
        torch.stack([one.bias_high for one in ends]).amax(),
    )
    evaluators = [LeadEvaluator(part, dtype, common) for part in parts]
    first = evaluators[0]
    for one in evaluators:
        assert torch.equal(one.middle, both.middle)
        assert torch.equal(one.bias_middle, both.bias_middle)
        assert one.unit == both.unit
    rows = torch.cat([one.rows(slice(None)) for one in evaluators])
    assert torch.equal(rows, both.rows(slice(None)))
    biases = torch.cat([one.biases(slice(None)) for one in evaluators])
    assert torch.equal(biases, both.biases(slice(None)))
    # The bound on a lead within the part is sound with wider ends too.
    here = sweep.targets < first.count
    if sweep.bias is not None:
        bias = sweep.bias[: first.count].double().numpy()
    exact = ExactLayer(
        sweep.weight[: first.count].double().numpy(), None if sweep.bias is None else bias
    )
    targets, points = sweep.targets[here], sweep.points[here]
    if len(targets):
        assert_within_error(exact, first.leads(targets, points), targets, points)


def test_ends_of_no_class() -> None:
    ends = Ends.of(OutputLayer([[1.0, 2.0]], excluded=[0]))
    assert ends.low.tolist() == [np.inf] * 2
    middle, bias, reach = ends.middle()
    assert middle.tolist() == reach.tolist() == [0.0, 0.0]
    assert bias.item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_that_overflows_on_its_way_proves_nothing(dtype: torch.dtype) -> None:
    huge = torch.finfo(dtype).max
    # The rival's logit is 0, but its terms add up to -inf before the others come.
    layer = OutputLayer([[-1e-3] * 64, [-1.0] * 32 + [1.0] * 32, [1.0] * 32 + [-1.0] * 32])
    evaluator = LeadEvaluator(layer, dtype)
    leads = evaluator.leads(torch.tensor([0, 1]), torch.full((2, 64), huge / 4, dtype=dtype))
    assert not (leads.lead - leads.error > 0).any()
    assert not (leads.rival_lead - leads.rival_error > 0).any()
    # A bound is asked for where sums are far from overflowing.
    near = evaluator.leads(torch.tensor([0]), torch.full((1, 64), huge / 2**12, dtype=dtype))
    assert torch.isfinite(near.error).all()
