"""The paper's method beside this package's, extrapolated from a sample of classes.

Usage: ``python -m benchmarks.paper_baseline [--layers g2pm] [--clock wall]``

The method is that of Grivas et al. (2022), figures 4, 5 and 9 and section 3.3.1: one class after
the other, Braid Reflect on the raw weights from the class's row, at most 2,500 reflections, and,
where that finds nothing within the box of 100, the linear programme of the largest ball over all
rivals. As in the authors' published program the reflections are NumPy's in the layer's own dtype,
the ball's radius is at least 1e-8 and the tolerance 1e-9. HiGHS stands in for Gurobi; of its two
methods the one is used that is faster on one class of each kind. Nothing there is a proof.

Classes are drawn at random from three strata that this package's own check tells apart:
unargmaxable; argmaxable, but left by its search; argmaxable by its search. The first cost the
paper's method all its patience and a programme each, the last next to nothing but for a few, so a
sample of all alike would need to be far larger to say as much. The total is the sum over the strata
of their size times the mean of their sample, and is given with twice its standard error. All is run
in one process on one thread, and this package's time is a whole check, proofs included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog

from benchmarks.sparse_timing import clock
from benchmarks.timing import ratio, real_layers
from unarg_callback import OutputLayer, Report, Status, verify

PATIENCE = 2500
BOX = 100.0
_LEAST_RADIUS = 1e-8
_TOLERANCE = 1e-9
Solver = Literal["highs-ds", "highs-ipm"]
_SOLVERS: tuple[Solver, ...] = ("highs-ds", "highs-ipm")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Floats = NDArray[np.floating]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Spent:
    """What the paper's method took for one class.

    Args:
        argmaxable: its verdict; None where the solver gave none.
        reflections: seconds.
        programme: seconds, 0 where the search found a point.
    """

    argmaxable: bool | None
    reflections: float
    programme: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.reflections + self.programme


def braid_reflect(weight: Floats, bias: Floats, target: int, patience: int = PATIENCE) -> bool:
    """Algorithm 2: tell whether a point inside the box was found at which the class wins.

    Args:
        weight: (C, d).
        bias: (C,).
        target: the class.
        patience: most reflections.
    """
    own, own_bias = weight[target], bias[target]
    x = own
    for step in range(patience + 1):
        winner = int(np.argmax(weight @ x + bias))
        if winner == target:
            return bool((np.abs(x) <= BOX).all())
        normal = own - weight[winner]
        length = np.linalg.norm(normal)
        if step == patience or not length:
            break
        normal = normal / length
        x = x - 2 * (normal @ x + (own_bias - bias[winner]) / length) * normal
    return False


def largest_ball(weight: Floats, bias: Floats, target: int, solver: Solver) -> bool | None:
    """Section 3.3.1: tell whether the class's region in the box has a ball, over all rivals.

    Args:
        weight: (C, d).
        bias: (C,).
        target: the class.
        solver: of ``scipy.optimize.linprog``.
    """
    normal = np.delete(weight - weight[target], target, axis=0).astype(np.float64)
    gap = np.delete(bias[target] - bias, target).astype(np.float64)
    matrix = np.hstack([normal, np.linalg.norm(normal, axis=1, keepdims=True)])
    cost = np.append(np.zeros(weight.shape[1]), -1.0)
    box: list[tuple[float, float | None]] = [(-BOX, BOX)] * weight.shape[1]
    found = linprog(
        cost,
        A_ub=matrix,
        b_ub=gap,
        bounds=[*box, (_LEAST_RADIUS, None)],
        method=solver,
        options={"primal_feasibility_tolerance": _TOLERANCE},
    )
    return {0: True, 2: False}.get(found.status)


def papers_method(weight: Floats, bias: Floats, target: int, solver: Solver, timer: Clock) -> Spent:
    """Figure 4: the search, and the programme where it found nothing."""
    begin = timer()
    found = braid_reflect(weight, bias, target)
    searched = timer()
    if found:
        return Spent(True, searched - begin, 0.0)
    argmaxable = largest_ball(weight, bias, target, solver)
    return Spent(argmaxable, searched - begin, timer() - searched)


def strata(report: Report) -> dict[str, NDArray[np.int64]]:
    """Classes by what a check found: their ids, by the stratum's name."""
    won = report.status == Status.ARGMAXABLE
    groups = {
        "unargmaxable": report.status == Status.UNARGMAXABLE,
        "left": won & report.potential,
        "found": won & ~report.potential,
    }
    return {name: np.flatnonzero(chosen) for name, chosen in groups.items() if chosen.any()}


def extrapolate(sizes: list[int], samples: list[list[float]]) -> tuple[float, float]:
    """Total over all classes and its standard error, from a simple random sample of each stratum.

    Args:
        sizes: classes in each stratum.
        samples: what was measured of some of each.

    >>> extrapolate([10, 3], [[1.0, 3.0], [5.0, 5.0, 5.0]])
    (35.0, 8.94427190999916)
    """
    total = variance = 0.0
    for size, sample in zip(sizes, samples, strict=True):
        total += size * float(np.mean(sample))
        if 1 < len(sample) < size:
            variance += size * (size - len(sample)) * float(np.var(sample, ddof=1)) / len(sample)
    return total, math.sqrt(variance)


def fastest_solver(
    weight: Floats, bias: Floats, groups: dict[str, NDArray[np.int64]], timer: Clock
) -> Solver:
    """The HiGHS method that needs less time for one class of each stratum that needs it."""
    needed = [int(groups[name][0]) for name in ("unargmaxable", "left") if name in groups]
    taken: dict[Solver, float] = {}
    for solver in _SOLVERS:
        begin = timer()
        for target in needed:
            largest_ball(weight, bias, target, solver)
        taken[solver] = timer() - begin
    told = ", ".join(f"{solver} {seconds:.2f} s" for solver, seconds in taken.items())
    print(f"  {len(needed)} programmes: {told}", flush=True)
    return min(taken, key=lambda solver: taken[solver])


def compare(name: str, layer: OutputLayer, options: argparse.Namespace) -> None:
    """Print what one layer took: a line a stratum, and one of the whole."""
    timer = clock(options.clock)
    ours = []
    for _ in range(options.runs):
        begin = timer()
        report = verify(layer)
        ours.append(timer() - begin)
    assert layer.bias is not None
    weight, bias = layer.weight.numpy(), layer.bias.numpy()
    groups = strata(report)
    print(f"{name}, {layer.classes} x {layer.dim}", flush=True)
    solver = options.solver or fastest_solver(weight, bias, groups, timer)
    draw = np.random.default_rng(options.seed)
    sizes, samples, records, differ = [], [], {}, 0
    for kind, members in groups.items():
        most = options.easy if kind == "found" else options.hard
        chosen = draw.choice(members, min(most, len(members)), replace=False)
        spent = [papers_method(weight, bias, int(t), solver, timer) for t in chosen]
        differ += sum(one.argmaxable is not (kind != "unargmaxable") for one in spent)
        solved = [one.programme for one in spent if one.programme]
        print(
            f"  {kind:14}{len(members):>7} classes, {len(chosen):>4} tried:"
            f"{np.mean([one.reflections for one in spent]):>9.4f} s of reflections each,"
            f"{len(solved):>4} programmes of{np.mean(solved) if solved else 0:>8.3f} s",
            flush=True,
        )
        sizes.append(len(members))
        samples.append([one.seconds for one in spent])
        records[kind] = [asdict(one) for one in spent]
    total, error = extrapolate(sizes, samples)
    taken = float(np.median(ours))
    print(
        f"  the paper's {total:,.0f} s (+- {2 * error:,.0f}), {solver}; ours {taken:.2f} s; "
        f"ratio {total / taken:,.0f} (+- {2 * error / taken:,.0f}); "
        f"{differ} of {sum(map(len, samples))} verdicts differ",
        flush=True,
    )
    ratio(f"the paper's method / ours, {name}", total / taken)
    if options.save:
        told = {"layer": name, "solver": solver, "ours": ours, "sizes": sizes, "spent": records}
        with Path(options.save).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def on_one_thread() -> None:
    """Start again with one thread, unless this is the case: BLAS asks when it is loaded."""
    if any(os.environ.get(name) != "1" for name in _THREADS):
        command = [sys.executable, "-m", "benchmarks.paper_baseline", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | dict.fromkeys(_THREADS, "1"))
    torch.set_num_threads(1)


def main() -> None:
    """Print a few lines a layer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", default="g2pm,ppocrv4_rec_ch,ppocrv5_rec_mobile")
    parser.add_argument("--hard", type=int, default=8, help="classes of each stratum but `found`")
    parser.add_argument("--easy", type=int, default=100, help="classes of the stratum `found`")
    parser.add_argument("--runs", type=int, default=3, help="of ours; the median is used")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="cpu")
    parser.add_argument("--solver", choices=_SOLVERS, help="default: the faster one")
    parser.add_argument("--save", help="file to append what was measured to, as JSON lines")
    options = parser.parse_args()
    on_one_thread()
    print(f"1 thread, torch {torch.__version__}, {options.clock} seconds, box:{BOX:g}")
    layers = real_layers(*options.layers.split(","))
    verify(next(iter(layers.values())))  # The first run of all loads libraries.
    for name, layer in layers.items():
        compare(name, layer, options)


if __name__ == "__main__":
    main()
