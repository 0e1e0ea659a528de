"""Matplotlib as all figures use it: no screen, one look, a file at the end."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from unarg_callback.errors import UnargError
from unarg_callback.files import replacing

PIXELS_AN_INCH = 150
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866")
"""Paul Tol's bright scheme, told apart by most colour-blind readers, and one more."""
INK, FAINT = "#222222", "#8a8a8a"
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
}


class FigureError(UnargError):
    """A figure can't be made; the message says what to install or to give."""


def canvas(width: float, height: float) -> Any:
    """Return an empty matplotlib Figure of a size in inches.

    Raises:
        FigureError: matplotlib isn't installed.
    """
    try:
        import_module("matplotlib.backends.backend_agg")
        figure = import_module("matplotlib.figure")
    except ImportError as cause:
        raise FigureError(
            "figures need matplotlib, which isn't installed; pip install 'unarg_callback[plots]'"
        ) from cause
    return figure.Figure(figsize=(width, height), layout="constrained")


def styled() -> Any:
    """Context in which figures are made and drawn: fonts, and no frame above and to the right.

    Raises:
        FigureError: matplotlib isn't installed.
    """
    canvas(1, 1)
    return import_module("matplotlib").rc_context(_STYLE)


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure as .png, .svg or .pdf, by the name's ending; a failure leaves no half file.

    Raises:
        FigureError: the name ends otherwise.
        OSError: it can't be written.
    """
    path = Path(path)
    kind = path.suffix[1:].lower()
    if kind not in ("png", "svg", "pdf"):
        raise FigureError(
            f"the figure's name is {path.name!r}; expected it to end in .png, .svg or .pdf"
        )
    with styled(), replacing(path) as file:
        figure.savefig(file, format=kind, dpi=PIXELS_AN_INCH)
    return path


def colour(index: int) -> str:
    """Colour of a class; they repeat after eight."""
    return COLOURS[index % len(COLOURS)]


def names_of(count: int, names: Sequence[str] | None) -> list[str]:
    """The classes' names, c1, c2, ... if they have none."""
    return [f"c{i + 1}" for i in range(count)] if names is None else [str(n) for n in names]
