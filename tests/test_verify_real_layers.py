"""verify on trained layers: known counts, nothing undecided, every proof accepted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tests.independent import Summary, check_proofs
from tests.shared_data import Floats, load_layer, load_snapshot, needs_shared
from unarg_callback import OutputLayer, Report, Status
from unarg_callback.verification import verify

pytestmark = needs_shared
Exact = Literal["interior_point", "cutting_plane"]


def check(
    report: Report, weight: Floats, bias: Floats | None, path: Path, unargmaxable: int
) -> Summary:
    """Check a report's proofs from the file that it writes, and its counts and figures."""
    summary = check_proofs(report.save_proofs(path / "proofs.npz"), weight, bias)
    assert summary.unargmaxable == unargmaxable
    assert summary.undecided == 0
    assert summary.argmaxable == len(weight) - unargmaxable
    counts = report.counts
    assert (counts["argmaxable"], counts["unargmaxable"]) == (summary.argmaxable, unargmaxable)
    assert (counts["undecided"], counts["excluded"]) == (0, 0)
    assert counts["potentially_unargmaxable"] >= unargmaxable
    assert report.complete
    wrong = [t for t, lead in summary.leads.items() if lead is None or report.lead[t] > lead]
    wrong += [t for t, bound in summary.bounds.items() if report.lead[t] < bound]
    assert not wrong
    return summary


@pytest.mark.parametrize("exact", ["interior_point", "cutting_plane"])
@pytest.mark.parametrize(
    ("domain", "unargmaxable"), [("box:100", 226), ("free", 225), ("nonnegative:1000", 229)]
)
def test_g2pm(domain: str, unargmaxable: int, exact: Exact, tmp_path: Path) -> None:
    weight, bias, names = load_layer("g2pm")
    report = verify(OutputLayer(weight, bias, names=names), domain, exact=exact)
    check(report, weight, bias, tmp_path, unargmaxable)


def test_g2pm_without_bias(tmp_path: Path) -> None:
    weight, _, _ = load_layer("g2pm")
    check(verify(OutputLayer(weight)), weight, None, tmp_path, 225)


def test_g2pm_names_the_class_that_only_a_box_shuts_out() -> None:
    weight, bias, names = load_layer("g2pm")
    layer = OutputLayer(weight, bias, names=names)
    in_box, free = verify(layer, "box:100"), verify(layer, "free")
    differing = np.flatnonzero(in_box.status != free.status).tolist()
    assert [names[index] for index in differing] == ["gui1"]
    assert in_box.status[differing] == Status.UNARGMAXABLE
    assert free.status[differing] == Status.ARGMAXABLE


def test_g2pm_behind_its_relu_loses_the_classes_never_seen_in_training() -> None:
    weight, bias, names = load_layer("g2pm")
    layer = OutputLayer(weight, bias, names=names)
    behind_relu = set(verify(layer, "nonnegative:1000").ids(Status.UNARGMAXABLE).tolist())
    free = set(verify(layer, "free").ids(Status.UNARGMAXABLE).tolist())
    assert free < behind_relu


def test_ppocrv4(tmp_path: Path) -> None:
    weight, bias, names = load_layer("ppocrv4_rec_ch")
    report = verify(OutputLayer(weight, bias, names=names))
    check(report, weight, bias, tmp_path, 202)


@pytest.mark.slow
def test_ppocrv5(tmp_path: Path) -> None:
    """Thousands of rows close together, and classes that are hard to tell apart."""
    weight, bias, names = load_layer("ppocrv5_rec_mobile")
    report = verify(OutputLayer(weight, bias, names=names))
    check(report, weight, bias, tmp_path, 4220)


@pytest.mark.slow
def test_ppocrv4_free(tmp_path: Path) -> None:
    weight, bias, _ = load_layer("ppocrv4_rec_ch")
    check(verify(OutputLayer(weight, bias), "free"), weight, bias, tmp_path, 202)


@pytest.mark.slow
def test_ru16_before_training(tmp_path: Path) -> None:
    weight, bias = load_snapshot("ru16_0")
    check(verify(OutputLayer(weight, bias)), weight, bias, tmp_path, 742)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "unargmaxable"), [(100, 1077), (200, 1103)])
def test_ru16_in_training(step: int, unargmaxable: int, tmp_path: Path) -> None:
    weight, bias = load_snapshot(f"ru16_{step}")
    check(verify(OutputLayer(weight, bias)), weight, bias, tmp_path, unargmaxable)


@pytest.mark.slow
def test_ru16_both_exact_ways_agree() -> None:
    layer = OutputLayer(*load_snapshot("ru16_0"))
    one, other = (verify(layer, exact=way) for way in _ways())
    np.testing.assert_array_equal(one.status, other.status)


@pytest.mark.slow
def test_ru64_where_all_classes_are_argmaxable(tmp_path: Path) -> None:
    weight, bias = load_snapshot("ru64_600")
    check(verify(OutputLayer(weight, bias)), weight, bias, tmp_path, 0)


def _ways() -> Iterable[Exact]:
    return ("interior_point", "cutting_plane")
