"""Options of ``unarg check`` that write reports for others, and which classes these tell about."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from unarg_callback.commands.deadline import time_out
from unarg_callback.commands.outputs import UsageError
from unarg_callback.commands.terminal import write
from unarg_callback.files import replacing

if TYPE_CHECKING:
    from unarg_callback.checkpoints import LocatedLayer
    from unarg_callback.class_filter import ClassFilter
    from unarg_callback.geometry.layer import OutputLayer
    from unarg_callback.report import Report
    from unarg_callback.reports.answers import Answers
    from unarg_callback.reports.data import ReportData

_FORMS = ("html", "markdown", "tsv")
_MOST_FILTERING = 5.0
"""Seconds for a class filter, which takes less than one on any real vocabulary."""
_SECONDS = 10.0
"""For finding the lowest best leads; more where the check took longer."""


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add the outputs, and which classes they tell about.

    Args:
        parser: of ``unarg check``.
    """
    group = parser.add_argument_group("reports for others")
    group.add_argument("--html", metavar="OUT", help="write one self-contained page")
    group.add_argument("--markdown", metavar="OUT", help="write the report as Markdown")
    group.add_argument("--tsv", metavar="OUT", help="write a line for every class")
    add_filter_options(parser.add_argument_group("which classes to tell about"))


def add_filter_options(group: argparse._ArgumentGroup) -> None:
    """Add what chooses the classes that a report tells about; the check is of all of them.

    Args:
        group: of options.
    """
    group.add_argument(
        "--script",
        action="append",
        default=[],
        metavar="NAME",
        help="tell only about classes whose names are letters of this script, such as Cyrillic, "
        "Latin, Han or Arabic (may be given twice)",
    )
    group.add_argument(
        "--words",
        action="store_true",
        help="leave out names with digits or punctuation, and special tokens",
    )
    group.add_argument(
        "--keep-regex", metavar="RE", help="tell only about names in which this is found"
    )


def filter_of(options: argparse.Namespace) -> ClassFilter | None:
    """The filter that the options mean, or None where they mean none.

    Raises:
        UnargError: a script is not known, or the pattern is no regular expression.
    """
    from unarg_callback.class_filter import ClassFilter

    chosen = ClassFilter(tuple(options.script), options.words, options.keep_regex)
    return chosen or None


def filter_on(
    chosen: ClassFilter | None, *vocabularies: tuple[str, ...] | None
) -> ClassFilter | None:
    """The filter, tried on all names that it will see: before the work that it is for.

    Args:
        chosen: the filter, or None.
        vocabularies: names of the classes of each layer, or None for a layer without.

    Raises:
        UnargError: it takes too long.
    """
    for names in vocabularies:
        if chosen is None or names is None:
            continue
        try:
            with time_out(_MOST_FILTERING):
                chosen = chosen.on(names)
        except TimeoutError as cause:
            pattern = chosen.pattern
            what = "the class filter" if pattern is None else f"--keep-regex {pattern!r}"
            raise UsageError(
                f"{what} took more than {_MOST_FILTERING:g} seconds on {len(names):,} names; "
                "expected one that is quick: a repetition within a repetition, as in (a+)+, tries "
                "every way to divide a name"
            ) from cause
    return chosen


def report_targets(options: argparse.Namespace) -> dict[str, Path]:
    """The files that :func:`write_reports` would write, by option.

    Args:
        options: with what :func:`add_report_options` added.
    """
    given = {f"--{form}": getattr(options, form) for form in _FORMS}
    return {option: Path(target) for option, target in given.items() if target is not None}


def write_reports(
    report: Report,
    layer: OutputLayer,
    located: LocatedLayer,
    options: argparse.Namespace,
    *,
    chosen: ClassFilter | None = None,
    answers: Answers | None = None,
    closely: bool = True,
    progress: bool = False,
) -> list[str]:
    """Write the reports that were asked for; one that fails doesn't keep the others from it.

    Args:
        report: of the check.
        layer: that was checked.
        located: the layer's file.
        options: with what :func:`add_report_options` added.
        chosen: which classes to tell about, if the options' filter has been asked already.
        answers: what else was asked of each class.
        closely: look for the lowest best leads, where a report lists them.
        progress: say on stderr what takes a while.

    Returns:
        What could not be written, and why.
    """
    targets = report_targets(options)
    if not targets:
        return []
    from unarg_callback.reports import report_data, to_html, to_markdown, to_tsv

    forms: dict[str, Callable[[ReportData], str]] = {
        "--html": to_html,
        "--markdown": to_markdown,
        "--tsv": to_tsv,
    }
    source = located.describe().splitlines()
    # A table of tabs doesn't list the nearest.
    closely, most = closely and set(targets) != {"--tsv"}, max(_SECONDS, report.seconds)
    if progress and closely:
        write(sys.stderr, f"looking for the lowest best leads, for at most {most:.0f} seconds ...")
    data = report_data(
        report,
        located.file.path.name,
        source,
        chosen or filter_of(options),
        layer=layer if closely else None,
        seconds=most,
        answers=answers,
    )
    problems = []
    for option, target in targets.items():
        content = forms[option](data).encode("utf-8", "backslashreplace")
        try:
            with replacing(target) as file:
                file.write(content)
        except OSError as cause:
            problems.append(f"{option} {target} ({cause.strerror or cause})")
    return problems
