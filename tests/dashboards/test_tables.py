"""Tables: whatever the names hold, a dashboard shows them as they are."""

from __future__ import annotations

import re
from html import unescape

import numpy as np
import pytest
from tensorboard.plugin_util import markdown_to_safe_html

from unarg_callback.dashboards.tables import Table, table, visible
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report, Reuse

A, U, D = Status.ARGMAXABLE, Status.UNARGMAXABLE, Status.UNDECIDED


def report(
    status: list[Status],
    names: list[str] | None = None,
    rival: list[int] | None = None,
    twin: list[int] | None = None,
) -> Report:
    nobody = [-1] * len(status)
    return Report(
        dim=2,
        domain=Domain.box(100.0),
        min_lead=0.0,
        scale=1.0,
        status=np.array(status, np.int8),
        lead=np.zeros(len(status)),
        measured=np.ones(len(status), bool),
        reflections=np.zeros(len(status), np.int64),
        rival=np.array(rival or nobody),
        duplicate_of=np.array(twin or nobody),
        potential=np.array([one in (U, D) for one in status]),
        names=None if names is None else tuple(names),
        age=np.zeros(len(status), np.int64),
        reuse=Reuse(),
        evidence=None,  # type: ignore[arg-type]
        seconds=0.5,
        complete=True,
    )


def shown(found: Report, **since: dict[int, int]) -> Table:
    record = CheckRecord(
        step=1200,
        classes=found.classes,
        provable=found.counts["unargmaxable"],
        undecided=found.counts["undecided"],
    )
    return table(record, found, since.get("provable", {}), since.get("potential", {}))


class TestTable:
    def test_rows(self) -> None:
        found = report([A, U, D, U], ["the", "le", "la", "les"], [-1, 0, 3, -1], [-1, -1, -1, 1])
        rows = shown(found, provable={1: 100, 3: 300}, potential={2: 200}).rows
        assert rows == (
            ("3", "les", "unargmaxable", "300", "equals 1 le"),
            ("1", "le", "unargmaxable", "100", "0 the"),
            ("2", "la", "undecided", "200", "3 les"),
        )

    def test_without_names_there_is_no_token_column(self) -> None:
        who = shown(report([A, U], rival=[-1, 0]), provable={1: 5})
        assert who.columns == ("class", "status", "since step", "beaten by")
        assert who.rows == (("1", "unargmaxable", "5", "0"),)

    def test_nobody(self) -> None:
        text = shown(report([A, A])).markdown()
        assert text.startswith("Step 1,200: 0 of 2 classes are provably unargmaxable")
        assert not any(line.startswith("| ") for line in text.splitlines())

    def test_long_tables_are_cut_and_say_so(self) -> None:
        who = shown(report([U] * 1234))
        assert (len(who.rows), who.more) == (50, 1184)
        assert who.markdown().endswith("\n\nand 1,184 more\n")

    def test_a_skipped_check_says_why(self) -> None:
        who = table(CheckRecord(step=7, skipped="weight has NaN"), None, {}, {})
        assert who.markdown() == "Step 7: not checked. weight has NaN\n"
        assert who.content != shown(report([A])).content

    def test_a_check_that_was_cut_short_says_so(self) -> None:
        who = table(CheckRecord(step=7, classes=1, complete=False), report([A]), {}, {})
        assert "cut this check short" in who.markdown()

    def test_content_ignores_the_step_and_the_rival(self) -> None:
        before = table(CheckRecord(step=1), report([A, U], rival=[-1, 0]), {1: 1}, {})
        same = table(CheckRecord(step=2), report([A, U], rival=[-1, -1]), {1: 1}, {})
        later = table(CheckRecord(step=2), report([A, U], rival=[-1, 0]), {1: 2}, {})
        assert before.content == same.content != later.content


HOSTILE = [
    "a|b",
    "`code`",
    "**bold** _it_ ~~no~~",
    "<script>alert(1)</script>",
    "<b>",
    "&lt;",
    "[x](http://e.org)",
    "![i](x.png)",
    "\\|",
    "a\tb",
    "a\nb",
    "a\r\n| c |",
    "\x1b[31mred",
    "\u202egnp.exe",
    "\u2028",
    "\ufeff",
    "\ud83d",
    " lead",
    "trail ",
    "two  spaces",
    " ",
    "",
    "$x$",
    "---",
    "# h",
    "| --- |",
    "1. x",
    "▁Straße",
    "日本",
    "https://e.org",
    "e\u0301",
    "\u0301",
    "\u0301" * 10_000,
    "a" + "\u0301" * 10_000,
    "\u200f\u05d0",
]


class TestHostileNames:
    @pytest.mark.parametrize("name", HOSTILE, ids=ascii)
    def test_one_cell_that_reads_as_the_name(self, name: str) -> None:
        found = report([A, U], ["plain", name], rival=[-1, 0])
        html = markdown_to_safe_html(shown(found, provable={1: 5}).markdown())
        cells = re.findall(r"<td[^>]*>(.*?)</td>", html, flags=re.DOTALL)
        assert len(cells) == 5
        assert unescape(cells[1]) == visible(name)
        assert "<" not in cells[1]
        assert cells[2:] == ["unargmaxable", "5", "0 plain"]

    @pytest.mark.parametrize("name", HOSTILE, ids=ascii)
    def test_nothing_invisible_is_left(self, name: str) -> None:
        text = visible(name)
        assert text.isprintable()
        assert text == text.strip()
        assert text
        text.encode()

    def test_names_that_differ_look_different(self) -> None:
        names = ["a", " a", "a ", "  a", "a\t", "a\n", "", " "]
        assert len({visible(name) for name in names}) == len(names)

    @pytest.mark.parametrize(
        "unit", ["x", "\u0301", "a\u0301\u0302", "日", " ", "\n", "\u202e", "|"]
    )
    def test_long_names_are_cut(self, unit: str) -> None:
        text = visible(unit * 10_000)
        assert len(text) <= 60
        assert text.endswith("...")
        assert visible(unit * 1000) == text

    def test_few_marks_stand_on_one_letter(self) -> None:
        assert visible("a" + "\u0301" * 6 + "b") == "a" + "\u0301" * 4 + "b..."
        assert visible("a" + "\u0301" * 4 + "b") == "a" + "\u0301" * 4 + "b"

    def test_a_mark_stands_on_its_own(self) -> None:
        assert visible("\u0301") == "\u25cc\u0301"
