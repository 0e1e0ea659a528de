"""``unarg summary``: one row a model, as in the paper's Tables 4 to 8."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unarg_callback.commands.check_options import add_check_options, require_usable
from unarg_callback.commands.layer_options import FORMATS, add_layer_options, locate
from unarg_callback.commands.report_options import add_filter_options, filter_of, filter_on
from unarg_callback.commands.terminal import one_line, shows_progress, write

if TYPE_CHECKING:
    from unarg_callback.class_filter import ClassFilter
    from unarg_callback.report import Report

_RAN, _FOUND, _BAD_INPUT = 0, 1, 2


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand to those of ``unarg``; its ``run`` takes the options and ranks."""
    parser = commands.add_parser(
        "summary",
        help="check several models and print a row for each",
        description="Check the output layers of several files and print a row for each. A file "
        "that can't be checked gets a row that says why, and the others go on.",
        allow_abbrev=False,
        epilog="Exit status: 0 all checks ran, 1 --fail-on hit, 2 a file could not be checked.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help=FORMATS)
    add_layer_options(parser)
    add_check_options(parser)
    group = parser.add_argument_group("what to report")
    group.add_argument("--markdown", action="store_true", help="print the rows as Markdown")
    group.add_argument(
        "--fail-on",
        action="append",
        choices=["unargmaxable", "undecided"],
        default=[],
        help="exit with 1 if a model has such a class (may be given twice)",
    )
    group.add_argument("--quiet", action="store_true", help="no progress")
    add_filter_options(parser.add_argument_group("which classes to count"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, ranks: Any = None) -> int:
    """Check all files, print a row for each, and return the exit status.

    Raises:
        UnargError: the options are wrong whatever the files hold.
    """
    return summarise(options, ranks, markdown=options.markdown)


def summarise(
    options: argparse.Namespace, ranks: Any = None, *, markdown: bool = False, printed: bool = True
) -> int:
    """Check all files, print a row for each, and return the exit status.

    Whatever goes wrong with a file is its row. If somebody interrupts, the rows that are finished
    are printed.

    Args:
        options: with ``files``, and those of layers, checks and filters, ``fail_on`` and ``quiet``.
        ranks: the processes that divide the checks; None for this one alone.
        markdown: print the rows as Markdown.
        printed: whether rows are printed at all.

    Raises:
        UnargError: the options are wrong whatever the files hold.
    """
    from unarg_callback.report import printable
    from unarg_callback.reports.summary import summary_row

    chosen = filter_of(options)
    settings = require_usable(options)
    rows, nameless, failed, hit = [], [], False, False
    try:
        for name, report, known in _reports(options, settings, ranks, chosen):
            rows.append(summary_row(name, report, known))
            if isinstance(report, Exception):
                failed = True
                if not printed:
                    write(sys.stderr, f"unarg: {name}: {one_line(str(report))}")
                continue
            hit |= any(report.counts[kind] for kind in options.fail_on)
            nameless += [printable(name, 40)] if report.names is None else []
    finally:
        if printed and rows:
            write(sys.stdout, _told(rows, nameless, chosen, markdown))
    return _BAD_INPUT if failed else _FOUND if hit else _RAN


def _told(
    rows: Sequence[tuple[str, ...]], nameless: list[str], chosen: ClassFilter | None, markdown: bool
) -> str:
    from unarg_callback.reports.markdown import escaped
    from unarg_callback.reports.summary import summary_markdown, summary_text

    text = (summary_markdown if markdown else summary_text)(rows).rstrip()
    if chosen is None:
        return text
    note = f"Only classes with {chosen} are counted."
    if nameless:
        note += f" All are of {', '.join(nameless)}, for want of names."
    return f"{text}\n\n{escaped(note) if markdown else one_line(note)}"


def _reports(
    options: argparse.Namespace, settings: dict[str, Any], ranks: Any, chosen: ClassFilter | None
) -> Iterator[tuple[str, Report | Exception, ClassFilter | None]]:
    """Each model's name with its report, or with what went wrong, and whom to tell about."""
    from unarg_callback.distributed.ranks import Ranks
    from unarg_callback.verification import verify

    together = ranks or Ranks()

    def checked(file: str) -> tuple[Report, ClassFilter | None]:
        located = locate(file, options)
        known = filter_on(chosen, located.names)
        layer = located.load()
        if settings["device"] is not None:
            layer = layer.to(settings["device"])
        report = verify(
            layer,
            options.domain,
            patience=settings["patience"],
            time_limit=options.time_limit,
            progress=shows_progress(options),
            ranks=together,
        )
        return report, known

    for file, name in zip(options.files, names_of(options.files), strict=True):
        if shows_progress(options):
            write(sys.stderr, f"{name} ...")
        try:
            result, known = together.together(partial(checked, file))
        except Exception as cause:  # Whatever it is, the other files have to get their rows.
            yield name, cause, None
        else:
            yield name, result, known


def names_of(files: Sequence[str]) -> list[str]:
    """The end of each path by which it differs from the others.

    >>> names_of(["runs/a/model.npz", "runs/b/model.npz", "c.pt"])
    ['a/model.npz', 'b/model.npz', 'c.pt']
    """
    parts = [Path(os.path.abspath(file)).parts for file in files]
    depth = [1] * len(files)
    while True:
        names = ["/".join(part[-at:]) for part, at in zip(parts, depth, strict=True)]
        counts = Counter(names)
        grown = [
            min(at + 1, len(part)) if counts[name] > 1 else at
            for name, part, at in zip(names, parts, depth, strict=True)
        ]
        if grown == depth:
            return names
        depth = grown
