"""What a check looks like on a dashboard: tags, scalars and a table of names, as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.early_warning import AtRisk
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report, printable

MAX_ROWS = 50
"""Most classes that a table lists."""

_SPACE = "\N{OPEN BOX}"
_MARKUP = re.compile(r"[&<>|`*_~\[\]\\$]")


def head_name(path: str, name: str | None = None) -> str:
    """The head's part of each tag: the given name, or the attribute path, or "output".

    >>> head_name("decoder.generator"), head_name("", None), head_name("", "target words")
    ('decoder.generator', 'output', 'target_words')
    """
    return re.sub(r"[^\w./-]+", "_", name or path).strip("/") or "output"


def text_tag(head: str) -> str:
    """Tag of the table."""
    return f"unarg/{head}/unargmaxable"


def risk_tag(head: str) -> str:
    """Tag of the table of classes at risk."""
    return f"unarg/{head}/at_risk"


def scalars(head: str, record: CheckRecord) -> dict[str, float]:
    """Values of one check by tag; none if it was skipped.

    >>> sorted(scalars("generator", CheckRecord(step=10, classes=5, provable=2)))[0]
    'unarg/generator/duplicates'
    """
    if record.skipped is not None:
        return {}
    return {
        f"unarg/{head}/potential": float(record.potential),
        f"unarg/{head}/provable": float(record.provable),
        f"unarg/{head}/undecided": float(record.undecided),
        f"unarg/{head}/duplicates": float(record.duplicates),
        f"unarg_cost/{head}/seconds": record.seconds,
        f"unarg_cost/{head}/reflections": float(record.reflections),
        f"unarg_cost/{head}/reused": _reused(record),
        f"unarg_cost/{head}/late_steps": float(record.step - record.due),
        **{f"unarg_lead/{head}/{name}": value for name, value in record.leads.items()},
    }


@dataclass(frozen=True)
class Table:
    """Who can't be predicted, and since when.

    Args:
        caption: sentences to stand above the rows.
        columns: their headings.
        rows: a cell for each column, safe to print but not yet escaped for Markdown.
        more: how many rows were left out.
    """

    caption: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    more: int = 0

    @property
    def content(self) -> tuple[object, ...]:
        """What changes only when somebody appears, goes, or becomes decided."""
        return (self.columns, tuple(row[:-1] for row in self.rows), self.more)

    def markdown(self) -> str:
        """The table in Markdown; no name can end a cell, a row or the table, or start markup."""
        lines = ["\n\n".join(_escaped(sentence) for sentence in self.caption)]
        if self.rows:
            right = {"class", "since step", "lead, % of range", "change a check"}
            rule = ["---:" if column in right else ":---" for column in self.columns]
            cells = [self.columns, tuple(rule)]
            cells += [tuple(_escaped(cell) for cell in row) for row in self.rows]
            lines += ["", *(f"| {' | '.join(row)} |" for row in cells)]
        if self.more:
            lines += ["", f"and {self.more:,} more"]
        return "\n".join(lines) + "\n"


def table(
    record: CheckRecord,
    report: Report | None,
    provable_since: Mapping[int, int],
    potential_since: Mapping[int, int],
    limit: int = MAX_ROWS,
) -> Table:
    """The table of one check: the proven first, the latest to appear first, then the undecided.

    Args:
        record: the check.
        report: what it found, or None if it was skipped.
        provable_since: step since which each class has been proven unargmaxable.
        potential_since: the same for classes that the search left unproven.
        limit: most rows.
    """
    if report is None or record.skipped is not None:
        return Table((f"Step {record.step:,}: not checked. {record.skipped or ''}",), ())
    listed = [
        *_ranked(report, Status.UNARGMAXABLE, provable_since, record.step),
        *_ranked(report, Status.UNDECIDED, potential_since, record.step),
    ]
    named = report.names is not None
    columns = ("class", *(["token"] if named else []), "status", "since step", "beaten by")
    rows = tuple(_row(report, index, since) for index, since in listed[:limit])
    return Table(_caption(record, report), columns, rows, max(len(listed) - limit, 0))


def risk_table(
    record: CheckRecord, report: Report, at_risk: Sequence[AtRisk], limit: int = MAX_ROWS
) -> Table:
    """The table of argmaxable classes that may soon be lost, the most urgent first.

    Args:
        record: the check.
        report: what it found.
        at_risk: the classes.
        limit: most rows.
    """
    named = report.names is not None
    columns = ("class", *(["token"] if named else []), "lead, % of range", "change a check")
    rows = tuple(
        (
            str(entry.index),
            *((visible(report.name(entry.index)),) if named else ()),
            f"{100 * entry.lead:.3g}",
            f"{100 * entry.trend:+.2g}",
        )
        for entry in at_risk[:limit]
    )
    caption = (
        f"Step {record.step:,}: the argmaxable classes with the lowest leads to expect at the next "
        "check, in percent of the range of the logits.",
    )
    return Table(caption, columns, rows)


def visible(name: str) -> str:
    r"""A class name in which every character can be seen: controls escaped, outer spaces marked.

    >>> visible(" a b\n")
    '␣a b\\n'
    """
    text = re.sub(r"^ +| +$| {2,}", lambda match: _SPACE * len(match[0]), printable(name))
    return text or "(empty)"


def _reused(record: CheckRecord) -> float:
    """Share of the classes settled by what the check before had proven."""
    checked = record.classes - record.excluded
    return (record.kept + record.recertified) / checked if checked else 0.0


def _ranked(
    report: Report, status: Status, since: Mapping[int, int], step: int
) -> list[tuple[int, int]]:
    """(class, since) of all with a status, latest first."""
    members = [(index, since.get(index, step)) for index in report.ids(status).tolist()]
    return sorted(members, key=lambda member: (-member[1], member[0]))


def _row(report: Report, index: int, since: int) -> tuple[str, ...]:
    named = report.names is not None
    token = (visible(report.name(index)),) if named else ()
    status = Status(int(report.status[index])).name.lower()
    return (str(index), *token, status, str(since), _beaten_by(report, index))


def _beaten_by(report: Report, index: int) -> str:
    twin, rival = int(report.duplicate_of[index]), int(report.rival[index])
    other = twin if twin >= 0 else rival
    if other < 0:
        return ""
    text = str(other) if report.names is None else f"{other} {visible(report.name(other))}"
    return f"equals {text}" if twin >= 0 else text


def _caption(record: CheckRecord, report: Report) -> tuple[str, ...]:
    first = (
        f"Step {record.step:,}: {record.provable:,} of {record.classes:,} classes are provably "
        f"unargmaxable and {record.undecided:,} undecided, for inputs in {report.domain}."
    )
    changes = (
        f"New since the last check: {record.appeared:,}; argmaxable again: {record.returned:,}."
    )
    cut = () if record.complete else ("The time limit cut this check short.",)
    return (first, changes, *cut)


def _escaped(text: str) -> str:
    """Text as Markdown and HTML show it, character by character."""
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)
