"""``unarg check``: a verdict for each class of the layer in a file, with its proof.

With ``--summary`` it takes several files, and is ``unarg summary``.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unarg_callback.commands.check_options import add_check_options, require_usable
from unarg_callback.commands.layer_options import (
    FORMATS,
    add_layer_options,
    count,
    locate,
    whole,
)
from unarg_callback.commands.outcome import TO_STDOUT, Outcome
from unarg_callback.commands.outputs import UsageError, require_apart, require_outputs
from unarg_callback.commands.report_options import (
    add_report_options,
    filter_of,
    filter_on,
    report_targets,
)
from unarg_callback.commands.summary import summarise
from unarg_callback.commands.terminal import shows_progress
from unarg_callback.commands.values import positive

if TYPE_CHECKING:
    from unarg_callback.checkpoints import LocatedLayer
    from unarg_callback.class_filter import ClassFilter
    from unarg_callback.distributed.ranks import Ranks
    from unarg_callback.geometry.layer import OutputLayer

_RAN, _FOUND = 0, 1
_FURTHER, _TELLING = ("top_k", "min_lead"), ("json", "html", "markdown", "tsv")
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
    located, layer, chosen = together.together(lambda: _prepare(options, together))
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
            Outcome(report, layer, located, options, chosen).tell()

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


def _prepare(
    options: argparse.Namespace, ranks: Ranks
) -> tuple[LocatedLayer, OutputLayer, ClassFilter | None]:
    if ranks.first and not ranks.alone:
        _require_outputs(options)
    chosen = filter_of(options)
    device = require_usable(options)["device"]
    located = locate(options.file, options)
    if ranks.first:
        require_apart(_targets(options), located.files_read, options.file)
        chosen = filter_on(chosen, located.names)
    layer = located.load()
    if options.min_lead is not None:
        from unarg_callback.geometry.domain import Domain
        from unarg_callback.margins import least_asked, require_above

        require_above(options.min_lead, least_asked(layer, Domain.parse(options.domain)))
    return located, layer if device is None else layer.to(device), chosen


def _targets(options: argparse.Namespace) -> dict[str, Path]:
    targets: dict[str, Path] = {}
    if options.json is not None and options.json != TO_STDOUT:
        targets["--json"] = Path(options.json)
    if options.proofs is not None:
        named = Path(options.proofs)
        # Such a name is refused as it is, and gets no ending.
        other = os.path.exists(named) and not os.path.isfile(named)
        refused = other or not named.name or str(named) == TO_STDOUT
        complete = refused or named.suffix == ".npz"
        targets["--proofs"] = named if complete else named.with_name(named.name + ".npz")
    return {**targets, **report_targets(options)}


def _require_outputs(options: argparse.Namespace) -> None:
    if options.json == TO_STDOUT and sys.stdout is None:
        raise UsageError("--json - can't be written: standard output is closed; expected it open")
    given = [name for name in _FURTHER if getattr(options, name) is not None]
    asked = [f"--{name.replace('_', '-')}" for name in given]
    if asked and options.quiet and not any(getattr(options, name) for name in _TELLING):
        raise UsageError(
            f"what {' and '.join(asked)} would find is told nowhere with --quiet; expected one of "
            f"{', '.join(f'--{name}' for name in _TELLING)}, or no --quiet"
        )
    require_outputs(_targets(options), (options.file, options.labels))


def _from_two(text: str) -> int:
    return whole(text, 2)
