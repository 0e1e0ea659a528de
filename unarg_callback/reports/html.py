"""What a check found, as one HTML page that needs nothing else: no network, no script to be read.

With scripts off everything is there but search and sorting. Names come from files that others made:
each is escaped, and the page's own policy allows it no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from unarg_callback.dashboards.tables import visible
from unarg_callback.geometry.proof import Status
from unarg_callback.reports.answers import Section
from unarg_callback.reports.charts import Dots, histogram, scatter
from unarg_callback.reports.data import ReportData, Row, domain_text, figure

_KINDS = (
    ("argmaxable", "some input makes them the argmax: each has a witness"),
    ("unargmaxable", "no input makes them the argmax: each has a certificate"),
    ("undecided", "no proof either way"),
    ("excluded", "take no part in the problem"),
)
_HEADINGS = {
    "unargmaxable": "Classes that can never be the argmax",
    "duplicates": "Classes that equal another",
    "undecided": "Undecided classes",
    "nearest": "Nearest to unargmaxable",
}


def to_html(data: ReportData) -> str:
    """The page, in UTF-8 with every character of a name escaped that could be markup.

    Args:
        data: what to tell.
    """
    script, style = _asset("page.js"), _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = escape(data.title)
    body = "".join(
        (
            _header(data, title),
            _section("unargmaxable", _unargmaxable(data)),
            _section("duplicates", _duplicates(data)),
            _section("undecided", _undecided(data)),
            _section("nearest", _nearest(data)),
            *(_answer(data, n, one) for n, one in enumerate(data.answers.sections(data.kept))),
            '<section id="charts"><h2>How hard each class was</h2>' + _steps(data) + "</section>",
            '<section id="leads"><h2>How far classes lead</h2>' + _leads(data) + "</section>",
            '<section id="proofs"><h2>Domain and proofs</h2>' + _proofs(data) + "</section>",
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Unargmaxable classes of {title}</title>\n<style>{style}</style></head>\n"
        f"<body>{body}<script>{script}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return (files("unarg_callback.reports") / name).read_text(encoding="utf-8")


def _header(data: ReportData, title: str) -> str:
    counts = data.counts
    total = max(sum(counts[kind] for kind, _ in _KINDS), 1)
    shown = [(kind, text) for kind, text in _KINDS if counts[kind] or kind != "excluded"]
    tiles = "".join(
        f'<div class="tile {kind}"><dt>{kind}</dt><dd><b>{counts[kind]:,}</b> '
        f"<span>{text}</span></dd></div>"
        for kind, text in shown
    )
    bar = "".join(
        f'<i class="{kind}" style="flex-grow:{counts[kind] / total:.6f}"></i>'
        for kind, _ in shown
        if counts[kind]
    )
    answers = data.answers.sections(data.kept)
    links = "".join(
        f'<a href="#{name}">{heading}</a>'
        for name, heading in (
            ("unargmaxable", "Unargmaxable"),
            ("duplicates", "Duplicates"),
            *([("undecided", "Undecided")] if data.undecided else []),
            ("nearest", "Nearest"),
            *((f"answer{n}", escape(s.heading)) for n, s in enumerate(answers)),
            ("charts", "Steps"),
            ("leads", "Leads"),
            ("proofs", "Domain and proofs"),
        )
    )
    warnings = [] if data.report.complete else ["The time limit cut this check short."]
    warnings += [data.filtered] if data.filtered else []
    notes = "".join(f'<p class="note">{escape(text)}</p>' for text in warnings)
    return (
        f"<header><p class=over>Which classes can this layer output?</p><h1>{title}</h1>"
        f"<p>{escape(data.problem)}</p><p class=verdict>{escape(data.verdict)}</p>{notes}"
        f'<dl class="tiles">{tiles}</dl><div class="bar" aria-hidden="true">{bar}</div>'
        f"<nav>{links}</nav></header>"
    )


def _section(name: str, content: str) -> str:
    return f'<section id="{name}"><h2>{_HEADINGS[name]}</h2>{content}</section>' if content else ""


def _unargmaxable(data: ReportData) -> str:
    if not data.unargmaxable:
        return "<p>None.</p>"
    text = (
        "Whatever the input, some other class has a logit at least as high. The bound is the most "
        "by which the class could ever lead; below zero it always loses by that much."
    )
    return _table(data, "unargmaxable", data.unargmaxable, text)


def _duplicates(data: ReportData) -> str:
    if not data.duplicates:
        return "<p>None: no two classes have the same row and bias.</p>"
    text = (
        "Each has the row and bias of another class, so neither ever leads the other. Which of two "
        "equal logits is the argmax depends on the device."
    )
    return _table(data, "duplicates", data.duplicates, text)


def _undecided(data: ReportData) -> str:
    if not data.undecided:
        return ""
    text = "There is no proof either way: a limit was reached, or a solver failed."
    return _table(data, "undecided", data.undecided, text)


def _nearest(data: ReportData) -> str:
    if not data.nearest:
        return "<p>None: there are no argmaxable classes.</p>"
    text = f"{data.nearness} A small change of the layer may make them unargmaxable."
    return _table(data, "nearest", data.nearest, text)


def _answer(data: ReportData, number: int, section: Section) -> str:
    names = data.report.names
    number_or_word = "n" if section.rows and not isinstance(section.rows[0][1], str) else ""
    heads = [("class", "n"), *([] if names is None else [("name", "")])]
    heads.append((section.column, number_or_word))
    body = []
    for index, cell in section.rows:
        name = "" if names is None else f"<td><bdi>{escape(visible(names[index]))}</bdi>"
        shown = cell if isinstance(cell, str) else figure(cell)
        body.append(f"<tr><td>{index}{name}<td>{shown}")
    heading = escape(section.heading)
    content = _rows(heading, names is not None, heads, body) if body else ""
    return (
        f'<section id="answer{number}"><h2>{heading}</h2><p>{escape(section.note)}</p>{content}'
        "</section>"
    )


def _table(data: ReportData, name: str, rows: tuple[Row, ...], text: str) -> str:
    named, ranged = data.report.names is not None, math.isfinite(data.report.scale)
    heads = [("class", "n"), *([("name", "")] if named else [])]
    bounded = name not in ("undecided", "duplicates")
    deepened = name == "nearest" and data.closest.deepened > 0
    if bounded:
        least = "best lead at least" if deepened else "lead at least"
        heads.append((least if name == "nearest" else "lead at most", "n"))
        heads += [("% of range", "n w")] if ranged else []
        heads += [("at most", "n")] if deepened else []
    if name != "nearest":
        heads.append(("equals" if name == "duplicates" else "beaten by", ""))
    heads.append(("steps", "n w"))
    body = [_cells(row, name, named, bounded, ranged, deepened) for row in rows]
    return f"<p>{escape(text)}</p>{_rows(_HEADINGS[name], named, heads, body)}"


def _rows(heading: str, named: bool, heads: Sequence[tuple[str, str]], body: Sequence[str]) -> str:
    """A table that can be searched and sorted; all is escaped already."""
    head = "".join(f'<th class="{kind}">{label}' for label, kind in heads)
    # Rows are many: what holds for a column is said once, by its number.
    kinds = [f"{kind}{at}" for at, (_, every) in enumerate(heads, 1) for kind in every.split()]
    columns = " ".join(kinds)
    return (
        f'<div class="find" hidden><label>Search <input type="search" '
        f'placeholder="{"name or class" if named else "class"}"></label>'
        f'<output>{len(body):,} classes</output></div><div class="rows" tabindex="0" role="region" '
        f'aria-label="{heading}"><table class="{columns}"><thead><tr>{head}'
        f"<tbody>{''.join(body)}</table></div>"
    )


def _cells(row: Row, name: str, named: bool, bounded: bool, ranged: bool, deepened: bool) -> str:
    cells = [f"<td>{row.index}"]
    if named:
        cells.append(f"<td><bdi>{escape(row.name)}</bdi>")
    if bounded:
        cells.append(f"<td>{figure(row.lead)}")
        if ranged:
            cells.append(f"<td>{figure(row.share)}")
        if deepened:
            cells.append(f"<td>{figure(row.most)}")
    if name != "nearest":
        equal = "equals " if name == "unargmaxable" and row.equal else ""
        other = "" if row.rival < 0 else f"{equal}{row.rival} <bdi>{escape(row.rival_name)}</bdi>"
        cells.append(f"<td>{other}")
    cells.append(f"<td>{row.steps}")
    return f"<tr>{''.join(cells)}"


def _steps(data: ReportData) -> str:
    report, kept = data.report, data.kept
    settled = kept & (report.status == Status.ARGMAXABLE)

    def dots(label: str, style: str, mask: NDArray[np.bool_], lift: int = 0) -> Dots:
        ids = np.flatnonzero(mask)
        return Dots(label, style, ids, report.reflections[ids], lift)

    kinds = [
        dots("argmaxable", "argmaxable", settled & ~report.potential),
        dots("argmaxable, though the search failed", "hard", settled & report.potential),
        dots("undecided", "undecided", kept & (report.status == Status.UNDECIDED), 8),
        dots("unargmaxable", "unargmaxable", kept & (report.status == Status.UNARGMAXABLE), 8),
    ]
    legend = "".join(
        f'<span class="{kind.style}">{kind.label} <b>{len(kind.x):,}</b></span>'
        for kind in kinds
        if len(kind.x)
    )
    return (
        "<p>Each dot is a class: how often the search reflected its point before some class won "
        "with proof, or the search gave up. Vocabularies mostly count down from the most frequent "
        "token, so that rare ones are to the right. Unargmaxable ones are drawn a little "
        "higher.</p>"
        f"<p class=legend>{legend}</p>"
        + scatter(kinds, report.classes, "class id (frequency rank in most vocabularies)", "steps")
    )


def _leads(data: ReportData) -> str:
    report = data.report
    ranged = math.isfinite(report.scale) and report.scale > 0
    unit, scale = (
        ("% of the range of the logits", report.scale / 100) if ranged else ("logits", 1.0)
    )
    leads = report.lead / scale
    parts = []
    # A class without rivals leads by infinity.
    winners = leads[data.kept & (report.status == Status.ARGMAXABLE) & np.isfinite(leads)]
    if len(winners):
        low, middle = np.quantile(winners, [0.0, 0.5])
        parts.append(
            f"<p>Argmaxable classes lead by at least {figure(low)}, in the median by "
            f"{figure(middle)} ({unit}), at the inputs that the check found for them.</p>"
            + histogram(winners, "argmaxable", f"leads by at least, {unit}", "classes")
        )
    losers = -leads[data.kept & (report.status == Status.UNARGMAXABLE)]
    if len(losers):
        middle, high = np.quantile(losers, [0.5, 1.0])
        parts.append(
            f"<p>Unargmaxable classes always lose by at least {figure(max(middle, 0.0))} in the "
            f"median and {figure(max(high, 0.0))} at most ({unit}), as far as their certificates "
            "tell; those that may tie stand at the left end.</p>"
            + histogram(losers, "unargmaxable", f"loses by at least, {unit}", "classes")
        )
    return "".join(parts) or "<p>There are no classes with a verdict.</p>"


def _proofs(data: ReportData) -> str:
    report = data.report
    counts = report.counts
    scale = f"{report.scale:.4g}" if math.isfinite(report.scale) else "infinite"
    facts = [
        ("Layer", " ".join(data.source) or data.title),
        ("Inputs", f"{report.domain}: every entry {_within(data)}"),
        ("Range of the logits", f"{scale} over these inputs"),
        ("Least lead", f"{report.min_lead:.3g}: a class that leads by no more counts as tied"),
        ("Proofs", data.proofs),
        (
            "The search alone",
            f"left {counts['potentially_unargmaxable']:,} classes unproven (potentially "
            "unargmaxable); exact linear programming settled what is not undecided",
        ),
        ("Time", f"{report.seconds:,.3g} seconds{'' if report.complete else ', cut short'}"),
        *(("Note", note) for note in report.notes),
        (
            "Check again",
            "unarg check FILE --proofs proofs.npz saves all proofs, and unarg recheck proofs.npz "
            "FILE checks them in exact arithmetic with none of the code that made them",
        ),
    ]
    return "<dl>" + "".join(f"<dt>{k}<dd>{escape(v)}" for k, v in facts) + "</dl>"


def _within(data: ReportData) -> str:
    return domain_text(str(data.report.domain))
