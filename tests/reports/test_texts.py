"""Markdown, tab-separated values, and the summary of several models."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from tests.reports.layers import NAMES, hostile_report, plain_report
from unarg_callback.class_filter import ClassFilter
from unarg_callback.errors import UnargError
from unarg_callback.reports import report_data, to_markdown, to_tsv
from unarg_callback.reports.summary import HEADS, summary_markdown, summary_row, summary_text
from unarg_callback.reports.tsv import COLUMNS, escaped


def rows(text: str) -> list[list[str]]:
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("|")]


def test_markdown() -> None:
    text = to_markdown(report_data(hostile_report(), "# a.npz", ["1. a.npz: W"]))
    assert text.startswith("# Unargmaxable classes of &#35; a.npz\n\n4 of 8 classes can never")
    assert "| unargmaxable | 4 |" in text
    assert "| excluded | 1 |" in text
    assert "1&#46; a.npz: W" in text
    assert "| 6 | in | ≤ " in text
    assert "equals 0 &#60;script&#62;" in text
    # Every row of a table has as many cells as its head, whatever the names are.
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        assert len({len(row) for row in rows(table)}) == 1
    assert not re.search(r"[<`*]|\\\||\x1b|\u202e", text)


def test_long_tables_say_what_they_leave_out() -> None:
    report = plain_report()
    unargmaxable = report.counts["unargmaxable"]
    text = to_markdown(report_data(report, "x"), limit=3)
    assert f"and {unargmaxable - 3:,} more" in text
    assert "| class | best lead |" in text
    cut = to_markdown(report_data(plain_report(400, time_limit=0), "x"))
    assert "The time limit cut this check short." in cut
    assert "## Undecided classes" in cut


def test_tsv() -> None:
    report = hostile_report()
    lines = [line.split("\t") for line in to_tsv(report_data(report, "x")).split("\n")]
    assert lines.pop() == [""]
    assert tuple(lines[0]) == COLUMNS
    assert all(len(line) == len(COLUMNS) for line in lines)
    assert [line[2] for line in lines[1:]] == [
        ("undecided", "argmaxable", "unargmaxable", "excluded")[status] for status in report.status
    ]
    for index, line in enumerate(lines[1:]):
        assert int(line[0]) == index
        assert line[1] == escaped(NAMES[index])
        assert line[3] == ("" if np.isnan(report.lead[index]) else repr(float(report.lead[index])))
    assert lines[8][7] == "0"
    assert lines[9][3:7] == ["", "", "", ""]


def test_tsv_of_chosen_classes_and_without_names() -> None:
    chosen = ClassFilter(scripts=("Han",))
    assert to_tsv(report_data(hostile_report(), "x", chosen=chosen)).count("\n") == 2
    lines = to_tsv(report_data(plain_report(20, domain="free"), "x")).splitlines()
    assert len(lines) == 21
    assert all(line.split("\t")[1] == line.split("\t")[4] == "" for line in lines[1:])


def test_half_a_surrogate_pair_can_be_written() -> None:
    assert escaped("a\ud800\u2028\x85") == "a\\ud800\\u2028\\x85"
    escaped("\ud800").encode()


@pytest.mark.parametrize("form", [summary_text, summary_markdown])
def test_summary(form: object) -> None:
    assert callable(form)
    made = [
        summary_row("one.npz", hostile_report()),
        summary_row("東京|.npz", UnargError("no such\nfile | at all")),
        summary_row("three.npz", plain_report(400, time_limit=0)),
    ]
    text = form(made)
    assert text.count("\n") >= 4 or form is summary_markdown
    one = next(line for line in text.splitlines() if "one.npz" in line)
    assert one.replace("|", " ").split()[:7] == ["one.npz", "9", "2", "4", "4", "0", "2"] or (
        one.replace("|", " ").split()[4] == "4"
    )
    assert "not checked: no such file" in text
    assert "cut short" in text


def test_summary_counts_the_chosen_classes() -> None:
    row = summary_row("x", hostile_report(), ClassFilter(words=True))
    assert dict(zip(HEADS, row, strict=True))["unargmaxable"] == "2"
    assert dict(zip(HEADS, row, strict=True))["classes"] == "9"


@pytest.mark.parametrize(
    "name",
    ["=1+1", "+", "-x", "@a", "a=b", "\u202eabc", "\uff1dx", "\\x3d", "a b", "\xa0", "\u200d", ""],
)
def test_names_in_tabs_can_be_seen_and_had_back(name: str) -> None:
    text = escaped(name)
    assert text.isprintable()
    assert not text.startswith(("=", "+", "-", "@", "\uff1d"))
    assert ast.literal_eval("'" + text.replace("'", "\\'") + "'") == name
