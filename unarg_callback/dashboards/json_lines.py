"""A run as JSON lines: one record a check, in a file beside the other logs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from unarg_callback.dashboards.storage import append_line, read_bytes
from unarg_callback.dashboards.tables import MAX_ROWS, ranked
from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.label_set_monitor import LabelSetFinding
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report

FILE_NAME = "unargmaxability.jsonl"

_MOST_CHARACTERS = 64
"""Of a name."""
_NOT_COUNTS = frozenset({"step", "due", "skipped"})


class JsonLines:
    """Appends one record a check to ``<folder>/unargmaxability.jsonl``.

    Each is one line, written at once, so that a run that is killed leaves at most the last line
    torn. A run that is resumed goes on in the same file, which several heads may share.

    Args:
        folder: where the run keeps its logs: a path, or a URL that fsspec can open.
    """

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise UnargError(f"folder is {folder!r}; expected a path or a URL")
        self.path = f"{str(folder).rstrip('/') or '/'}/{FILE_NAME}"

    def show(self, finding: Finding, *, seen: bool = False) -> None:
        """Append the record of one check; see :func:`json_record`.

        Args:
            finding: of the check.
            seen: whether there was one of this head at the same step; it has its record too.

        Raises:
            OSError: the file can't be written.
            ImportError: the package for this kind of URL is missing.
            ValueError: there is no such kind of URL.
        """
        append_line(self.path, json_line(json_record(finding)).encode())

    def finish(self, finding: Finding, layer: OutputLayer) -> None:
        """Nothing is left to do: the last record is there."""


def json_record(finding: Finding) -> dict[str, Any]:
    """One check as builtins that JSON can hold.

    ============== ================================================================================
    ``time``       when the record was made: ISO 8601, UTC
    ``version``    of this package
    ``head``       the head's part of each tag
    ``step``       optimizer steps taken when the layer was copied
    ``due``        step at which the check fell due
    ``skipped``    why there was no check, else null
    ``domain``     where the layer's input may lie; null if skipped
    the fields of  :class:`~unarg_callback.monitoring.record.CheckRecord` under their names; null
                   if skipped
    ``events``     a list of ``kind``, ``count``, and the first 50 ``classes`` and ``names``
    ``unargmaxable`` the first 50 of those unargmaxable and undecided: ``class``, ``token``,
                   ``status``, ``since_step``, ``rival``, ``rival_token``, ``duplicate_of``
    ``at_risk``    the first 50: ``class``, ``token``, ``lead`` and ``trend``, both relative to the
                   range of the logits
    ``out_of_reach`` the first 50 label sets of training that are provably so: ``labels``,
                   ``names``, ``rows``, ``since_step``
    ``notes``      what a reader should know besides
    ============== ================================================================================

    Numbers that aren't finite are null. Names are cut after 64 characters.

    Args:
        finding: of the check.
    """
    import unarg_callback  # Its version is set before any module is.

    record, report = finding.record, finding.report
    lines: dict[str, Any] = {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "version": unarg_callback.__version__,
        "head": finding.head,
        "step": record.step,
        "due": record.due,
        "skipped": record.skipped,
        "domain": None if report is None else str(report.domain),
        **_counts(record),
        "events": [_event(event) for event in finding.events],
        "unargmaxable": [] if report is None else _unargmaxable(finding, report),
        "at_risk": [] if report is None else _at_risk(finding, report),
        "out_of_reach": [] if finding.label_sets is None else _out_of_reach(finding.label_sets),
        "notes": [] if report is None else list(report.notes),
    }
    finite: dict[str, Any] = _finite(lines)
    return finite


def json_line(record: Mapping[str, Any]) -> str:
    r"""A record as one line of strict JSON, without its line feed.

    What isn't printable is escaped, so that no program sees more than one line in it.

    Args:
        record: builtins, numbers finite.

    Raises:
        ValueError: a number isn't finite.

    >>> json_line({"token": "ы\\u2028"})
    '{"token": "ы\\\\u2028"}'
    """
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else "".join(map(_escaped, text))


def read_json_lines(path: str | Path) -> list[dict[str, Any]]:
    """The records of a file, in order; lines that are torn are left out.

    Args:
        path: of the file, or of the folder that :class:`JsonLines` was given; or a URL.

    Raises:
        OSError: it can't be read.
    """
    text = str(path)
    file = text if text.endswith(".jsonl") else f"{text.rstrip('/')}/{FILE_NAME}"
    records = []
    for line in read_bytes(file).split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _counts(record: CheckRecord) -> dict[str, Any]:
    """The fields that have one line each above; of a skipped check nothing is known."""
    fields = {key: value for key, value in record.to_dict().items() if key not in _NOT_COUNTS}
    return fields if record.skipped is None else dict.fromkeys(fields)


def _event(event: Event) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "count": len(event.classes),
        "classes": list(event.classes[:MAX_ROWS]),
        "names": [_short(name) for name in event.names[:MAX_ROWS]] if event.names else None,
    }


def _unargmaxable(finding: Finding, report: Report) -> list[dict[str, Any]]:
    step = finding.record.step
    members = ranked(report, step, finding.provable_since, finding.potential_since)
    rows = []
    for index, since in members[:MAX_ROWS]:
        rival, twin = _known(report.rival[index]), _known(report.duplicate_of[index])
        rows.append(
            {
                "class": index,
                "token": _token(report, index),
                "status": Status(int(report.status[index])).name.lower(),
                "since_step": since,
                "rival": rival,
                "rival_token": _token(report, rival),
                "duplicate_of": twin,
            }
        )
    return rows


def _at_risk(finding: Finding, report: Report) -> list[dict[str, Any]]:
    return [
        {
            "class": entry.index,
            "token": _token(report, entry.index),
            "lead": entry.lead,
            "trend": entry.trend,
        }
        for entry in finding.at_risk[:MAX_ROWS]
    ]


def _out_of_reach(found: LabelSetFinding) -> list[dict[str, Any]]:
    rows, names = [], found.report.names
    for at in found.out_of_reach[:MAX_ROWS].tolist():
        members = np.flatnonzero(found.asked.sets[at])[:MAX_ROWS]
        rows.append(
            {
                "labels": found.asked.ids[members].tolist(),
                "names": None if names is None else [_short(names[i]) for i in members.tolist()],
                "rows": int(found.asked.times[at]),
                "since_step": int(found.since[at]),
            }
        )
    return rows


def _known(index: Any) -> int | None:
    return int(index) if index >= 0 else None


def _token(report: Report, index: int | None) -> str | None:
    return None if index is None or report.names is None else _short(report.name(index))


def _short(name: str) -> str:
    return name if len(name) <= _MOST_CHARACTERS else name[:_MOST_CHARACTERS] + "..."


def _finite(value: Any) -> Any:
    """The same with null for each number that JSON can't hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value


def _escaped(character: str) -> str:
    """A character of JSON text; one that isn't printable can only be inside a string."""
    return character if character.isprintable() else json.dumps(character)[1:-1]
