"""``unarg recheck``: check saved proofs against a model, in exact arithmetic."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unarg_callback.commands.layer_options import FORMATS, add_layer_options, locate
from unarg_callback.commands.terminal import shows_progress, write
from unarg_callback.errors import UnargError

if TYPE_CHECKING:
    from unarg_callback.checkpoints import LocatedLayer
    from unarg_callback.recheck import Summary

_HOLD, _WRONG = 0, 1


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand to those of ``unarg``; its ``run`` takes the options and ranks."""
    parser = commands.add_parser(
        "recheck",
        help="check saved proofs against a model, in exact arithmetic",
        description="Check every proof that unarg check --proofs saved, in exact arithmetic and "
        "with none of the code that made them.",
        allow_abbrev=False,
        epilog="Exit status: 0 all proofs hold, 1 one doesn't, 2 bad input.",
    )
    parser.add_argument("proofs", metavar="PROOFS", help="an .npz from unarg check --proofs")
    parser.add_argument("file", metavar="FILE", help=FORMATS)
    add_layer_options(parser)
    parser.add_argument(
        "--domain",
        metavar="X",
        help="refuse proofs for another domain than this: box:R, box:LO,HI, nonnegative:HI or free "
        "(default: print which it is)",
    )
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, ranks: object = None) -> int:
    """Check, print what was accepted and what was not, and return the exit status.

    Raises:
        UnargError: a file can't be read, or the proofs are of another layer or domain.
    """
    _require_regular(options.proofs)
    located = locate(options.file, options)
    arrays, summary = _examine(options, located)
    if not options.quiet:
        write(sys.stdout, _told(options, located, arrays, summary))
    if summary.first_wrong is None:
        return _HOLD
    write(sys.stderr, _wrong(summary, located.names))
    return _WRONG


def _require_regular(proofs: str) -> None:
    """Refuse a pipe or a device, which may never end."""
    try:
        other = os.path.exists(proofs) and not os.path.isfile(proofs)
    except ValueError:  # A name that no file can have.
        return
    if other:
        raise UnargError(
            f"{proofs} is not a regular file; expected an .npz from unarg check --proofs"
        )


def _examine(options: argparse.Namespace, located: LocatedLayer) -> tuple[dict[str, Any], Summary]:
    import torch
    from tqdm import tqdm

    from unarg_callback.commands.watched_layer import WatchedLayer
    from unarg_callback.recheck import examine, read_proof_file

    dim = located.weight.shape[1 if located.orientation == "classes-first" else 0]
    arrays = read_proof_file(options.proofs, located.classes, dim)
    if options.domain is not None:
        _require_domain(arrays, options.domain, dim)
    layer = located.load()
    weight, bias = layer.weight, layer.bias
    total = len(arrays["witness_class"]) + len(arrays["certificate_class"])
    with tqdm(
        total=total, disable=not shows_progress(options), unit="proof", desc="recheck"
    ) as bar:
        exact = WatchedLayer(
            weight.to(torch.float64).numpy(),
            None if bias is None else bias.to(torch.float64).numpy(),
            layer.excluded,
            bar.update,
        )
        summary = examine(arrays, exact)
        bar.update(total - bar.n)  # Proofs that no class owes aren't tried.
    outside = [index for index, why in summary.wrong.items() if why.startswith("excluded")]
    if outside:
        in_file = [t for t, status in enumerate(arrays["status"].tolist()) if status == 3]
        raise UnargError(
            f"{options.proofs} excludes {_ids(in_file)}, but the layer excludes "
            f"{_ids(layer.excluded)}; expected the same classes: use --exclude as for the check"
        )
    return arrays, summary


def _require_domain(arrays: dict[str, Any], domain: str, dim: int) -> None:
    import numpy as np

    from unarg_callback.geometry.domain import Domain

    asked = Domain.parse(domain).bounds(dim)
    have = arrays["domain_low"], arrays["domain_high"]
    if not all(np.array_equal(one, other) for one, other in zip(asked, have, strict=True)):
        raise UnargError(f"the proofs are for inputs in {_domain(arrays)}, not in {domain}")


def _told(
    options: argparse.Namespace, located: LocatedLayer, arrays: dict[str, Any], summary: Summary
) -> str:
    claimed = arrays["status"].tolist()
    lines = [
        located.describe(),
        f"{Path(options.proofs).name}: proofs for inputs in {_domain(arrays)} and leads above "
        f"{float(arrays['min_lead']):.3g}",
        f"{summary.argmaxable:,} of {claimed.count(1):,} witnesses accepted: argmaxable",
        f"{summary.unargmaxable:,} of {claimed.count(2):,} certificates accepted: unargmaxable",
        f"{claimed.count(0):,} undecided, {claimed.count(3):,} excluded",
    ]
    if not summary.wrong:
        lines.append("All proofs hold, in exact arithmetic.")
    return "\n".join(lines)


def _wrong(summary: Summary, names: tuple[str, ...] | None) -> str:
    from unarg_callback.report import printable

    first = summary.first_wrong
    assert first is not None
    known = names is not None and 0 <= first.index < len(names)
    name = f" ({printable(names[first.index])})" if names is not None and known else ""
    more = len(summary.wrong) - 1
    others = f"; {more:,} more classes are wrong too" if more else ""
    return f"unarg: class {first.index}{name}: {first.reason}{others}"


def _domain(arrays: dict[str, Any]) -> str:
    """The domain of the proofs, whatever their file holds there."""
    import numpy as np

    low, high = np.unique(arrays["domain_low"]), np.unique(arrays["domain_high"])
    if len(low) == len(high) == 1:
        free = low[0] == -np.inf and high[0] == np.inf
        return "free" if free else f"box:{low[0]:.17g},{high[0]:.17g}"
    if not (len(low) and len(high)):
        return "no domain"
    return f"a box of bounds between {low[0]:g} and {high[-1]:g}"


def _ids(ids: Any) -> str:
    from unarg_callback.checkpoints.vocabulary import spans

    return f"classes {spans(ids)}" if len(ids) else "none"
