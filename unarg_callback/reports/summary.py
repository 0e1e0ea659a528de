"""One row a model, as in the paper's Tables 4 to 8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unarg_callback.class_filter import ClassFilter
from unarg_callback.errors import UnargError
from unarg_callback.report import Report, printable
from unarg_callback.reports.data import counts_of, kept_classes
from unarg_callback.reports.markdown import escaped

HEADS = (
    "model",
    "classes",
    "features",
    "potentially unargmaxable",
    "unargmaxable",
    "undecided",
    "duplicates",
    "seconds",
)
_TWO_LINES = (
    ("", "", "", "unargmaxable", "", "", "", ""),
    ("model", "classes", "features", "potential", "proven", "undecided", "duplicates", "seconds"),
)
_MOST = 200
"""Characters of a reason."""


def summary_row(
    name: str, report: Report | Exception, chosen: ClassFilter | None = None
) -> tuple[str, ...]:
    """The cells of one model, or its name and why it could not be checked.

    Args:
        name: of the model.
        report: of its check, or what went wrong.
        chosen: which classes to count.
    """
    if isinstance(report, Exception):
        reason = " ".join(str(report).split())
        if not isinstance(report, UnargError):  # Without its kind it says little.
            reason = ": ".join(part for part in (type(report).__name__, reason) if part)
        return name, f"not checked: {reason[:_MOST]}{'...' if len(reason) > _MOST else ''}"
    counts = counts_of(report, kept_classes(report, chosen))
    cut = "" if report.complete else " (cut short)"
    return (
        name,
        f"{report.classes:,}",
        f"{report.dim:,}",
        f"{counts['potentially_unargmaxable']:,}",
        f"{counts['unargmaxable']:,}",
        f"{counts['undecided']:,}",
        f"{counts['duplicates']:,}",
        f"{report.seconds:,.1f}{cut}",
    )


def summary_text(rows: Sequence[tuple[str, ...]]) -> str:
    """The rows in columns, for a terminal.

    Args:
        rows: of :func:`summary_row`.
    """
    whole: list[tuple[str, ...]] = [*_TWO_LINES]
    whole += [(printable(row[0], 40), *row[1:]) for row in rows if len(row) > 2]
    names = [printable(row[0], 40) for row in rows]
    widths = [max(len(row[at]) for row in whole[1:]) for at in range(len(HEADS))]
    widths[0] = max([widths[0], *map(len, names)])
    # One heading over two columns, so that 80 columns do for names of ten.
    both = widths[3] + 2 + widths[4]
    lines = [
        " " * (sum(widths[:3]) + 6) + f"{_TWO_LINES[0][3]:>{both}}",
        _line(whole[1], widths),
    ]
    for row, name in zip(rows, names, strict=True):
        lines.append(
            _line((name, *row[1:]), widths)
            if len(row) > 2
            else f"{name:<{widths[0]}}  {printable(row[1], _MOST + 20)}"
        )
    return "\n".join(lines)


def summary_markdown(rows: Iterable[tuple[str, ...]]) -> str:
    """The rows as a Markdown table.

    Args:
        rows: of :func:`summary_row`.
    """
    lines = [HEADS, (":---", *["---:"] * (len(HEADS) - 1))]
    for row in rows:
        cells = [escaped(cell) for cell in row]
        lines.append((*cells, *[""] * (len(HEADS) - len(cells))))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(row, widths, strict=True)
    return "  ".join([f"{first[0]:<{first[1]}}", *(f"{c:>{w}}" for c, w in others)]).rstrip()
