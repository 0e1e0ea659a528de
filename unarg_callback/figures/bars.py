"""Figure 6 of the paper: unargmaxable classes of several models, in decreasing order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unarg_callback.figures.canvas import COLOURS, FAINT, FigureError, canvas, styled


@dataclass(frozen=True)
class Bar:
    """A model.

    Args:
        name: what to call it.
        unargmaxable: classes proven unargmaxable.
        undecided: classes that are neither proven unargmaxable nor argmaxable.
    """

    name: str
    unargmaxable: int
    undecided: int = 0


def read_bars(paths: Sequence[str | Path]) -> list[Bar]:
    """Bars from the reports that ``unarg check --json`` writes, named by their files.

    Raises:
        FigureError: a file is something else.
    """
    return [_read_bar(Path(path)) for path in paths]


def _read_bar(path: Path) -> Bar:
    try:
        counts = json.loads(path.read_text(encoding="utf-8"))["counts"]
        name = path.name.removesuffix(".json").removesuffix(".unarg")
        return Bar(name, int(counts["unargmaxable"]), int(counts["undecided"]))
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise FigureError(
            f"{path} can't be read; expected a report of `unarg check --json`"
        ) from cause


def draw_bars(bars: Sequence[Bar]) -> Any:
    """Draw a bar a model, the highest first, with its number.

    Args:
        bars: the models, one or more.

    Returns:
        A matplotlib Figure.

    Raises:
        FigureError: there is none.
    """
    if not bars:
        raise FigureError("there is no model to draw; expected one or more")
    ordered = sorted(bars, key=lambda bar: (-bar.unargmaxable, -bar.undecided))
    place = range(len(ordered))
    with styled():
        figure = canvas(max(3.0, 1.2 + 0.2 * len(ordered)), 3.6)
        axes = figure.subplots()
        sure = [bar.unargmaxable for bar in ordered]
        open_ = [bar.undecided for bar in ordered]
        axes.bar(place, sure, color=COLOURS[0], width=0.75, label="unargmaxable")
        if any(open_):
            axes.bar(
                place,
                open_,
                bottom=sure,
                color="white",
                edgecolor=FAINT,
                hatch="////",
                width=0.75,
                label="undecided",
            )
            axes.legend(loc="upper right")
        for at, bar in enumerate(ordered):
            axes.annotate(
                f"{bar.unargmaxable:,}",
                (at, bar.unargmaxable + bar.undecided),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        axes.set_xticks(list(place), [bar.name for bar in ordered], rotation=90)
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.6, len(ordered) - 0.4)
        axes.set_ylabel("unargmaxable classes")
        return figure
