"""Figure 10 of the paper: how many classes of a random layer are unargmaxable, by its width."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from unarg_callback.figures.canvas import COLOURS, FAINT, FigureError, canvas, styled
from unarg_callback.files import replacing
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.verification import verify


@dataclass(frozen=True)
class Measurement:
    """What a check of one random layer found.

    Args:
        classes: C.
        features: d.
        bias: whether the layer has one.
        seed: of its numbers.
        argmaxable: classes with a witness.
        unargmaxable: classes with a certificate.
        undecided: classes with neither.
        potential: classes that the search left unproven.
        points: mean number of points that the search tried for a class that is argmaxable.
        seconds: wall time.
    """

    classes: int
    features: int
    bias: bool
    seed: int
    argmaxable: int
    unargmaxable: int
    undecided: int
    potential: int
    points: float
    seconds: float

    @property
    def key(self) -> tuple[int, int, bool, int]:
        """What the layer is made from."""
        return self.classes, self.features, self.bias, self.seed


def random_layer(classes: int, features: int, seed: int, *, bias: bool = False) -> OutputLayer:
    """A layer whose entries are drawn from U(-1, 1), float32."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.rand(classes, features, generator=generator) * 2 - 1
    offset = torch.rand(classes, generator=generator) * 2 - 1 if bias else None
    return OutputLayer(weight, offset)


def measure(classes: int, features: int, seed: int, *, bias: bool = False) -> Measurement:
    """Check one random layer in the box of 100."""
    report = verify(random_layer(classes, features, seed, bias=bias))
    counts = report.counts
    reflections = report.reflections[report.status == Status.ARGMAXABLE]
    return Measurement(
        classes,
        features,
        bias,
        seed,
        counts["argmaxable"],
        counts["unargmaxable"],
        counts["undecided"],
        counts["potentially_unargmaxable"],
        round(1 + float(reflections.mean()), 4),
        round(report.seconds, 2),
    )


def measure_all(
    path: str | Path,
    classes: int,
    features: Iterable[int],
    seed: int,
    *,
    bias: bool = False,
    tell: Callable[[str], None] = print,
) -> list[Measurement]:
    """Measure layers of several widths, and write each down at once; those in the file are kept.

    So a run that was interrupted goes on where it stopped.

    Args:
        path: a CSV file, made if there is none.
        classes: C.
        features: widths.
        seed: of the first; the layer of width d is drawn with ``seed + d``.
        bias: whether the layers have one.
        tell: gets a line a layer.

    Returns:
        What was asked for, in its order.

    Raises:
        FigureError: the file is something else.
    """
    path = Path(path)
    known = {m.key: m for m in read(path)} if path.exists() else {}
    found = []
    for width in features:
        key = (classes, width, bias, seed + width)
        if key not in known:
            known[key] = measure(classes, width, seed + width, bias=bias)
            _write(path, list(known.values()))
        found.append(known[key])
        tell(_line(known[key]))
    return found


def read(path: str | Path) -> list[Measurement]:
    """Read the measurements in a file.

    Raises:
        FigureError: it isn't one of :func:`measure_all`.
    """
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    try:
        return [_parsed(row) for row in rows]
    except (KeyError, TypeError, ValueError) as cause:
        names = ", ".join(f.name for f in fields(Measurement))
        raise FigureError(f"{path} can't be read; expected a CSV file with {names}") from cause


def _parsed(row: dict[str, str]) -> Measurement:
    whole = ("classes", "features", "seed", "argmaxable", "unargmaxable", "undecided", "potential")
    return Measurement(
        **{name: int(row[name]) for name in whole},
        bias={"False": False, "True": True}[row["bias"]],
        points=float(row["points"]),
        seconds=float(row["seconds"]),
    )


def _write(path: Path, measurements: Sequence[Measurement]) -> None:
    names = [f.name for f in fields(Measurement)]
    lines = [",".join(names)]
    lines += [",".join(str(asdict(m)[name]) for name in names) for m in measurements]
    with replacing(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def _line(m: Measurement) -> str:
    return (
        f"d = {m.features:>3}{' with bias' if m.bias else ''}: {m.unargmaxable:>6,} unargmaxable, "
        f"{m.undecided:,} undecided, {m.points:.2f} points a class, {m.seconds:.1f} s"
    )


def draw(measurements: Sequence[Measurement]) -> Any:
    """Draw the share of unargmaxable classes and the points tried, against the width.

    Args:
        measurements: a curve with bias and one without, if there are both.

    Returns:
        A matplotlib Figure.
    """
    with styled():
        figure = canvas(6.3, 4.6)
        above, below = figure.subplots(2, 1, sharex=True)
        for bias, mark, ink in ((False, "o", COLOURS[0]), (True, "s", COLOURS[1])):
            curve = sorted((m for m in measurements if m.bias == bias), key=lambda m: m.features)
            if not curve:
                continue
            width = [m.features for m in curve]
            look = {"marker": mark, "markersize": 3.5, "color": ink, "linewidth": 1}
            label = "Wx + b" if bias else "Wx"
            above.plot(width, [m.unargmaxable for m in curve], label=label, **look)
            below.plot(width, [m.points for m in curve], label=label, **look)
            last = max((m.features for m in curve if m.unargmaxable), default=None)
            if last is not None:
                above.axvline(last, color=ink, linewidth=0.8, linestyle=":")
                above.annotate(
                    f"d = {last}",
                    (last, 0.45 if bias else 0.7),
                    xycoords=("data", "axes fraction"),
                    xytext=(4, 0),
                    textcoords="offset points",
                    color=ink,
                )
        classes = measurements[0].classes
        above.set_yscale("symlog", linthresh=1, linscale=0.4)
        above.set_ylim(-0.15, 1.6 * classes)
        above.set_yticks([0, 1, 10, 100, 1000, 10000][: 2 + len(str(classes))])
        above.set_yticklabels([f"{int(t):,}" for t in above.get_yticks()])
        above.set_ylabel(f"unargmaxable, of {classes:,}")
        below.set_ylabel("points tried for each\nargmaxable class")
        below.set_xlabel("features d")
        below.set_ylim(bottom=0.9)
        below.xaxis.get_major_locator().set_params(integer=True)
        for axes in (above, below):
            axes.grid(color=FAINT, alpha=0.25, linewidth=0.6)
        above.legend(loc="upper right")
        return figure
