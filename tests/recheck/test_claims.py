"""The rational checker accepts right proofs and refuses every kind of wrong one."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unarg_callback.recheck import (
    ARGMAXABLE,
    EXCLUDED,
    UNARGMAXABLE,
    UNDECIDED,
    ExactLayer,
    InexactError,
    RecheckError,
    check_proofs,
    examine,
    integers,
    power,
)

Arrays = dict[str, Any]

# Corners of a square, the midpoint of the edge x_0 = 1, and a far row that is excluded.
WEIGHT = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1], [1, 0], [9, 9]], dtype=np.float64)


def right_proofs() -> Arrays:
    """Proofs of WEIGHT in the box 100 with class 5 excluded and class 3 left undecided."""
    return {
        "status": np.array([1, 1, 1, 0, 2, 3], dtype=np.int8),
        "witness_class": np.array([0, 1, 2]),
        "witness": np.array([[100.0, 100.0], [3.0, -4.0], [-0.5, 0.25]]),
        "certificate_class": np.array([4]),
        "certificate_offsets": np.array([0, 2]),
        "certificate_support": np.array([0, 1]),
        "certificate_weight": np.array([0.5, 0.5]),
        "domain_low": np.array([-100.0, -100.0]),
        "domain_high": np.array([100.0, 100.0]),
        "min_lead": np.float64(0.0),
    }


def free_proofs() -> Arrays:
    """The same with the input free."""
    proofs = right_proofs()
    proofs["domain_low"], proofs["domain_high"] = np.full(2, -np.inf), np.full(2, np.inf)
    return proofs


def check(proofs: Arrays) -> Any:
    return check_proofs(proofs, WEIGHT, None, excluded=[5])


@pytest.mark.parametrize("make", [right_proofs, free_proofs])
def test_right_proofs_pass(make: Callable[[], Arrays], tmp_path: Path) -> None:
    path = tmp_path / "proofs.npz"
    np.savez(path, **make())
    for proofs in (make(), path, str(path)):
        summary = check_proofs(proofs, WEIGHT, None, excluded=[5])
        assert (summary.argmaxable, summary.unargmaxable) == (3, 1)
        assert (summary.undecided, summary.excluded) == (1, 1)
        # At (100, 100) the midpoint is the runner-up; the excluded row would have beaten both.
        assert summary.leads == {0: Fraction(100), 1: Fraction(4), 2: Fraction(1, 2)}
        assert summary.bounds == {4: Fraction(0)}


def _point(value: Any, line: int = 0) -> Callable[[Arrays], None]:
    def change(proofs: Arrays) -> None:
        proofs["witness"][line] = value

    return change


def _entry(key: str, value: Any, index: Any = ...) -> Callable[[Arrays], None]:
    def change(proofs: Arrays) -> None:
        proofs[key][index] = value

    return change


def _replace(**arrays: Any) -> Callable[[Arrays], None]:
    def change(proofs: Arrays) -> None:
        proofs.update({key: np.asarray(value) for key, value in arrays.items()})

    return change


def _without(key: str) -> Callable[[Arrays], None]:
    def change(proofs: Arrays) -> None:
        del proofs[key]

    return change


_NO_CERTIFICATE = {
    "certificate_class": np.zeros(0, np.int64),
    "certificate_offsets": np.array([0]),
    "certificate_support": np.zeros(0, np.int64),
    "certificate_weight": np.zeros(0),
}

WRONG: dict[str, tuple[Callable[[Arrays], None], str]] = {
    "witness of another class": (_point([-5, 5]), "class 0: .* leads by -10"),
    "one ulp outside": (_point([np.nextafter(100, 101), 100]), "class 0: .*outside"),
    "one ulp below": (_point([-3, np.nextafter(-100, -101)], 2), "class 2: .*outside"),
    "NaN in the witness": (_point([np.nan, 1]), "class 0: .*outside"),
    "inf in the witness": (_point([np.inf, 1]), "class 0: .*outside"),
    "tie": (_point([5, 0]), "class 0: .*leads by 0,"),
    "lead exactly min_lead": (_replace(min_lead=0.5), "class 2: .*leads by 0.5"),
    "negative min_lead": (_replace(min_lead=-1.0), "min_lead"),
    "NaN min_lead": (_replace(min_lead=np.nan), "min_lead"),
    "float32 witness": (_replace(witness=np.ones((3, 2), np.float32)), "dtype float32"),
    "witness of the wrong width": (_replace(witness=np.ones((3, 3))), "witness has shape"),
    "missing witness": (
        _replace(witness_class=[0, 2], witness=[[9.0, 9.0], [-9.0, 9.0]]),
        "class 1: status 1 without",
    ),
    "witness twice": (_replace(witness_class=[0, 2, 2]), "class 2: twice"),
    "extra witness": (
        _replace(witness_class=[0, 1, 2, 3], witness=[[9.0, 9], [9, -9], [-9, 9], [-9, -9]]),
        "class 3: in witness_class without",
    ),
    "missing certificate": (_replace(**_NO_CERTIFICATE), "class 4: status 2 without"),
    "extra certificate": (_entry("status", UNDECIDED, 4), "class 4: in certificate_class without"),
    "both proofs owed, one given": (_entry("status", ARGMAXABLE, 3), "class 3: status 1 without"),
    "certificate twice": (
        _replace(
            certificate_class=[4, 4],
            certificate_offsets=[0, 2, 4],
            certificate_support=[0, 1, 0, 1],
            certificate_weight=[0.5] * 4,
        ),
        "class 4: twice",
    ),
    "negative weight": (_entry("certificate_weight", -0.5, 0), "class 4: .*negative"),
    "NaN weight": (_entry("certificate_weight", np.nan, 0), "class 4: .*NaN"),
    "infinite weight": (_entry("certificate_weight", np.inf, 0), "class 4: .*infinite"),
    "no weight": (_entry("certificate_weight", 0.0), "class 4: .*no weight"),
    "float32 weight": (_replace(certificate_weight=np.full(2, 0.5, np.float32)), "dtype float32"),
    "empty support": (
        _replace(
            certificate_offsets=[0, 0],
            certificate_support=np.zeros(0, np.int64),
            certificate_weight=np.zeros(0),
        ),
        "class 4: .*no weight",
    ),
    "rests on itself": (_entry("certificate_support", 4, 0), "class 4: .*itself"),
    "rests on itself without weight": (
        _replace(
            certificate_offsets=[0, 3],
            certificate_support=[0, 1, 4],
            certificate_weight=[0.5, 0.5, 0.0],
        ),
        "class 4: .*itself",
    ),
    "rests on an excluded class": (_entry("certificate_support", 5, 0), "class 4: .*rests on 5"),
    "rests on no class": (_entry("certificate_support", 6, 0), "class 4: .*rests on 6"),
    "rests on a negative id": (_entry("certificate_support", -6, 0), "class 4: .*rests on -6"),
    "wrong support": (_entry("certificate_support", 2, 0), "class 4"),
    "certificate of a vertex": (
        _replace(status=np.array([1, 1, 1, 2, 0, 3]), certificate_class=[3]),
        "class 3",
    ),
    "offsets too short": (_replace(certificate_offsets=[0, 1]), "certificate_offsets do not"),
    "offsets from 1": (_replace(certificate_offsets=[1, 2]), "certificate_offsets do not"),
    "offsets that go back": (
        _replace(
            status=np.array([1, 1, 1, 2, 2, 3]),
            certificate_class=[3, 4],
            certificate_offsets=[0, 3, 2],
        ),
        "certificate_offsets do not",
    ),
    "offsets of no certificate": (_replace(certificate_offsets=[0]), "certificate_offsets has"),
    "floats for ids": (_replace(certificate_support=[0.0, 1.0]), "dtype float64, not integers"),
    "status unknown": (_entry("status", 4, 3), "status has values"),
    "status of the wrong length": (_replace(status=[1, 1, 1, 0, 2]), "status has shape"),
    "excluded called undecided": (_entry("status", UNDECIDED, 5), "class 5: excluded"),
    "undecided called excluded": (_entry("status", EXCLUDED, 3), "class 3: excluded"),
    "half a box": (_entry("domain_low", -np.inf, 0), "neither a box"),
    "NaN in the domain": (_entry("domain_low", np.nan, 0), "neither a box"),
    "empty domain": (_entry("domain_low", 101.0, 0), "neither a box"),
    "domain of the wrong width": (_replace(domain_low=[-100.0]), "domain_low has shape"),
    **{f"no {key}": (_without(key), f"lack .*{key}") for key in right_proofs()},
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_proofs_are_refused(case: str) -> None:
    change, reason = WRONG[case]
    proofs = right_proofs()
    change(proofs)
    with pytest.raises(RecheckError) as refused:
        check(proofs)
    try:
        summary = examine(proofs, ExactLayer(WEIGHT, None, [5]))
    except RecheckError as cause:
        told = str(cause)
    else:
        told = "\n".join(f"class {index}: {why}" for index, why in summary.wrong.items())
        assert str(refused.value) == told.split("\n")[0]
        right = summary.argmaxable + summary.unargmaxable + summary.undecided + summary.excluded
        assert right + len(summary.wrong) == len(WEIGHT)
    assert re.search(reason, told), told


@pytest.mark.parametrize(
    ("support", "weight", "reason"),
    [
        ([0], [1.0], "no combination"),
        ([0, 2], [0.5, 0.5], "no combination"),
        ([0, 2, 3], [0.4, 0.3, 0.3], "coordinate is negative"),
    ],
)
def test_wrong_free_certificates_are_refused(
    support: list[int], weight: list[float], reason: str
) -> None:
    proofs = free_proofs()
    proofs["certificate_offsets"] = np.array([0, len(support)])
    proofs["certificate_support"] = np.array(support)
    proofs["certificate_weight"] = np.array(weight)
    with pytest.raises(RecheckError, match=f"class 4: .*{reason}"):
        check(proofs)


def test_a_free_certificate_must_pay_for_the_bias() -> None:
    support, half = np.array([0, 1]), np.array([0.5, 0.5])
    assert ExactLayer(WEIGHT, [1, 0, 0, 0, 0.5, 0]).free_bound(4, support, half) == 0
    higher = np.nextafter(0.5, 1)
    assert ExactLayer(WEIGHT, [1, 0, 0, 0, higher, 0]).free_bound(4, support, half) == power(-53)
    proofs = free_proofs()
    proofs["witness"][2] = [-5.0, 5.0]
    assert check_proofs(proofs, WEIGHT, [1, 0, 0, 0, 0.5, 0], excluded=[5]).unargmaxable == 1
    with pytest.raises(RecheckError, match="class 4: .*bounds the lead by 1.1"):
        check_proofs(proofs, WEIGHT, [1, 0, 0, 0, higher, 0], excluded=[5])


def test_free_weights_need_only_be_near_the_exact_coordinates() -> None:
    # A third is no float: the exact coordinates are, and the stored weights only resemble them.
    weight = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    layer = ExactLayer(weight, [3.0, 0.0, 0.0, 1.0])
    third = np.full(3, 1 / 3)
    assert layer.free_bound(3, np.arange(3), third) == 0
    # In the box the same weights leave a residual, and the bound says so.
    low, high = np.full(2, -1e6), np.full(2, 1e6)
    skew = np.array([1 / 3, 1 / 3, np.nextafter(1 / 3, 1)])
    assert 0 < layer.box_bound(3, np.arange(3), skew, low, high) < 1e-9


def test_a_free_certificate_may_rest_on_dependent_rivals() -> None:
    rows = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.5, 0.0], [0.0, 0.25]]
    layer = ExactLayer(rows, None)
    stored = np.array([0.3, 0.3, 0.2, 0.1, 0.1])
    assert layer.free_bound(5, np.arange(5), stored) == 0
    # Here the three heaviest span a triangle without the point, and what the others keep is little.
    with pytest.raises(InexactError, match="negative"):
        layer.free_bound(5, np.arange(5), np.array([0.2, 0.2, 1e-3, 1e-3, 0.6]))


@pytest.mark.parametrize("make", [right_proofs, free_proofs])
def test_a_bias_of_any_shape_counts(make: Callable[[], Arrays]) -> None:
    for shape in ((6,), (6, 1), (1, 6)):
        bias = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 7.0]).reshape(shape)
        assert check_proofs(make(), WEIGHT, bias, excluded=[5]).argmaxable == 3
    with pytest.raises(RecheckError, match="bias has 5"):
        check_proofs(make(), WEIGHT, np.zeros(5), excluded=[5])


def test_an_excluded_class_beats_nobody_and_may_hold_anything() -> None:
    weight = WEIGHT.copy()
    weight[5] = np.nan
    assert check_proofs(right_proofs(), weight, None, excluded=[5]).argmaxable == 3
    proofs = right_proofs()
    proofs["status"][5] = UNDECIDED
    with pytest.raises(RecheckError, match="class 0: .*leads by -"):
        check_proofs(proofs, WEIGHT, None)
    with pytest.raises(RecheckError, match="NaN or inf"):
        check_proofs(proofs, weight, None)


def test_a_class_without_rivals_leads() -> None:
    proofs = {
        **right_proofs(),
        **_NO_CERTIFICATE,
        "status": np.array([3, 1, 3, 3, 3, 3]),
        "witness_class": np.array([1]),
        "witness": np.zeros((1, 2)),
    }
    assert check_proofs(proofs, WEIGHT, None, excluded=[0, 2, 3, 4, 5]).leads == {1: None}


def test_leads_below_float64_are_decided() -> None:
    # At x = (1, 1) the logits are 1 + 2^-60 and 1: equal in float64, and yet a lead.
    layer = ExactLayer([[1.0, 2.0**-60], [1.0, 0.0]], None)
    assert layer.lead(0, [1.0, 1.0]) == power(-60)
    assert layer.lead(1, [1.0, 1.0]) == -power(-60)
    # Overflow in float64 is none in exact arithmetic.
    layer = ExactLayer([[1e300, 0.0], [1e300, -1.0], [-1e300, 0.0]], None)
    assert layer.lead(0, [1e300, 2.0]) == 2
    # Neither is underflow.
    layer = ExactLayer([[3e-200], [2e-200]], None)
    assert 0 < (layer.lead(0, [1e-200]) or 0) < power(-1000)


def test_the_runner_up_is_found_among_rivals_that_rounding_reorders() -> None:
    rng = np.random.default_rng(0)
    reordered = 0
    for _ in range(40):
        base = rng.normal(size=20)
        ulps = rng.integers(-1, 2, (30, 20)) * np.spacing(base)
        weight = np.vstack([rng.normal(size=20), base + ulps])
        point = rng.normal(size=20)
        layer = ExactLayer(weight, None)
        gaps = [layer.difference(0, rival, point) for rival in range(1, 31)]
        assert layer.lead(0, point) == min(gaps)
        reordered += int(np.argmax(weight[1:] @ point)) != gaps.index(min(gaps))
    assert reordered > 5


any_float = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None, print_blob=True)
@given(st.lists(any_float, max_size=6))
def test_integers_are_exact(values: list[float]) -> None:
    whole, exponent = integers(values)
    assert [n * power(exponent) for n in whole.tolist()] == [Fraction(v) for v in values]


@settings(deadline=None, print_blob=True)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(1, 4), st.sampled_from([0, 1, 30]))
def test_figures_agree_with_plain_fractions(seed: int, classes: int, dim: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    weight = np.round(rng.normal(size=(classes, dim)), 1) * 10.0 ** rng.integers(
        -spread, spread + 1, (classes, 1)
    )
    bias = np.round(rng.normal(size=classes), 1)
    points = np.round(rng.normal(size=(3, dim)), 1)
    lam = rng.integers(0, 5, classes - 1) + 0.1
    layer = ExactLayer(weight, bias)
    rows = [[Fraction(v) for v in row] for row in weight.tolist()]
    logits = [
        [sum(w * Fraction(v) for w, v in zip(row, x, strict=True)) + Fraction(b)
         for row, b in zip(rows, bias.tolist(), strict=True)]
        for x in points.tolist()
    ]  # fmt: skip
    leads, _ = layer.leads([0, 0, 0], points)
    assert leads == [z[0] - max(z[1:]) for z in logits]
    # The bound is the maximum of a linear function over the corners of the box.
    low, high = np.minimum(points[0], points[1]), np.maximum(points[0], points[1])
    rivals = np.arange(1, classes)
    share = [Fraction(v) / sum(map(Fraction, lam.tolist())) for v in lam.tolist()]
    bound = sum(
        s * (Fraction(bias[0]) - Fraction(bias[i])) for s, i in zip(share, rivals, strict=True)
    )
    for k in range(dim):
        slope = sum(s * (rows[0][k] - rows[i][k]) for s, i in zip(share, rivals, strict=True))
        bound += max(Fraction(low[k]) * slope, Fraction(high[k]) * slope)
    assert layer.box_bound(0, rivals, lam, low, high) == bound


@settings(deadline=None, print_blob=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(0, 3))
def test_exact_coordinates_of_a_known_combination(seed: int, dim: int, extra: int) -> None:
    rng = np.random.default_rng(seed)
    count = dim + 1 + extra
    share = rng.integers(1, 9, count)
    rows = rng.integers(-9, 10, (count, dim)) * int(share.sum())
    centre = share @ rows // share.sum()
    layer = ExactLayer(np.vstack([centre, rows]), np.zeros(count + 1))
    # With the right weights the exact coordinates are these weights, however many rivals there are.
    noise = 1 + 1e-12 * rng.normal(size=count)
    support = np.arange(1, count + 1)
    assert layer.free_bound(0, support, share / share.sum() * noise) == 0


def test_status_codes_are_those_of_the_file_format() -> None:
    assert (UNDECIDED, ARGMAXABLE, UNARGMAXABLE, EXCLUDED) == (0, 1, 2, 3)
