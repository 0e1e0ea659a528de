"""``unarg check``: a verdict for each class of the layer in a file, with its proof."""

from __future__ import annotations

import argparse
import math
import sys
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
from unarg_callback.commands.terminal import write

if TYPE_CHECKING:
    from unarg_callback.checkpoints import LocatedLayer
    from unarg_callback.distributed.ranks import Ranks
    from unarg_callback.geometry.layer import OutputLayer
    from unarg_callback.report import Report

_RAN, _FOUND = 0, 1
_TO_STDOUT = "-"


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand to those of ``unarg``; its ``run`` takes the options and ranks."""
    parser = commands.add_parser(
        "check",
        help="check the output layer in a file",
        description="Check the output layer in a file and prove a verdict for each class.",
        allow_abbrev=False,
        epilog="Exit status: 0 the check ran, 1 --fail-on hit, 2 bad input.",
    )
    parser.add_argument("file", metavar="FILE", help=FORMATS)
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
        type=_positive,
        metavar="L",
        help="of those that can win, whether by more than L, in units of the logits",
    )
    group = parser.add_argument_group("what to report")
    group.add_argument(
        "--fail-on",
        action="append",
        choices=["unargmaxable", "undecided"],
        default=[],
        help="exit with 1 if there is such a class (may be given twice)",
    )
    group.add_argument("--json", metavar="OUT", help="write the report as JSON (-: to stdout)")
    group.add_argument("--proofs", metavar="OUT", help="write every proof to an .npz")
    group.add_argument(
        "--limit", type=count, default=20, metavar="N", help="rows of the table (default: 20)"
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
        progress=_shows_progress(options),
        ranks=together,
    )

    def tell() -> None:
        if together.first:
            _tell(report, layer, located, options)

    together.together(tell)
    hit = any(report.counts[kind] for kind in options.fail_on)
    return _FOUND if hit else _RAN


def _prepare(options: argparse.Namespace, ranks: Ranks) -> tuple[LocatedLayer, OutputLayer]:
    if ranks.first and not ranks.alone:
        _require_outputs(options)
    filter_of(options)
    device = require_usable(options)["device"]
    located = locate(options.file, options)
    layer = located.load()
    return located, layer if device is None else layer.to(device)


def _shows_progress(options: argparse.Namespace) -> bool:
    return not options.quiet and sys.stderr.isatty()


def _tell(
    report: Report, layer: OutputLayer, located: LocatedLayer, options: argparse.Namespace
) -> None:
    # Neither a file that can't be written nor a full terminal costs the other its result.
    try:
        _save(report, located, options)
    finally:
        if not options.quiet:
            # Standard output belongs to the JSON where it was asked for there.
            stream = sys.stderr if options.json == _TO_STDOUT else sys.stdout
            write(stream, f"{located.describe()}\n{report.table(options.limit)}")
            for text in _further(report, layer, options):
                write(stream, f"\n{text}")


def _further(report: Report, layer: OutputLayer, options: argparse.Namespace) -> list[str]:
    """What was asked of each class besides, in words."""
    from unarg_callback.margins import verify_margin
    from unarg_callback.top_k import verify_top_k

    told = []
    common = {"time_limit": options.time_limit, "progress": _shows_progress(options)}
    if options.top_k is not None:
        top = verify_top_k(layer, options.top_k, options.domain, report=report, **common)
        told.append(top.table(options.limit))
    if options.min_lead is not None:
        margin = verify_margin(layer, options.min_lead, options.domain, report=report, **common)
        told.append(margin.table(options.limit))
    return told


def _require_outputs(options: argparse.Namespace) -> None:
    targets: dict[str, Path] = {}
    if options.json is not None and options.json != _TO_STDOUT:
        targets["--json"] = Path(options.json)
    if options.proofs is not None:
        named = Path(options.proofs)
        whole = named.suffix == ".npz" or not named.name
        targets["--proofs"] = named if whole else named.with_name(named.name + ".npz")
    require_outputs({**targets, **report_targets(options)}, (options.file, options.labels))


def _save(report: Report, located: LocatedLayer, options: argparse.Namespace) -> None:
    problems = []
    try:
        if options.json == _TO_STDOUT:
            write(sys.stdout, report.to_json())
        elif options.json is not None:
            report.to_json(options.json)
    except OSError as cause:
        problems.append(f"--json {options.json} ({cause.strerror or cause})")
    try:
        if options.proofs is not None:
            report.save_proofs(options.proofs)
    except OSError as cause:
        problems.append(f"--proofs {options.proofs} ({cause.strerror or cause})")
    problems += write_reports(report, located, options)
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


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value
