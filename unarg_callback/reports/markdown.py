"""What a check found, in Markdown: for a model card, an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from unarg_callback.dashboards.tables import visible
from unarg_callback.geometry.proof import Status
from unarg_callback.reports.answers import Section
from unarg_callback.reports.data import ReportData, Row, figure

MOST_ROWS = 100
"""Of a table; what is left out is counted."""

_MOST_NEAREST = 20
_MARKUP = re.compile(r"[&<>|`*_~\[\]\\$#@!]|^[-+]|^\d+[.)](?= )")
_DUPLICATES = (
    "They have the row and bias of another class, so that neither ever leads the other; which of "
    "two equal logits is the argmax depends on the device."
)
_SIGNS = {
    Status.ARGMAXABLE: "\N{GREATER-THAN OR EQUAL TO} ",
    Status.UNARGMAXABLE: "\N{LESS-THAN OR EQUAL TO} ",
}


def to_markdown(data: ReportData, limit: int = MOST_ROWS) -> str:
    """Verdicts, tables of names, domain and proofs; no name can start markup.

    Args:
        data: what to tell.
        limit: most rows of a table.
    """
    report, counts = data.report, data.counts
    cut = "" if report.complete else "The time limit cut this check short."
    kinds = [kind for kind in counts if kind != "excluded" or counts[kind]]
    parts = [
        f"# Unargmaxable classes of {escaped(data.title)}",
        *_paragraphs([data.verdict, data.filtered, cut]),
        _grid(("verdict", "classes"), [(k.replace("_", " "), f"{counts[k]:,}") for k in kinds]),
    ]
    for heading, note, rows in (
        ("Classes that can never be the argmax", "", data.unargmaxable),
        ("Classes that equal another", _DUPLICATES, data.duplicates),
        ("Undecided classes", "There is no proof either way.", data.undecided),
        ("Nearest to unargmaxable", _nearness(data), data.nearest[:_MOST_NEAREST]),
    ):
        if rows:
            parts += [f"## {heading}", *_paragraphs([note]), _classes(data, rows[:limit])]
            parts += [f"and {len(rows) - limit:,} more"] if len(rows) > limit else []
    for section in data.answers.sections(data.kept):
        parts += [f"## {escaped(section.heading)}", *_paragraphs([section.note])]
        parts += [_answer(data, section, limit)] if section.rows else []
        more = len(section.rows) - limit
        parts += [f"and {more:,} more"] if more > 0 else []
    facts = [*data.source, f"{data.problem}.", f"Leads count above {report.min_lead:.3g}."]
    facts += [data.proofs, *report.notes, f"The check took {report.seconds:.3g} seconds."]
    parts += ["## Domain and proofs", *_paragraphs(facts)]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text as Markdown shows it character by character, on one line.

    >>> escaped("<b>|x*")
    '&#60;b&#62;&#124;x&#42;'
    """
    return _MARKUP.sub(_reference, " ".join(text.split()))


def _reference(match: re.Match[str]) -> str:
    """What would be markup as a character reference; of the start of a list its last character."""
    return f"{match[0][:-1]}&#{ord(match[0][-1])};"


def _paragraphs(sentences: Iterable[str]) -> list[str]:
    return [escaped(sentence) for sentence in sentences if sentence]


def _classes(data: ReportData, rows: Sequence[Row]) -> str:
    named = data.report.names is not None
    beaten = any(row.status != Status.ARGMAXABLE for row in rows)
    between = not beaten and data.closest.deepened > 0
    heads = ["class", *(["name"] if named else []), "best lead", "% of range"]
    heads += ["beaten by"] if beaten else []
    return _grid(
        heads,
        [
            (
                str(row.index),
                *((row.name,) if named else ()),
                _lead(row, between),
                figure(row.share),
                *((_rival(row),) if beaten else ()),
            )
            for row in rows
        ],
    )


def _answer(data: ReportData, section: Section, limit: int) -> str:
    names = data.report.names
    heads = ["class", *([] if names is None else ["name"]), section.column]
    return _grid(
        heads,
        [
            (
                str(index),
                *([] if names is None else [visible(names[index])]),
                cell if isinstance(cell, str) else figure(cell),
            )
            for index, cell in section.rows[:limit]
        ],
    )


def _nearness(data: ReportData) -> str:
    more = len(data.nearest) > _MOST_NEAREST
    return f"{data.nearness}{f' The first {_MOST_NEAREST} of these:' if more else ''}"


def _lead(row: Row, between: bool) -> str:
    if row.status == Status.ARGMAXABLE and between:
        return f"{figure(row.lead)} to {figure(row.most)}"
    return f"{_SIGNS.get(row.status, '')}{figure(row.lead)}"


def _rival(row: Row) -> str:
    if row.rival < 0:
        return ""
    return f"{'equals ' if row.equal else ''}{row.rival} {row.rival_name}".rstrip()


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    left = {"verdict", "name", "beaten by"}
    rule = [":---" if head in left else "---:" for head in heads]
    lines = [heads, rule, *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
