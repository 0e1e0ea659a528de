from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.independent import ExactLayer
from unarg_callback import (
    Certificate,
    Domain,
    DomainError,
    OutputLayer,
    Status,
    Witness,
    check,
)
from unarg_callback.geometry.checker import Checker

Floats = NDArray[np.float64]

CROSS = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]]
"""Four vertices of a square and its centre."""


def witness_status(
    layer: OutputLayer, domain: Domain, index: int, point: Any, min_lead: float | None = None
) -> Status:
    return check(layer, domain, Witness(index, np.asarray(point, dtype=float)), min_lead).status


def certificate_status(
    layer: OutputLayer, domain: Domain, index: int, support: list[int], weight: Any
) -> Status:
    proof = Certificate(index, np.array(support, dtype=np.int64), np.array(weight, dtype=float))
    return check(layer, domain, proof).status


# --- witnesses ------------------------------------------------------------------------------------


@settings(deadline=None, print_blob=True, max_examples=50)
@given(st.floats(0.01, 1e6), st.sampled_from([torch.float32, torch.float64]))
def test_a_witness_on_the_boundary_counts_and_one_ulp_over_does_not(
    high: float, dtype: torch.dtype
) -> None:
    checker = Checker(OutputLayer(CROSS), Domain.box(high), sweep_dtype=torch.float32)
    bound = torch.tensor(high, dtype=dtype)
    if bound.double() > high:
        bound = torch.nextafter(bound, torch.tensor(0.0, dtype=dtype))
    over = torch.nextafter(bound, torch.tensor(math.inf, dtype=dtype))
    zero = torch.zeros((), dtype=dtype)
    points = torch.stack([torch.stack([x, zero]) for x in (bound, over, -bound, -over)])
    found = checker.witnesses(torch.tensor([0, 0, 1, 1]), points)
    assert found.accepted.tolist() == [True, False, True, False]
    losing = checker.witnesses(torch.tensor([2, 2, 2, 2]), points)
    assert losing.rival.tolist() == [0, 0, 1, 1]
    assert losing.rival_accepted.tolist() == [True, False, True, False]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("domain", [Domain.box(100), Domain.free()])
def test_points_that_are_not_finite_prove_nothing(value: float, domain: Domain) -> None:
    layer = OutputLayer(CROSS)
    assert witness_status(layer, domain, 0, [value, 0.0]) == Status.UNDECIDED
    assert witness_status(layer, domain, 0, [1.0, value]) == Status.UNDECIDED


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_lead_must_exceed_min_lead_by_its_error(dtype: torch.dtype) -> None:
    layer = OutputLayer(CROSS)
    target = torch.tensor([0])
    point = torch.tensor([[0.75, 0.0]], dtype=dtype)  # Leads by exactly 0.75.
    error = float(Checker(layer, Domain.box(1)).double.leads(target, point.double()).error)
    assert 0 < error < 1e-12
    for min_lead, accepted in [
        (0.75, False),
        (0.75 - error / 2, False),
        (0.75 - 2 * error, True),
        (0.75 + error, False),
    ]:
        checker = Checker(layer, Domain.box(1), min_lead, dtype)
        assert bool(checker.witnesses(target, point).accepted) is accepted


def test_what_float32_leaves_in_doubt_is_decided_in_float64() -> None:
    """The lead is 2**-26: below float32's error bound, far above float64's and ``min_lead``."""
    tiny = 2.0**-26
    layer = OutputLayer([[1.0 + tiny, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    checker = Checker(layer, Domain.box(1.0), sweep_dtype=torch.float32)
    assert checker.min_lead < tiny / 2
    point = torch.tensor([[1.0, 0.0]])
    single = checker.sweep.leads(torch.tensor([0]), point)
    assert abs(float(single.lead)) <= float(single.error)
    found = checker.witnesses(torch.tensor([0, 1, 2]), point.expand(3, -1))
    assert found.accepted.tolist() == [True, False, False]
    assert found.lead[0] == pytest.approx(tiny, rel=1e-6)
    # A target that is beaten in doubt gets its winner from float64 as well.
    assert int(found.rival[1]) == 0
    assert found.rival_accepted.tolist() == [False, True, False]
    # Who is beaten beyond doubt is not looked at again: its winner stays unproven here.
    assert not bool(found.rival_accepted[2])


def test_ties_are_refused_by_both() -> None:
    layer = OutputLayer([*CROSS, CROSS[0]])
    for dtype in (torch.float32, torch.float64):
        checker = Checker(layer, Domain.box(1.0), sweep_dtype=dtype)
        point = torch.tensor([[1.0, 0.0]], dtype=dtype)
        found = checker.witnesses(torch.tensor([0, 5, 2]), point.expand(3, -1))
        assert not found.accepted.any()
        assert not found.rival_accepted.any()


@settings(deadline=None, print_blob=True, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([torch.float32, torch.float64]))
def test_leads_of_witnesses_are_lower_bounds(seed: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(20, 4)) + 50, rng.normal(size=20)
    checker = Checker(OutputLayer(weight, bias), Domain.box(2.0), 0.0, dtype)
    points = torch.from_numpy(rng.normal(size=(40, 4))).to(dtype)
    targets = torch.from_numpy(rng.integers(20, size=40))
    found = checker.witnesses(targets, points)
    exact = ExactLayer(weight, bias)
    inputs = points.double().numpy()
    inside = (np.abs(inputs) <= 2).all(1)
    for at, lead in enumerate(exact.leads(targets.tolist(), inputs)[0]):
        assert lead is not None
        assert Fraction(float(found.lead[at])) <= lead
        assert bool(found.accepted[at]) <= bool(inside[at] and lead > 0)
        rival = int(found.rival[at])
        if bool(found.rival_accepted[at]):
            (over_all,), _ = exact.leads([rival], inputs[at][None])
            assert over_all is not None
            assert inside[at]
            assert 0 < Fraction(float(found.rival_lead[at])) <= over_all


def test_a_class_without_rivals_leads() -> None:
    layer = OutputLayer([[1.0], [2.0]], excluded=[0])
    assert witness_status(layer, Domain.box(1), 1, [0.0]) == Status.ARGMAXABLE


@pytest.fixture
def medium() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("medium")
def test_reduced_precision_products_are_not_relied_on() -> None:
    checker = Checker(OutputLayer(CROSS), Domain.box(1), sweep_dtype=torch.float32)
    assert checker.sweep.dtype == torch.float64
    found = checker.witnesses(torch.tensor([0]), torch.tensor([[1.0, 0.0]]).double())
    assert bool(found.accepted)


# --- min_lead -------------------------------------------------------------------------------------


@st.composite
def layers(draw: st.DrawFn) -> tuple[Floats, Floats | None]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.integers(2, 40)), draw(st.integers(1, 12))
    weight = rng.normal(size=shape) + draw(st.sampled_from([0.0, 50.0]))
    return weight, rng.normal(size=shape[0]) * 10 if draw(st.booleans()) else None


@settings(deadline=None, print_blob=True, max_examples=60)
@given(layers(), st.sampled_from(["box:100", "box:-1,3", "nonnegative:7", "free"]))
def test_min_lead_is_that_of_the_geometry(layer: tuple[Floats, Floats | None], text: str) -> None:
    weight, bias = layer
    domain = Domain.parse(text)
    low, high = domain.bounds(weight.shape[1])
    offset = np.zeros(len(weight)) if bias is None else bias
    own = Checker(OutputLayer(weight, bias), domain).min_lead
    if domain.is_free:
        assert own == 0
        return
    # A billionth of the range, from its definition.
    centred = weight - (weight.min(0) + weight.max(0)) / 2
    # Biases with which a class loses everywhere count as just low enough for that.
    reach = (np.abs(centred).max(0) * np.maximum(np.abs(low), np.abs(high))).sum()
    offset = np.maximum(offset, offset.max() - 2.2 * reach) if reach else offset
    middle = (offset.min() + offset.max()) / 2
    top = (np.maximum(low * centred, high * centred).sum(1) + offset - middle).max()
    bottom = (np.minimum(low * centred, high * centred).sum(1) + offset - middle).min()
    assert own == pytest.approx(1e-9 * (top - bottom), rel=1e-9)
    # The same bits in any order.
    order = np.random.default_rng(0).permutation(len(weight))
    shuffled = OutputLayer(weight[order], None if bias is None else bias[order])
    assert Checker(shuffled, domain).min_lead == own
    # Powers of two scale it exactly.
    for exponent in (-90, -3, 1, 200):
        factor = 2.0**exponent
        scaled = OutputLayer(weight * factor, None if bias is None else bias * factor)
        assert Checker(scaled, domain).min_lead == own * factor
    # A shift of all rows or all biases changes it by rounding only.
    shifted = OutputLayer(weight + 3.0, offset + 7.0)
    assert Checker(shifted, domain).min_lead == pytest.approx(own, rel=1e-9)


def test_min_lead_of_a_box_too_large_for_float64_decides_nothing_wrongly() -> None:
    """The logit range overflows; no class may be called unargmaxable for it."""
    layer = OutputLayer([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    with pytest.raises(DomainError, match="overflow"):
        Checker(layer, Domain.box(1.7e308))


@pytest.mark.parametrize("min_lead", [math.inf, math.nan, -1.0])
def test_a_min_lead_that_is_no_lead_is_refused(min_lead: float) -> None:
    with pytest.raises(DomainError, match="min_lead"):
        Checker(INSIDE, BOX, min_lead)


# --- certificates over a box ----------------------------------------------------------------------


@st.composite
def claims(
    draw: st.DrawFn,
) -> tuple[Floats, Floats, tuple[Floats, Floats], NDArray[np.int64], Floats]:
    """Layer, box, supports and weights: many padded, some with weights of very different size."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    classes, dim = draw(st.integers(2, 25)), draw(st.integers(1, 20))
    weight = rng.normal(size=(classes, dim)) + draw(st.sampled_from([0.0, 50.0]))
    weight *= 10.0 ** draw(st.integers(-30, 30))
    bias = rng.normal(size=classes) * np.abs(weight).max() * draw(st.sampled_from([0.0, 1.0, 100]))
    if draw(st.booleans()):
        weight, bias = weight.astype(np.float32), bias.astype(np.float32)
    low = rng.normal(size=dim)
    box = low, low + rng.exponential(size=dim)
    width = draw(st.integers(1, 10))
    support = rng.integers(classes, size=(8, width))
    share = rng.exponential(size=(8, width)) * rng.integers(0, 2, size=(8, width))
    share *= 10.0 ** rng.integers(-draw(st.integers(0, 40)), 1, size=(8, width))
    return weight, bias, box, support, share


@settings(deadline=None, print_blob=True, max_examples=150)
@given(claims())
def test_bounds_are_above_the_exact_bound_and_near_it(
    claim: tuple[Floats, Floats, tuple[Floats, Floats], NDArray[np.int64], Floats],
) -> None:
    weight, bias, (low, high), support, share = claim
    checker = Checker(OutputLayer(weight, bias), Domain.box(low, high))
    targets = torch.zeros(len(support), dtype=torch.int64)
    accepted, bound = checker.certificates(
        targets, torch.from_numpy(support), torch.from_numpy(share)
    )
    exact = ExactLayer(weight, bias)
    spread = checker.min_lead / 1e-9 + float(np.ptp(bias))
    for at in range(len(support)):
        used = share[at] > 0
        if not used.any():
            assert not bool(accepted[at])
            continue
        truth = exact.box_bound(0, support[at][used], share[at][used], low, high)
        assert Fraction(float(bound[at])) >= truth
        assert float(Fraction(float(bound[at])) - truth) <= 1e-12 * spread
        if (support[at][used] == 0).any():
            assert not bool(accepted[at])
        else:
            assert bool(accepted[at]) == (float(bound[at]) <= checker.min_lead)


BOX = Domain.box(1.0)
INSIDE = OutputLayer(CROSS)


@pytest.mark.parametrize(
    ("support", "weight", "accepted"),
    [
        ([0, 1], [0.5, 0.5], True),
        ([2, 3], [0.5, 0.5], True),
        ([0, 1, 2, 3], [0.25] * 4, True),
        ([0, 1], [3.0, 3.0], True),  # Any positive sum.
        ([0, 0, 1], [0.25, 0.25, 0.5], True),
        ([0, 1, 4], [0.5, 0.5, 0.0], True),  # Padded with the class itself.
        ([0, 1, 0], [0.5, 0.5, -0.0], True),
        ([0, 1], [0.6, 0.4], False),
        ([0], [1.0], False),
        ([0, 1, 2], [0.5, 0.5, -1e-300], False),
        ([0, 1], [-0.5, -0.5], False),
        ([0, 1], [math.nan, 0.5], False),
        ([0, 1, 2], [0.5, 0.5, math.nan], False),
        ([0, 1], [math.inf, math.inf], False),
        ([0, 1, 2], [0.5, 0.5, math.inf], False),
        ([0, 1], [0.0, 0.0], False),
        ([], [], False),
        ([4], [1.0], False),
        ([0, 1, 4], [0.5, 0.5, 1e-300], False),
    ],
)
def test_certificates_of_the_centre(
    support: list[int], weight: list[float], accepted: bool
) -> None:
    status = certificate_status(INSIDE, BOX, 4, support, weight)
    assert status == (Status.UNARGMAXABLE if accepted else Status.UNDECIDED)


@pytest.mark.parametrize("size", [5e-324, 1e-320, 1e-310, 1e-300, 1e-160, 1e160, 1e300, 1.7e308])
def test_weights_near_the_ends_of_float64_prove_nothing_false(size: float) -> None:
    """Class 0 wins at x = 0.05: sums of weights that underflow or overflow must not hide it."""
    layer = OutputLayer([[0.1], [-0.1], [0.07], [1.0], [-1.0]])
    domain = Domain.box(0.05)
    small = OutputLayer([[0.0], [-0.4], [-1.0]])
    assert witness_status(small, BOX, 0, [1.0]) == Status.ARGMAXABLE
    for support, weight in [([1], [size]), ([1, 2], [size, size])]:
        assert certificate_status(small, BOX, 0, support, weight) == Status.UNDECIDED
    three = OutputLayer([[0.1], [-0.1], [0.07]])
    assert witness_status(three, domain, 0, [0.05]) == Status.ARGMAXABLE
    assert certificate_status(three, domain, 0, [1, 2], [size, size]) == Status.UNDECIDED
    assert witness_status(layer, domain, 3, [0.05]) == Status.ARGMAXABLE
    assert certificate_status(layer, domain, 3, [0, 2], [size, size]) == Status.UNDECIDED


def test_the_bound_of_equal_rows_is_exact() -> None:
    layer = OutputLayer([[0.1, 0.2], [0.1, 0.2], [0.1, 0.2]], [0.5, 0.5, 0.25])
    low = check(layer, BOX, Certificate(2, np.array([0]), np.array([1.0])))
    assert low.status == Status.UNARGMAXABLE
    assert -0.25 <= low.lead < -0.25 + 1e-12
    assert check(layer, BOX, Certificate(0, np.array([1]), np.array([1.0]))).lead == 0.0
    assert certificate_status(layer, BOX, 0, [2], [1.0]) == Status.UNDECIDED


def test_no_certificates_in_a_batch() -> None:
    checker = Checker(INSIDE, BOX)
    ids = torch.zeros(0, dtype=torch.int64)
    accepted, bound = checker.certificates(
        ids, torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, 3, dtype=torch.float64)
    )
    assert accepted.shape == bound.shape == (0,)
    found = checker.witnesses(ids, torch.zeros(0, 2))
    assert found.accepted.shape == found.rival.shape == (0,)


# --- check() --------------------------------------------------------------------------------------


def test_check_speaks_of_class_ids() -> None:
    """Excluding a class shifts positions, not ids."""
    layer = OutputLayer([[5.0, 5.0], *CROSS], excluded=[0])
    assert witness_status(layer, BOX, 1, [1.0, 0.0]) == Status.ARGMAXABLE
    assert certificate_status(layer, BOX, 5, [1, 2], [0.5, 0.5]) == Status.UNARGMAXABLE


@pytest.mark.parametrize("index", [0, -1, 6, 99])
def test_nothing_is_proven_of_a_class_that_takes_no_part(index: int) -> None:
    layer = OutputLayer([[0.0, 0.0], *CROSS], excluded=[0])
    assert witness_status(layer, BOX, index, [1.0, 0.0]) == Status.UNDECIDED
    assert certificate_status(layer, BOX, index, [1, 2], [0.5, 0.5]) == Status.UNDECIDED


@pytest.mark.parametrize("support", [[0, 1], [1, -1], [1, 77]])
@pytest.mark.parametrize("domain", [BOX, Domain.free()])
def test_nothing_is_proven_by_rivals_that_take_no_part(support: list[int], domain: Domain) -> None:
    layer = OutputLayer([[-1.0, 0.0], *CROSS], excluded=[0])
    assert certificate_status(layer, domain, 5, support, [0.5, 0.5]) == Status.UNDECIDED
    assert certificate_status(layer, domain, 5, [1, 2], [0.5, 0.5]) == Status.UNARGMAXABLE


@pytest.mark.parametrize("weight", [[1.0], [0.5, 0.25, 0.25]])
def test_weights_and_supports_of_different_length_prove_nothing(weight: list[float]) -> None:
    assert certificate_status(INSIDE, BOX, 4, [0, 1], weight) == Status.UNDECIDED


def test_check_in_the_free_domain() -> None:
    free = Domain.free()
    assert certificate_status(INSIDE, free, 4, [0, 1], [0.5, 0.5]) == Status.UNARGMAXABLE
    # Weights are only the nearest float64: what counts is that exact ones exist.
    assert certificate_status(INSIDE, free, 4, [0, 1], [0.4, 0.6]) == Status.UNARGMAXABLE
    assert certificate_status(INSIDE, free, 4, [0, 2], [0.5, 0.5]) == Status.UNDECIDED
    assert certificate_status(INSIDE, free, 4, [0, 1, 4], [0.5, 0.5, 0.0]) == Status.UNDECIDED
    assert certificate_status(INSIDE, free, 4, [], []) == Status.UNDECIDED
    assert witness_status(INSIDE, free, 0, [1e100, 0.0]) == Status.ARGMAXABLE


def test_a_domain_of_another_dimension_is_refused() -> None:
    with pytest.raises(DomainError):
        Checker(INSIDE, Domain.box([1.0, 1.0, 1.0]))
