"""``unarg figure``: pictures of the layer in a file, as in the paper."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unarg_callback.commands.layer_options import add_layer_options, count, locate
from unarg_callback.commands.outputs import require_apart, require_outputs
from unarg_callback.commands.terminal import write
from unarg_callback.commands.values import positive
from unarg_callback.errors import UnargError

if TYPE_CHECKING:
    from unarg_callback.geometry.layer import OutputLayer

_KINDS = {
    "regions": "where each class wins, for two features (Figure 1)",
    "hull": "the rows and their convex hull, for two features (Figure 2)",
    "rankings": "the rankings in the plane of two features (Figure 7)",
    "steps": "points tried for each class, in the vocabulary's order (Figures 11 and 12)",
    "bars": "unargmaxable classes of several reports of `unarg check --json` (Figure 6)",
}
_ENDINGS = (".png", ".svg", ".pdf")
_LARGEST_RADIUS = 1e100
_TOO_FAR = (
    "the layer can't be drawn: numbers are too large or too small for a picture; expected rows, "
    "biases and --radius whose products are far from the limits of float64"
)


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand to those of ``unarg``; its ``run`` takes the options and ranks."""
    parser = commands.add_parser(
        "figure",
        help="draw the layer in a file (needs matplotlib)",
        description="Draw the layer in a file, as in the paper. Needs matplotlib.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{kind:<10}{text}" for kind, text in _KINDS.items()),
    )
    parser.add_argument("kind", choices=_KINDS, metavar="KIND", help=", ".join(_KINDS))
    parser.add_argument("files", nargs="+", metavar="FILE", help="a layer; reports for bars")
    parser.add_argument(
        "--out", required=True, type=Path, metavar="OUT", help="a .png, .svg or .pdf"
    )
    add_layer_options(parser)
    group = parser.add_argument_group("how to draw")
    group.add_argument("--domain", default="box:100", metavar="X", help="of the check, for steps")
    group.add_argument(
        "--patience",
        type=count,
        metavar="N",
        help="for steps: the paper's search with at most N reflections (default: this package's)",
    )
    group.add_argument(
        "--radius",
        type=_radius,
        metavar="R",
        help="half the width of the plane (default: all shows)",
    )
    group.add_argument("--title", default="", metavar="TEXT", help="for steps")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, ranks: object = None) -> int:
    """Draw what was asked for and print where it is; the exit status is 0.

    Raises:
        UnargError: the input can't be drawn, or the file can't be written.
    """
    from unarg_callback.figures.canvas import FigureError, canvas, save

    canvas(1, 1)  # Without matplotlib, no work is done in vain.
    if options.kind != "bars" and len(options.files) > 1:
        raise FigureError(f"{len(options.files)} files are given; expected one layer")
    if options.out.suffix.lower() not in _ENDINGS:
        raise FigureError(f"--out is {options.out}; expected it to end in .png, .svg or .pdf")
    require_outputs({"--out": options.out}, options.files)
    drawn = _draw(options)
    try:
        save(drawn, options.out)
    except OSError as cause:
        raise FigureError(
            f"{options.out} can't be written ({cause.strerror or cause}); expected a file in a "
            "folder that exists and is writable"
        ) from cause
    except (ArithmeticError, ValueError) as cause:
        raise FigureError(_TOO_FAR) from cause
    write(sys.stdout, str(options.out))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run this subcommand alone; return the exit status, 2 for bad input.

    Args:
        argv: the arguments from KIND on; those of the process if None.
    """
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    options = parser.parse_args(["figure", *(sys.argv[1:] if argv is None else argv)])
    try:
        return run(options)
    except UnargError as problem:
        print(problem, file=sys.stderr)
        return 2


def _radius(text: str) -> float:
    value = positive(text)
    if not 1 / _LARGEST_RADIUS <= value <= _LARGEST_RADIUS:
        raise argparse.ArgumentTypeError(
            f"{text[:30]!r} is not between {1 / _LARGEST_RADIUS:g} and {_LARGEST_RADIUS:g}"
        )
    return value


def _draw(options: argparse.Namespace) -> Any:
    if options.kind == "bars":
        from unarg_callback.figures.bars import draw_bars, read_bars

        return draw_bars(read_bars(options.files))
    located = locate(options.files[0], options)
    require_apart({"--out": options.out}, located.files_read)
    layer = located.load()
    if options.kind == "steps":
        return _steps(layer, options)
    import numpy as np

    from unarg_callback.figures.canvas import FigureError
    from unarg_callback.figures.plane import draw_braid, draw_hull, draw_regions

    weight = layer.weight[layer.active].double().cpu().numpy()
    bias = None if layer.bias is None else layer.bias[layer.active].double().cpu().numpy()
    names = None if layer.names is None else [layer.names[i] for i in layer.active.tolist()]
    try:
        # What overflows would draw nothing, or fail deep in matplotlib.
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            if options.kind == "hull":
                return draw_hull(weight, names)
            draw = draw_regions if options.kind == "regions" else draw_braid
            return draw(weight, bias, names, options.radius)
    except UnargError:
        raise
    except (ArithmeticError, ValueError) as cause:
        raise FigureError(_TOO_FAR) from cause


def _steps(layer: OutputLayer, options: argparse.Namespace) -> Any:
    from unarg_callback.figures.steps import draw_steps, paper_steps, steps_of
    from unarg_callback.verification import verify

    report = verify(layer, options.domain, progress=sys.stderr.isatty())
    write(sys.stdout, report.summary())
    if options.patience is None:
        return draw_steps(steps_of(report), options.title)
    return draw_steps(paper_steps(layer, report, options.patience), options.title)
