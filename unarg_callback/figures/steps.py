"""Figures 11 and 12 of the paper: reflections that each class took, against its frequency rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.figures.canvas import COLOURS, FAINT, INK, canvas, styled
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report
from unarg_callback.search.reflect import paper_search

_GROUP = 200
"""Neighbours in the vocabulary for which a mean is drawn."""


@dataclass(frozen=True, eq=False)
class Steps:
    """What the search spent on each class that took part, in the layer's order.

    Args:
        reflections: (n,) int64.
        status: (n,) int8, values of :class:`Status`.
        potential: (n,) bool, left unproven by the search.
    """

    reflections: NDArray[np.int64]
    status: NDArray[np.int8]
    potential: NDArray[np.bool_]


def steps_of(report: Report) -> Steps:
    """What this package's search spent."""
    active = report.status != Status.EXCLUDED
    return Steps(report.reflections[active], report.status[active], report.potential[active])


def paper_steps(layer: OutputLayer, report: Report, patience: int) -> Steps:
    """What the paper's search spends: raw weights, from the class's own row.

    Args:
        layer: the layer.
        report: a check of it, for domain and verdicts.
        patience: most reflections a class; the paper has 2,500.
    """
    state = paper_search(Checker(layer, report.domain), patience=patience)
    active = report.status != Status.EXCLUDED
    return Steps(
        np.asarray(state.reflections.numpy()),
        report.status[active],
        ~np.asarray(state.proven.numpy()),
    )


def draw_steps(steps: Steps, title: str = "") -> Any:
    """Draw a dot a class: its place in the vocabulary, and the points tried for it.

    Args:
        steps: in the order of the vocabulary, the most frequent class first.
        title: above the picture.

    Returns:
        A matplotlib Figure.
    """
    points = steps.reflections + 1
    rank = np.arange(1, len(points) + 1)
    argmaxable = steps.status == Status.ARGMAXABLE
    kinds = (
        ("argmaxable, by the search", argmaxable & ~steps.potential, COLOURS[0], "."),
        ("argmaxable, by the exact stage", argmaxable & steps.potential, COLOURS[2], "^"),
        ("unargmaxable", steps.status == Status.UNARGMAXABLE, COLOURS[1], "x"),
        ("undecided", steps.status == Status.UNDECIDED, INK, "+"),
    )
    with styled():
        figure = canvas(6.3, 3.4)
        axes = figure.subplots()
        # Classes with the same number would hide each other.
        shift = np.random.default_rng(0).uniform(0.9, 1.1, len(points))
        for label, chosen, ink, mark in kinds:
            if chosen.any():
                axes.plot(
                    rank[chosen],
                    (points * shift)[chosen],
                    mark,
                    color=ink,
                    markersize=3 if mark == "." else 3.5,
                    markeredgewidth=0.7,
                    alpha=0.6,
                    label=f"{label}: {int(chosen.sum()):,}",
                    rasterized=True,
                    linestyle="none",
                )
        groups = np.array_split(rank, max(1, len(rank) // _GROUP))
        means = [points[g - 1].mean() for g in groups]
        axes.plot([g.mean() for g in groups], means, color=INK, linewidth=1.5, label="mean")
        axes.set_yscale("log")
        axes.set_ylim(0.8, 1.5 * points.max())
        axes.set_xlim(0, len(points) + 1)
        axes.set_xlabel("place in the vocabulary")
        axes.set_ylabel("points tried")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.grid(color=FAINT, alpha=0.25, linewidth=0.6)
        axes.set_title(title)
        axes.legend(
            ncols=2,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
            markerscale=1.8,
            columnspacing=1.5,
        )
        return figure
