"""What a check looks like on a dashboard: tags, scalars and a table of names, as plain data."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.early_warning import AtRisk
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.label_set_monitor import LabelSetFinding
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report, printable

MAX_ROWS = 50
"""Most classes that a table lists."""

_SPACE = "\N{OPEN BOX}"
_MOST_LABELS = 12
"""Of a set."""
_CARRIER = "\N{DOTTED CIRCLE}"
_MOST_CHARACTERS = 48
"""Of a name; its width alone bounds nothing, as combining characters have none."""
_MOST_MARKS = 4
"""Combining characters in a row: more would cover the lines above and below."""
_MARKUP = re.compile(r"[&<>|`*_~\[\]\\$]")


def text_tag(head: str) -> str:
    """Tag of the table."""
    return f"unarg/{head}/unargmaxable"


def risk_tag(head: str) -> str:
    """Tag of the table of classes at risk."""
    return f"unarg/{head}/at_risk"


@dataclass(frozen=True)
class Table:
    """Who can't be predicted, and since when.

    Args:
        caption: sentences to stand above the rows.
        columns: their headings.
        rows: a cell for each column, safe to print but not yet escaped for Markdown.
        more: how many rows were left out.
        stable: the cell that rows are told apart by; None for all but the last.
    """

    caption: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    more: int = 0
    stable: int | None = None

    @property
    def content(self) -> tuple[object, ...]:
        """What changes only when somebody appears, goes, or becomes decided."""
        if self.stable is not None:
            return (self.columns, frozenset(row[self.stable] for row in self.rows), self.more)
        return (self.columns, tuple(row[:-1] for row in self.rows), self.more)

    def markdown(self) -> str:
        """The table in Markdown; no name can end a cell, a row or the table, or start markup."""
        lines = ["\n\n".join(_escaped(sentence) for sentence in self.caption)]
        if self.rows:
            right = {"class", "rows", "since step", "lead, % of range", "change a check"}
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
    listed = ranked(report, record.step, provable_since, potential_since)
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


def sets_tag(head: str) -> str:
    """Tag of the table of label sets."""
    return f"unarg/{head}/label_sets"


def sets_table(step: int, found: LabelSetFinding, limit: int = MAX_ROWS) -> Table:
    """The table of the label sets of training that are out of reach, the most frequent first.

    Args:
        step: of the check.
        found: what it found.
        limit: most rows.
    """
    report, asked, numbers = found.report, found.asked, found.numbers()
    lost = found.out_of_reach
    caption = [
        f"Step {step:,}: of {len(asked.sets):,} different label sets that training has seen, "
        f"{len(lost):,} are provably out of reach and {int(numbers['undecided']):,} undecided, for "
        f"inputs in {report.domain} and the rule {report.rule}. "
        f"{numbers['rows_out_of_reach']:.1%} of the rows have a set out of reach."
    ]
    if not asked.exact:
        caption.append(
            "Every set that this head puts out is one of largest logits, so these proofs hold; but "
            "a set that isn't listed may be out of reach as well."
        )
    if asked.left_out:
        caption.append(f"{asked.left_out:,} rows are not counted: too many different sets.")
    rows = tuple(
        (
            f"{int(asked.times[at]):,}",
            _labels(found, at),
            str(int(found.since[at])),
        )
        for at in lost[:limit].tolist()
    )
    columns = ("rows", "labels", "since step")
    more = max(len(lost) - limit, 0)
    return Table(tuple(caption), columns, rows, more, stable=1)


def _labels(found: LabelSetFinding, at: int) -> str:
    members, known = np.flatnonzero(found.asked.sets[at]).tolist(), found.report.names
    ids = found.asked.ids.tolist()
    names = [str(ids[i]) if known is None else visible(known[i]) for i in members]
    listed = ", ".join(names[:_MOST_LABELS])
    more = f" and {len(names) - _MOST_LABELS:,} more" if len(names) > _MOST_LABELS else ""
    return f"{listed}{more}" if names else "(none)"


def tables_of(finding: Finding) -> dict[str, Table]:
    """The tables of a check by tag; of one that was skipped only the first, which says why.

    Args:
        finding: of the check.
    """
    record, report = finding.record, finding.report
    since = finding.provable_since, finding.potential_since
    tables = {text_tag(finding.head): table(record, report, *since)}
    if report is not None:
        tables[risk_tag(finding.head)] = risk_table(record, report, finding.at_risk)
    if finding.label_sets is not None:
        tables[sets_tag(finding.head)] = sets_table(record.step, finding.label_sets)
    return tables


def since_step(finding: Finding, index: int) -> int | None:
    """Step since which a class has been unargmaxable or undecided; None if it is neither.

    Args:
        finding: of a check that was made.
        index: the class.
    """
    status = None if finding.report is None else finding.report.status[index]
    if status == Status.UNARGMAXABLE:
        return finding.provable_since.get(index, finding.record.step)
    if status == Status.UNDECIDED:
        return finding.potential_since.get(index, finding.record.step)
    return None


def ranked(
    report: Report,
    step: int,
    provable_since: Mapping[int, int],
    potential_since: Mapping[int, int],
) -> list[tuple[int, int]]:
    """(class, since) of the unargmaxable, the latest to appear first, then of the undecided.

    Args:
        report: what a check found.
        step: when it was made; it stands for steps that aren't known.
        provable_since: step since which each class has been proven unargmaxable.
        potential_since: the same for classes that the search left unproven.
    """
    return [
        *_ranked(report, Status.UNARGMAXABLE, provable_since, step),
        *_ranked(report, Status.UNDECIDED, potential_since, step),
    ]


def visible(name: str) -> str:
    r"""A class name in which every character can be seen: controls escaped, outer spaces marked.

    It is at most 24 columns wide, and of bounded length whatever it is made of.

    >>> visible(" a b\n")
    '␣a b\\n'
    """
    kept = _bounded(name)
    text = re.sub(r"^ +| +$| {2,}", lambda match: _SPACE * len(match[0]), printable(kept))
    if unicodedata.combining(text[:1] or " "):
        text = _CARRIER + text
    cut = len(kept) < len(name) and not text.endswith("...")
    return (text + "..." if cut else text) or "(empty)"


def _bounded(name: str) -> str:
    """The start of a name, without combining characters that are too many in a row."""
    kept, marks = [], 0
    for character in name[:_MOST_CHARACTERS]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MOST_MARKS:
            kept.append(character)
    return "".join(kept)


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
