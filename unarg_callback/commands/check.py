"""``unarg check``: a verdict for each class of the layer in a file, with its proof.

With ``--summary`` it takes several files, and is ``unarg summary``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unarg_callback.commands.check_options import add_check_options, require_usable
from unarg_callback.commands.layer_options import FORMATS, add_layer_options, count, locate
from unarg_callback.commands.outputs import UsageError, require_outputs
from unarg_callback.commands.report_options import (
    add_report_options,
    filter_of,
    report_targets,
    write_reports,
)
from unarg_callback.commands.summary import summarise
from unarg_callback.commands.terminal import shows_progress, write
from unarg_callback.commands.values import positive

if TYPE_CHECKING:
    from unarg_callback.checkpoints import LocatedLayer
    from unarg_callback.distributed.ranks import Ranks
    from unarg_callback.geometry.layer import OutputLayer
    from unarg_callback.report import Report

_RAN, _FOUND = 0, 1
_TO_STDOUT = "-"
_ROWS = 20
_OF_ONE = ("json", "proofs", "html", "markdown", "tsv", "top_k", "min_lead", "limit")
"""Options that make no sense for several files."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand to those of ``unarg``; its ``run`` takes the options and ranks."""
    parser = commands.add_parser(
        "check",
        help="check the output layer in a file",
        description="Check the output layer in a file and prove a verdict for each class. With "
        "--summary: of several files, and print a row for each.",
        allow_abbrev=False,
        epilog="Exit status: 0 the check ran, 1 --fail-on hit, 2 bad input.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help=FORMATS)
    add_layer_options(parser)
    add_check_options(parser)
    group = parser.add_argument_group("what else to ask of each class")
    group.add_argument(
        "--top-k",
        type=_from_two,
        metavar="K",
        help="whether it can be among the K best (by one process; slow for K above 2)",
    )
    group.add_argument(
        "--min-lead",
        type=positive,
        metavar="L",
        help="of those that can win, whether by more than L, in units of the logits",
    )
    group = parser.add_argument_group("what to report")
    group.add_argument(
        "--fail-on",
        action="append",
        choices=["unargmaxable", "undecided"],
        default=[],
        help="exit with 1 if there is such a class, listed or not (may be given twice)",
    )
    group.add_argument("--json", metavar="OUT", help="write the report as JSON (-: to stdout)")
    group.add_argument("--proofs", metavar="OUT", help="write every proof to an .npz")
    group.add_argument(
        "--limit", type=count, metavar="N", help=f"rows of each table (default: {_ROWS})"
    )
    group.add_argument(
        "--summary", action="store_true", help="print one row for each file, and no table"
    )
    group.add_argument("--quiet", action="store_true", help="no table and no progress")
    add_report_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, ranks: Ranks | None = None) -> int:
    """Check the layer, write and print what was found, and return the exit status.

    Everything that can be wrong with the input is found before the check starts.

    Raises:
        UnargError: the input is bad, or the results can't be written.
    """
    if options.summary:
        _require_options_of_many(options)
        return summarise(options, ranks, printed=not options.quiet)
    _require_one_file(options)
    if ranks is None:
        _require_outputs(options)  # Before torch is loaded, which takes a while.
    from unarg_callback.distributed.ranks import Ranks
    from unarg_callback.verification import verify

    together = ranks or Ranks()
    located, layer = together.together(lambda: _prepare(options, together))
    report = verify(
        layer,
        options.domain,
        patience=options.patience,
        time_limit=options.time_limit,
        progress=shows_progress(options),
        ranks=together,
    )

    def tell() -> None:
        if together.first:
            _tell(report, layer, located, options)

    together.together(tell)
    hit = any(report.counts[kind] for kind in options.fail_on)
    return _FOUND if hit else _RAN


def _require_one_file(options: argparse.Namespace) -> None:
    if len(options.files) > 1:
        raise UsageError(
            f"{len(options.files)} files are given; expected one, or --summary for a row a file "
            "(unarg compare A B tells what changed between two)"
        )
    options.file = options.files[0]
    options.limit = _ROWS if options.limit is None else options.limit


def _require_options_of_many(options: argparse.Namespace) -> None:
    given = [name for name in _OF_ONE if getattr(options, name) is not None]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(
            f"--summary prints a row a file and nothing else, so {names} can't be given with it; "
            "leave out one of them"
        )


def _prepare(options: argparse.Namespace, ranks: Ranks) -> tuple[LocatedLayer, OutputLayer]:
    if ranks.first and not ranks.alone:
        _require_outputs(options)
    filter_of(options)
    device = require_usable(options)["device"]
    located = locate(options.file, options)
    layer = located.load()
    return located, layer if device is None else layer.to(device)


def _tell(
    report: Report, layer: OutputLayer, located: LocatedLayer, options: argparse.Namespace
) -> None:
    from unarg_callback.reports.told import told

    listed = told(report, filter_of(options))
    # Standard output belongs to the JSON where it was asked for there.
    stream = sys.stderr if options.json == _TO_STDOUT else sys.stdout
    failed: UsageError | None = None
    # Neither a file that can't be written, nor a full terminal, nor somebody who interrupts what
    # is left to do costs the other its result.
    try:
        _save(report, listed, layer, located, options)
    except UsageError as cause:
        failed = cause
    finally:
        if not options.quiet:
            write(stream, f"{located.describe()}\n{listed.table(options.limit)}")
    if not options.quiet:
        for text in _further(report, listed, layer, options):
            write(stream, f"\n{text}")
    if failed is not None:
        raise failed


def _further(
    report: Report, listed: Report, layer: OutputLayer, options: argparse.Namespace
) -> Iterator[str]:
    """What was asked of each class besides, in words."""
    from unarg_callback.margins import verify_margin
    from unarg_callback.top_k import verify_top_k

    common = {"time_limit": options.time_limit, "progress": shows_progress(options)}
    if options.top_k is not None:
        top = verify_top_k(layer, options.top_k, options.domain, report=report, **common)
        yield replace(top, argmax=listed).table(options.limit)
    if options.min_lead is not None:
        margin = verify_margin(layer, options.min_lead, options.domain, report=report, **common)
        yield replace(margin, argmax=listed).table(options.limit)


def _require_outputs(options: argparse.Namespace) -> None:
    targets: dict[str, Path] = {}
    if options.json is not None and options.json != _TO_STDOUT:
        targets["--json"] = Path(options.json)
    if options.proofs is not None:
        named = Path(options.proofs)
        whole = named.suffix == ".npz" or not named.name
        targets["--proofs"] = named if whole else named.with_name(named.name + ".npz")
    require_outputs({**targets, **report_targets(options)}, (options.file, options.labels))


def _save(
    report: Report,
    listed: Report,
    layer: OutputLayer,
    located: LocatedLayer,
    options: argparse.Namespace,
) -> None:
    problems = []
    try:
        if options.json == _TO_STDOUT:
            write(sys.stdout, listed.to_json())
        elif options.json is not None:
            listed.to_json(options.json)
    except OSError as cause:
        problems.append(f"--json {options.json} ({cause.strerror or cause})")
    try:
        if options.proofs is not None:
            report.save_proofs(options.proofs)
    except OSError as cause:
        problems.append(f"--proofs {options.proofs} ({cause.strerror or cause})")
    problems += write_reports(report, layer, located, options, progress=shows_progress(options))
    if problems:
        raise UsageError(
            f"the check is done, but writing failed: {', '.join(problems)}; free space or choose "
            "another place, and run it again"
        )


def _from_two(text: str) -> int:
    number = count(text)
    if number < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 2")
    return number
