"""Figures of a study: scores against what varies in the data, and against the parameter."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from multilabel.study import Result

_SCORES = {
    "f_micro": "micro-averaged F",
    "jsd": "JS divergence",
    "support": "nonzero probabilities",
    "labels": "predicted labels",
}
_PARAMETERS = {"lambda_": "lambda", "q": "q"}


def draw_all(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write ``parameters.png``, and ``settings.png`` where a setting has several values.

    Raises:
        ImportError: matplotlib isn't installed.
    """
    written = []
    if any(result.parameter for result in results):
        written.append(_saved(_parameters(results), folder / "parameters.png"))
    if len({(result.setting, result.value) for result in results}) > 1:
        written.append(_saved(_settings(results), folder / "settings.png"))
    return written


def _settings(results: Sequence[Result]) -> Any:
    """A row a score, a column a setting; the parameter is the one selected."""
    chosen = [result for result in results if result.selected]
    settings = list(dict.fromkeys(result.setting for result in chosen))
    figure, panels = _panels(len(_SCORES), len(settings))
    for column, setting in zip(panels.T, settings, strict=True):
        here = [result for result in chosen if result.setting == setting]
        for axes, (score, title) in zip(column, _SCORES.items(), strict=True):
            for method in dict.fromkeys(result.method for result in here):
                axes.plot(*_curve(here, method, "value", score), "o-", ms=3, label=method)
            if score == "labels":
                method = here[0].method
                axes.plot(*_curve(here, method, "value", "true_labels"), "k:", label="true")
            axes.set_xlabel(setting)
            axes.set_ylabel(title)
    figure.legend(*panels[-1, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _parameters(results: Sequence[Result]) -> Any:
    """A row a score, a column a parameter; methods without one are level lines."""
    names = [name for name in _PARAMETERS if any(r.parameter == name for r in results)]
    methods = list(dict.fromkeys(r.method for r in results))
    plain = list(dict.fromkeys(r.method for r in results if not r.parameter))
    styles = ["-.", "--", ":", "-"] * len(plain)
    figure, panels = _panels(len(_SCORES), len(names))
    for column, name in zip(panels.T, names, strict=True):
        for axes, (score, title) in zip(column, _SCORES.items(), strict=True):
            for number, method in enumerate(methods):
                of_method = [r for r in results if r.method == method]
                if of_method[0].parameter == name:
                    curve = _curve(results, method, "parameter_value", score)
                    axes.plot(*curve, "o-", color=f"C{number}", ms=3, label=method)
                elif not of_method[0].parameter:
                    level = fmean(getattr(r, score) for r in of_method)
                    style = styles[plain.index(method)]
                    axes.axhline(level, color="grey", ls=style, lw=1, label=method)
            _scale(axes, name, sorted({r.parameter_value for r in results if r.parameter == name}))
            axes.set_xlabel(_PARAMETERS[name])
            axes.set_ylabel(title)
    entries = dict[str, Any]()
    for axes in panels[0]:
        handles, names = axes.get_legend_handles_labels()
        entries.update(zip(names, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=3)
    return figure


def _scale(axes: Any, name: str, values: Sequence[float]) -> None:
    """Equal factors of q, or of 1 - lambda, are equally far apart."""
    if name == "q":
        axes.set_xscale("log")
    else:
        # Larger lambdas, as larger qs, are on the right.
        axes.set_xscale("function", functions=(_spread, _gathered))
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def _spread(lambda_: Any) -> Any:
    return -np.log(np.maximum(1 - lambda_, 1e-9))


def _gathered(place: Any) -> Any:
    return 1 - np.exp(-place)


def _curve(
    results: Sequence[Result], method: str, x: str, y: str
) -> tuple[list[float], list[float]]:
    """Means of y over the results of a method with the same x."""
    at: dict[float, list[float]] = {}
    for result in results:
        if result.method == method:
            at.setdefault(getattr(result, x), []).append(getattr(result, y))
    return sorted(at), [fmean(at[value]) for value in sorted(at)]


def _panels(rows: int, columns: int) -> tuple[Any, Any]:
    figure = import_module("matplotlib.figure").Figure(
        figsize=(4 * columns, 2.4 * rows), layout="constrained"
    )
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=80)
    return path
