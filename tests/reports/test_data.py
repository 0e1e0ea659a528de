"""What a report tells, and what a filter leaves out of it."""

from __future__ import annotations

import math

import numpy as np

from tests.reports.layers import NAMES, hostile_report, plain_report
from unarg_callback import Status
from unarg_callback.class_filter import ClassFilter
from unarg_callback.reports import report_data


def test_the_tables_of_a_small_layer() -> None:
    report = hostile_report()
    data = report_data(report, "layer.npz", ["layer.npz: W"])
    assert [row.index for row in data.unargmaxable] == [0, 4, 6, 7]
    assert [(row.index, row.rival, row.equal) for row in data.duplicates] == [
        (0, 7, True),
        (7, 0, True),
    ]
    assert not data.undecided
    leads = [row.lead for row in data.nearest]
    assert leads == sorted(leads)
    assert {row.index for row in data.nearest} == {1, 2, 3, 5}
    assert data.counts == report.counts
    assert data.verdict == "4 of 8 classes can never be the argmax (50%), and that is proven."
    assert data.filtered == ""
    assert "4 witnesses" in data.proofs
    assert "4 certificates" in data.proofs
    for row in data.unargmaxable:
        assert math.isclose(row.share, 100 * row.lead / report.scale)


def test_no_name_has_a_control_or_a_direction() -> None:
    data = report_data(hostile_report(), "na\nme\u202e")
    rows = (*data.unargmaxable, *data.nearest, *data.duplicates)
    assert all((row.name + row.rival_name).isprintable() for row in rows)
    assert data.title == "na\\nme\\u202e"


def test_a_filter_changes_what_is_told_and_nothing_else() -> None:
    report = hostile_report()
    data = report_data(report, "x", chosen=ClassFilter(words=True))
    kept = [index for index, name in enumerate(NAMES) if name in ("東京", "in", "twin", "padding")]
    assert np.flatnonzero(data.kept).tolist() == kept
    assert [row.index for row in data.unargmaxable] == [6, 7]
    # Who beats them or equals them is told, kept or not.
    assert data.unargmaxable[1].rival == 0
    assert data.verdict.startswith("2 of 3 classes that this report tells about can never")
    assert "5 of 9 are left out, 2 of them unargmaxable" in data.filtered
    assert data.counts["excluded"] == 1
    assert report.counts["unargmaxable"] == 4


def test_a_filter_of_classes_without_names_keeps_all() -> None:
    data = report_data(plain_report(40), "x", chosen=ClassFilter(scripts=("Han",)))
    assert data.kept.all()
    assert "no names" in data.filtered
    assert "tells about" not in data.verdict


def test_verdicts() -> None:
    free = report_data(plain_report(40, domain="free"), "x")
    assert all(math.isnan(row.share) for row in free.unargmaxable)
    assert "inputs of any size" in free.problem
    cut = report_data(plain_report(400, time_limit=0), "x")
    undecided = cut.counts["undecided"]
    assert undecided
    assert f"{undecided:,} are undecided" in cut.verdict
    assert [row.status for row in cut.undecided] == [Status.UNDECIDED] * undecided
    nobody = report_data(hostile_report(), "x", chosen=ClassFilter(pattern="^nothing$"))
    assert nobody.verdict == "There are no classes that this report tells about."
