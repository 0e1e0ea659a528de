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
_FORMULA = re.compile(r"^[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""How a formula starts, in letters of full width too."""
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def to_tsv(data: ReportData) -> str:
    r"""A heading, and a line for every class that is told about.

    In names a tab is written ``\t``, a line break ``\n`` or ``\r`` and a backslash ``\\``; other
    characters that can't be seen, such as controls and those that turn the direction of text, as
    Python's escapes. So is one that would make a spreadsheet take the name for a formula (``=``,
    ``+``, ``-`` or ``@`` at its start): ``\x3d`` and so on. ``lead`` bounds the best lead from
    below where the class is argmaxable, from above where it is unargmaxable, and is empty else.

    Args:
        data: what to tell.
    """
    report = data.report
    scale = report.scale if math.isfinite(report.scale) and report.scale else math.nan
    further = data.answers.columns()
    lines = ["\t".join((*COLUMNS, *further))]
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
                    *(words[index] for words in further.values()),
                )
            )
        )
    return "\n".join(lines) + "\n"


def escaped(name: str) -> str:
    r"""A name without what can't be seen and without formulas, from which it can be had back.

    >>> escaped("a\tb\\"), escaped("\x1b[0m"), escaped("=1-1")
    ('a\\tb\\\\', '\\x1b[0m', '\\x3d1-1')
    """
    text = "".join(_ESCAPES.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in name)
    return _FORMULA.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""
