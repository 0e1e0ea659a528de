"""The verdict of every class as tab-separated values, for other programs."""

from __future__ import annotations

import math
import re

from unarg_callback.geometry.proof import Status
from unarg_callback.reports.data import ReportData

COLUMNS = (
    "class",
    "name",
    "status",
    "lead",
    "lead_percent_of_range",
    "rival",
    "rival_name",
    "duplicate_of",
    "steps",
    "potentially_unargmaxable",
)
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def to_tsv(data: ReportData) -> str:
    r"""A heading, and a line for every class that is told about.

    In names a tab is written ``\t``, a line break ``\n`` or ``\r`` and a backslash ``\\``; other
    controls, and half surrogate pairs, as Python's escapes. ``lead`` bounds the best lead from
    below where the class is argmaxable, from above where it is unargmaxable, and is empty else.

    Args:
        data: what to tell.
    """
    report = data.report
    scale = report.scale if math.isfinite(report.scale) and report.scale else math.nan
    lines = ["\t".join(COLUMNS)]
    for index, kept in enumerate(data.kept.tolist()):
        if not kept:
            continue
        lead, rival = float(report.lead[index]), int(report.rival[index])
        twin = int(report.duplicate_of[index])
        known = report.names is not None
        lines.append(
            "\t".join(
                (
                    str(index),
                    escaped(report.name(index)) if known else "",
                    Status(int(report.status[index])).name.lower(),
                    _number(lead),
                    _number(100 * lead / scale),
                    str(rival) if rival >= 0 else "",
                    escaped(report.name(rival)) if known and rival >= 0 else "",
                    str(twin) if twin >= 0 else "",
                    str(int(report.reflections[index])),
                    str(int(report.potential[index])),
                )
            )
        )
    return "\n".join(lines) + "\n"


def escaped(name: str) -> str:
    r"""A name without tabs, line breaks and other controls, from which it can be had back.

    >>> escaped("a\tb\\"), escaped("\x1b[0m")
    ('a\\tb\\\\', '\\x1b[0m')
    """
    text = re.sub(r"[\\\t\n\r]", lambda match: _ESCAPES[match[0]], name)
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", _code, text)


def _code(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""
