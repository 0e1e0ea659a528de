from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unarg_callback import OutputLayer, Proofs, Status, verify
from unarg_callback.report import Report, printable
from unarg_callback.search.linear_program import LinearProgram

WEIGHT = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.1, 0.1], [1.0, 0.0], [0.0, 0.1], [9.0, 9.0]]
NAMES = ["north", "東京都", "a\tb\x1b[31m", "n\u0303o", "twin", "‮evil", "padding"]


def report_of(names: list[str] | None = NAMES, **options: Any) -> Report:
    return verify(OutputLayer(WEIGHT, names=names, excluded=[6]), **options)


def columns(text: str) -> int:
    """Width in a terminal, as ``wcwidth`` counts it for the characters used here."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def strict(text: str) -> Any:
    """Parse JSON as the standard has it: no NaN, no Infinity, no key twice."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


# --- JSON -----------------------------------------------------------------------------------------


def test_the_json_is_as_issue_2_lists_it() -> None:
    found = strict(report_of().to_json())
    assert list(found) == [
        "classes",
        "dim",
        "domain",
        "min_lead",
        "counts",
        "unargmaxable",
        "seconds",
        "complete",
    ]
    assert list(found["counts"]) == [
        "argmaxable",
        "unargmaxable",
        "undecided",
        "excluded",
        "potentially_unargmaxable",
        "duplicates",
    ]
    assert all(type(count) is int for count in found["counts"].values())
    for entry in found["unargmaxable"]:
        assert list(entry) == ["class", "name", "bound", "duplicate_of"]
        assert type(entry["class"]) is int
        assert type(entry["name"]) is str
        assert type(entry["bound"]) is float
    assert (found["classes"], found["dim"], found["complete"]) == (7, 2, True)
    assert type(found["seconds"]) is float
    assert type(found["min_lead"]) is float
    assert found["domain"] == "box:-100,100"
    listed = {entry["class"]: entry for entry in found["unargmaxable"]}
    assert sorted(listed) == [0, 3, 4, 5]
    assert listed[0]["duplicate_of"] == 4
    assert listed[4] == {"class": 4, "name": "twin", "bound": 0.0, "duplicate_of": 0}
    assert listed[3]["duplicate_of"] is None
    assert listed[3]["name"] == "n\u0303o"


@pytest.mark.parametrize(
    ("weight", "domain"),
    [
        ([[1.0], [0.0], [-1.0]], "free"),
        ([[1.0]], "box:100"),  # Its only class has an infinite lead.
        ([[1.0], [1.0]], "box:0"),
        ([[1e300], [0.0], [-1e300]], "box:1"),
    ],
)
def test_the_json_is_strict(weight: list[list[float]], domain: str) -> None:
    strict(verify(OutputLayer(weight), domain).to_json())


def test_all_excluded_is_strict_too() -> None:
    found = strict(verify(OutputLayer([[1.0], [2.0]], excluded=[0, 1])).to_json())
    assert found["counts"]["excluded"] == 2
    assert found["unargmaxable"] == []


def test_the_file_is_the_text_in_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    text = report_of().to_json(path)
    assert path.read_bytes() == text.encode() + b"\n"
    assert "n\u0303o" in text


def test_names_that_utf_8_can_not_hold_are_written(tmp_path: Path) -> None:
    """Byte-level vocabularies read with ``surrogateescape``, or ``\\ud800`` in a labels' JSON."""
    path = tmp_path / "report.json"
    layer = OutputLayer([[1.0], [0.0], [-1.0]], names=["a", "\ud800", "\udcff"])
    verify(layer).to_json(path)
    (entry,) = strict(path.read_text(encoding="utf-8"))["unargmaxable"]
    assert entry["name"] == "\ud800"


# --- counts ---------------------------------------------------------------------------------------


def assert_adds_up(report: Report) -> None:
    counts = report.counts
    kinds = ("argmaxable", "unargmaxable", "undecided", "excluded")
    assert sum(counts[kind] for kind in kinds) == report.classes == len(report.status)
    assert counts["potentially_unargmaxable"] >= counts["undecided"]
    proofs = report.proofs
    assert len(proofs.witness_class) == counts["argmaxable"]
    assert len(proofs.certificate_class) == counts["unargmaxable"]
    assert (proofs.status == report.status).all()
    decided = np.isin(report.status, [Status.ARGMAXABLE, Status.UNARGMAXABLE])
    assert (np.isnan(report.lead) == ~decided).all()
    assert (report.lead[report.ids(Status.ARGMAXABLE)] > report.min_lead).all()
    assert (report.lead[report.ids(Status.UNARGMAXABLE)] <= report.min_lead).all()
    for status in Status:
        assert (report.status[report.ids(status)] == status).all()
    assert (report.rival[report.ids(Status.ARGMAXABLE)] == -1).all()
    assert (report.rival[report.ids(Status.UNARGMAXABLE)] >= 0).all()


@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_counts_add_up(domain: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-2, 3, size=(80, 3)).astype(float)
    report = verify(OutputLayer(weight, excluded=range(5)), domain)
    assert_adds_up(report)
    assert report.counts["excluded"] == 5
    twins = [i for i in range(5, 80) if (weight[5:] == weight[i]).all(1).sum() > 1]
    assert np.flatnonzero(report.duplicate_of >= 0).tolist() == twins
    assert report.counts["duplicates"] == len(twins)
    assert (report.status[twins] == Status.UNARGMAXABLE).all()


def test_counts_add_up_where_time_ran_out() -> None:
    report = report_of(time_limit=0.0)
    assert_adds_up(report)
    assert not report.complete
    assert report.counts["undecided"] > 0
    assert "cut short by the time limit" in report.summary()
    assert strict(report.to_json())["complete"] is False


# --- the table ------------------------------------------------------------------------------------


def test_every_line_fits_80_columns_and_has_no_controls() -> None:
    names = [name * 9 for name in NAMES]
    text = report_of(names).table()
    for line in text.split("\n"):
        assert columns(line) <= 80
        assert line.isprintable()
    assert "\\x1b" not in text  # Class 2 is argmaxable, and its name is not shown.


def test_columns_stand_under_each_other_in_a_terminal() -> None:
    names = ["東京", "x", "y", "n\u0303o", "대한민국만세", "plain"]
    weight = [[0.0, 0.1], [0.0, 1.0], [1.0, -1.0], [0.1, 0.1], [-1.0, -1.0], [0.0, 0.0]]
    lines = verify(OutputLayer(weight, names=names)).table().split("\n")
    head = next(at for at, line in enumerate(lines) if line.startswith("class"))
    place = columns(lines[head][: lines[head].index("status")])
    rows = lines[head + 1 :]
    assert len(rows) == 3
    for row in rows:
        assert columns(row[: row.index("unargmaxable")]) == place


def test_the_table_says_who_beats_whom() -> None:
    lines = report_of().table().split("\n")
    assert lines[0] == "7 classes x 2 features, box:-100,100"
    assert lines[1].startswith("2 argmaxable, 4 provably unargmaxable, 0 undecided, 1 excluded")
    rows = {line.split()[0]: line for line in lines[3:]}
    assert "equals 4 twin" in rows["0"]
    assert "equals 0 north" in rows["4"]
    assert "<= " in rows["3"]
    assert "\\u202eevil" in rows["5"]


def test_without_names_ids_are_enough() -> None:
    text = report_of(None).table()
    assert "name" not in text
    assert "equals 4" in text


@pytest.mark.parametrize(("limit", "shown"), [(0, 0), (1, 1), (3, 3), (4, 4), (99, 4)])
def test_what_is_left_out_of_the_table_is_counted(limit: int, shown: int) -> None:
    lines = report_of(None).table(limit).split("\n")
    assert sum(line.split()[0].isdigit() for line in lines[3:] if line) == shown
    assert (f"... and {4 - shown} more" in lines) is (shown < 4)


def test_undecided_classes_are_shown_with_who_won_last(monkeypatch: pytest.MonkeyPatch) -> None:
    from unarg_callback.search.interior_point import InteriorPoint

    def fail(self: InteriorPoint) -> Any:
        return self.lead > np.inf

    monkeypatch.setattr(InteriorPoint, "step", fail)
    monkeypatch.setattr(LinearProgram, "solve", lambda self, seconds=1.0: None)
    report = report_of(domain="box:1")
    assert_adds_up(report)
    assert report.counts["undecided"] > 0
    text = report.table()
    assert "undecided" in text.split("class", 2)[-1]
    assert "unknown" in text


@settings(deadline=None, print_blob=True, max_examples=300)
@given(st.text(st.characters(), max_size=40), st.integers(4, 30))
def test_printable_names(name: str, width: int) -> None:
    text = printable(name, width)
    assert text.isprintable()
    assert columns(text) <= width
    if name.isprintable() and columns(name) <= width:
        assert text == name


# --- proofs on disk -------------------------------------------------------------------------------


def test_saved_proofs_are_those_of_the_report(tmp_path: Path) -> None:
    report = report_of()
    path = report.save_proofs(tmp_path / "proofs")
    assert path == tmp_path / "proofs.npz"
    loaded = Proofs.load(path)
    for key, value in vars(report.proofs).items():
        assert np.array_equal(vars(loaded)[key], value), key
