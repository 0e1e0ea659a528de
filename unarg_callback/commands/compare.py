"""``unarg compare``: what changed between two checkpoints."""

from __future__ import annotations

import argparse
import copy
import math
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from unarg_callback.commands.check_options import add_check_options, require_usable
from unarg_callback.commands.layer_options import FORMATS, add_layer_options, count, locate
from unarg_callback.commands.report_options import add_filter_options, filter_of, filter_on
from unarg_callback.commands.terminal import shows_progress, write
from unarg_callback.errors import UnargError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unarg_callback.checkpoints import LocatedLayer
    from unarg_callback.class_filter import ClassFilter
    from unarg_callback.geometry.layer import OutputLayer
    from unarg_callback.reports.comparison import Comparison

_RAN, _FOUND = 0, 1
_Cells: TypeAlias = tuple[tuple[str, ...], Callable[[int, int], tuple[str, ...]]]
"""Headings, and what stands below them for a class, by its ids in both."""
_SECOND = {"weight": "--weight-b", "bias": "--bias-b", "labels": "--labels-b"}


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand to those of ``unarg``; its ``run`` takes the options and ranks."""
    parser = commands.add_parser(
        "compare",
        help="what changed between two checkpoints",
        description="Check two layers, the second from the proofs of the first where they have the "
        "same classes, and say which classes became unargmaxable, which returned, and whose leads "
        "changed most. Layers of different sizes are compared by the names of their classes.",
        allow_abbrev=False,
        epilog="Exit status: 0 the checks ran, 1 --fail-on hit, 2 bad input.",
    )
    parser.add_argument("file", metavar="A", help=FORMATS)
    parser.add_argument("second", metavar="B", help="likewise")
    add_layer_options(parser)
    group = parser.add_argument_group("where the layer of B is called otherwise than that of A")
    for name, option in _SECOND.items():
        group.add_argument(option, metavar="NAME" if name != "labels" else "FILE")
    add_check_options(parser)
    group = parser.add_argument_group("what to report")
    group.add_argument(
        "--fail-on",
        choices=["appeared"],
        help="exit with 1 if a class, listed or not, is unargmaxable in B that was not in A",
    )
    group.add_argument(
        "--limit", type=count, default=10, metavar="N", help="rows of each table (default: 10)"
    )
    group.add_argument("--quiet", action="store_true", help="print nothing")
    add_filter_options(parser.add_argument_group("which classes to tell about"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, ranks: Any = None) -> int:
    """Check both, print what changed, and return the exit status.

    Raises:
        UnargError: a file can't be read, or the layers can't be compared.
    """
    chosen = filter_of(options)
    settings = require_usable(options)
    first = locate(options.file, options)
    second = locate(options.second, _of_second(options))
    chosen = filter_on(chosen, first.names, second.names)
    found = _checked(first, second, options, settings, ranks)
    if not options.quiet:
        told = text(found, first.describe(), second.describe(), options.limit, chosen)
        write(sys.stdout, told)
    return _FOUND if options.fail_on and len(appeared(found)) else _RAN


def appeared(found: Comparison) -> NDArray[np.int64]:
    """(n,) ids in B of classes that are unargmaxable there and weren't in A, new ones included."""
    import numpy as np

    from unarg_callback.geometry.proof import Status

    was = np.full(found.after.classes, -1)
    was[found.pairs[:, 1]] = found.before.status[found.pairs[:, 0]]
    now = found.after.status == Status.UNARGMAXABLE
    return np.flatnonzero(now & (was != Status.UNARGMAXABLE))


def _of_second(options: argparse.Namespace) -> argparse.Namespace:
    theirs = copy.copy(options)
    for name in _SECOND:
        given = getattr(options, f"{name}_b")
        if given is not None:
            setattr(theirs, name, given)
    return theirs


def _checked(
    first: LocatedLayer,
    second: LocatedLayer,
    options: argparse.Namespace,
    settings: dict[str, Any],
    ranks: Any,
) -> Comparison:
    from unarg_callback.incremental import IncrementalVerifier
    from unarg_callback.reports.comparison import compare

    if first.classes != second.classes and None in (first.names, second.names):
        raise UnargError(
            f"{Path(options.file).name} has {first.classes} classes and "
            f"{Path(options.second).name} {second.classes}, and not both have names to compare "
            "them by; give --labels, and --labels-b for the second"
        )
    one, other = _loaded(options.file, first), _loaded(options.second, second)
    verifier = IncrementalVerifier(options.domain, ranks=ranks, **settings)
    reports = []
    for letter, layer in (("A", one), ("B", other)):
        if shows_progress(options):
            write(sys.stderr, f"checking {letter} ...")
        reports.append(verifier.update(layer, time_limit=options.time_limit))
    before, after = reports
    return compare(before, after, one, other)


def _loaded(file: str, located: LocatedLayer) -> OutputLayer:
    """The layer; what is wrong with it is told with the file."""
    try:
        layer = located.load()
        layer.require_plain_values()
    except UnargError as cause:
        problem = str(cause)
        told = problem if file in problem else f"{file}: {problem}"
        raise type(cause)(told) from cause
    return layer


def text(
    found: Comparison,
    first: str,
    second: str,
    limit: int = 10,
    chosen: ClassFilter | None = None,
) -> str:
    """What changed, for people.

    Args:
        found: the comparison.
        first: what the first layer was read from.
        second: likewise.
        limit: most rows of a table.
        chosen: which classes to tell about below the counts of both checks; None for all.
    """
    lines = []
    for letter, source, report in (("A", first, found.before), ("B", second, found.after)):
        # As a rule too long for one line of 80 columns.
        problem, _, verdicts = report.summary().rpartition(": ")
        lines += [f"{letter}: {source}", f"   {problem}", f"   {verdicts}"]
    lines.append("")
    if chosen is not None:
        listed = found.only(chosen)
        which = _which(found, listed, chosen)
        lines += [textwrap.fill(which, 80, break_long_words=False), ""]
        found = listed
    lines += _matching(found)
    rival: _Cells = ("now beaten by",), lambda a, b: (_rival(found, b),)
    lines += _table("Unargmaxable in B, argmaxable in A", found, found.appeared, limit, rival)
    led: _Cells = ("lead in B",), lambda a, b: (_share(found, found.shares_after, b),)
    lines += _table("Argmaxable in B, unargmaxable in A", found, found.returned, limit, led)
    for (was, now), number in found.other.items():
        lines.append(f"{was.name.lower()} in A, {now.name.lower()} in B: {number:,}")
    if found.other:
        lines.append("")
    both: _Cells = (
        ("lead in A", "lead in B"),
        lambda a, b: (
            _share(found, found.shares_before, a),
            _share(found, found.shares_after, b),
        ),
    )
    title = "Argmaxable in both, those whose leads changed most first"
    lines += _table(title, found, found.moved, limit, both)
    return "\n".join(lines).rstrip()


def _which(found: Comparison, listed: Comparison, chosen: ClassFilter) -> str:
    """How many classes a filter keeps."""
    if found.before.names is None and found.after.names is None:
        return f"The classes have no names, so the filter leaves none out: {chosen}."
    parts = [f"{len(listed.pairs):,} of {len(found.pairs):,} that are in both"]
    for letter, kept, every in (
        ("A", listed.only_before, found.only_before),
        ("B", listed.only_after, found.only_after),
    ):
        parts += [f"{len(kept):,} of {len(every):,} only in {letter}"] if len(every) else []
    return f"Below are classes with {chosen} only: {', '.join(parts)}."


def _matching(found: Comparison) -> list[str]:
    from unarg_callback.geometry.proof import Status

    if not found.by_name:
        return ["Classes are compared by id.", ""]
    parts = [f"Classes are compared by name: {len(found.pairs):,} are in both"]
    for letter, report, ids in (
        ("A", found.before, found.only_before),
        ("B", found.after, found.only_after),
    ):
        out = int((report.status[ids] == Status.UNARGMAXABLE).sum())
        parts.append(f"{len(ids):,} only in {letter} ({out:,} of them unargmaxable)")
    return [
        ", ".join(parts) + ".",
        "Names that stand for several classes count as in one only.",
        "",
    ]


def _table(
    title: str,
    found: Comparison,
    pairs: NDArray[np.int64],
    limit: int,
    cells: _Cells,
) -> list[str]:
    from unarg_callback.report import columns, printable

    lines = [f"{title}: {len(pairs):,}"]
    shown = pairs[:limit].tolist()
    named = found.after.names is not None
    if shown:
        heads = ["id in A", "id in B"] if found.by_name else ["class"]
        heads += [*(["name"] if named else []), *cells[0]]
        rows = [tuple(heads)]
        for a, b in shown:
            ids = [str(a), str(b)] if found.by_name else [str(b)]
            name = [printable(found.after.name(b))] if named else []
            rows.append((*ids, *name, *cells[1](a, b)))
        lines += [f"  {line}" for line in columns(rows)]
    if len(pairs) > limit:
        lines.append(f"  ... and {len(pairs) - limit:,} more")
    return [*lines, ""]


def _rival(found: Comparison, index: int) -> str:
    from unarg_callback.report import printable

    report = found.after
    twin, rival = int(report.duplicate_of[index]), int(report.rival[index])
    other = twin if twin >= 0 else rival
    if other < 0:
        return ""
    name = "" if report.names is None else f" {printable(report.name(other))}"
    return f"{'equals ' if twin >= 0 else ''}{other}{name}"


def _share(found: Comparison, shares: NDArray[np.float64], index: int) -> str:
    unit = "%" if math.isfinite(found.after.scale) else ""
    return f"{float(shares[index]):.3g}{unit}"
