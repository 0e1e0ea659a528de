"""The page: all there without a script, nothing from outside, and no name that does harm."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.reports.layers import NAMES, hostile_report, plain_report
from unarg_callback import OutputLayer, Report, verify
from unarg_callback.class_filter import ClassFilter
from unarg_callback.reports import report_data, to_html

_VOID = {"meta", "input", "path"}
_OPEN = {"tr", "td", "th", "thead", "tbody", "dt", "dd"}
"""Whose end may be left out."""


class Page(HTMLParser):
    """The page's elements and texts, with a check that what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.section = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self.section = dict(attrs)["id"] or ""
        if tag == "tr":
            self.rows.setdefault(self.section, []).append([])
        if tag in ("td", "th"):
            self.rows[self.section][-1].append("")
        if tag not in _VOID and tag not in _OPEN:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID or tag in _OPEN:
            return
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        rows = self.rows.get(self.section)
        if rows and rows[-1] and "table" in self.stack:
            rows[-1][-1] += data


def page(report: Report, **options: object) -> tuple[str, Page]:
    text = to_html(report_data(report, "a<b>.npz", ["a.npz: W"], **options))  # type: ignore[arg-type]
    return text, Page(text)


def test_every_class_is_there_without_a_script() -> None:
    _, found = page(hostile_report())
    assert set(found.rows) == {"unargmaxable", "duplicates", "nearest"}
    head, *rows = found.rows["unargmaxable"]
    assert head == ["class", "name", "lead at most", "% of range", "beaten by", "steps"]
    assert [row[0] for row in rows] == ["0", "4", "6", "7"]
    assert rows[0][1] == "<script>alert(1)</scr..."
    assert rows[3][4] == "equals 0 <script>alert(1)</scr..."
    assert [row[0] for row in found.rows["duplicates"][1:]] == ["0", "7"]
    assert {row[1] for row in found.rows["nearest"][1:]} == {
        "東京",
        "a|b*_`c`",
        "</td></table><img src...",
        "\\x1b[31m\\u202eevil\\n",
    }


def test_nothing_comes_from_outside_and_no_name_is_markup() -> None:
    text, found = page(hostile_report())
    for _, attributes in found.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name != "src"
            assert name != "href" or (value or "").startswith("#")
    assert [tag for tag, _ in found.elements].count("script") == 1
    assert not re.search(r"(?i)https?://|url\(|@import", text)
    assert "img" not in {tag for tag, _ in found.elements}
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text
    assert "<title>Unargmaxable classes of a&lt;b&gt;.npz</title>" in text


def test_links_lead_somewhere() -> None:
    _, found = page(hostile_report())
    ids = {attributes.get("id") for _, attributes in found.elements}
    links = [a["href"] for tag, a in found.elements if tag == "a"]
    assert links
    assert all(str(link)[1:] in ids for link in links)


def test_layers_without_names_and_undecided_classes() -> None:
    text, found = page(plain_report(500, time_limit=0))
    assert found.rows["undecided"][0] == ["class", "beaten by", "steps"]
    assert "The time limit cut this check short." in text
    text, found = page(plain_report(domain="free"))
    assert found.rows["unargmaxable"][0] == ["class", "lead at most", "beaten by", "steps"]
    assert "(logits)" in text


@pytest.mark.parametrize("rows", [[[1.0]], [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]])
def test_layers_with_nothing_to_tell(rows: list[list[float]]) -> None:
    text, found = page(verify(OutputLayer(rows)))
    assert "None." in text
    assert "unargmaxable" not in found.rows


def test_all_excluded_or_filtered() -> None:
    text, _ = page(verify(OutputLayer([[1.0], [2.0]], excluded=[0, 1])))
    assert "There are no classes." in text
    text, found = page(hostile_report(), chosen=ClassFilter(pattern="^twin$"))
    assert [row[0] for row in found.rows["unargmaxable"][1:]] == ["7"]
    assert "are left out" in text


def test_a_name_is_told_exactly_once_a_cell() -> None:
    """As a reader sees it, and not as HTML spells it."""
    _, found = page(hostile_report())
    assert found.rows["unargmaxable"][2][1] == "\"quoted\" & 'so'"
    assert NAMES[4] == found.rows["unargmaxable"][2][1]


def test_a_large_layer_stays_small() -> None:
    """18,385 classes of which a quarter are unargmaxable, in less than 3 MB."""
    report = plain_report(400)
    times = 46
    many = {
        name: np.tile(getattr(report, name), times)
        for name in ("status", "lead", "reflections", "potential", "duplicate_of", "rival")
    }
    many["reflections"] = np.arange(400 * times) % 97
    names = tuple(f"▁{'слово' * (index % 3)}{index}" for index in range(400 * times))
    large = object.__new__(Report)
    large.__dict__.update({**vars(report), **many, "names": names})
    unargmaxable = large.counts["unargmaxable"]
    assert unargmaxable > 5000
    text = to_html(report_data(large, "large.npz"))
    assert len(text.encode()) < 3_000_000
    assert len(Page(text).rows["unargmaxable"]) == unargmaxable + 1
