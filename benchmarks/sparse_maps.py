"""Sparsemax beside entmax's: its default and its best ``k``, forward, backward and both.

Usage: ``python -m benchmarks.sparse_maps [--threads 1] [--runs 9] [--clock cpu]``

All run by turns in one process, on the same scores; each line has the medians of one shape. Scores
are normal with three standard deviations, for small, middling and large supports. ``k`` is the best
of KS for each line by itself. Where others use the machine, ``--clock cpu`` counts the time of all
threads, which for more than one has their waiting in it, and ``--least`` shows the fastest turns.
Needs ``pip install entmax``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from math import exp, log
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from benchmarks.sparse_timing import clock, in_turn
from benchmarks.timing import ratio
from unarg_callback.activations import sparsemax

SHAPES = ((4096, 64), (1024, 512), (512, 4096), (64, 50_000))
SCALES = (1.0, 0.05, 0.002)
KS = (8, 16, 32, 64, 128, 512)

Map = Callable[[Tensor], Tensor]
Timed = Callable[[Sequence[Callable[[], object]]], list[float]]


def peer() -> Any:
    """Return entmax, which is no dependency of this project."""
    try:
        return import_module("entmax")
    except ImportError:
        print("skipped: this compares with entmax, which isn't installed (pip install entmax)")
        sys.exit(0)


def steps(function: Map, x: Tensor, grad: Tensor) -> tuple[Callable[[], object], ...]:
    """Forward with a graph, backward alone, and both."""
    kept = function(x)

    def backward() -> None:
        torch.autograd.grad(kept, x, grad, retain_graph=True)

    def both() -> None:
        torch.autograd.grad(function(x), x, grad)

    return partial(function, x), backward, both


def compare(rows: int, classes: int, scale: float, timed: Timed) -> list[float]:
    """Print one line; return how often faster than entmax's best: forward, backward, both."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(rows, classes, generator=generator) * scale).requires_grad_()
    grad = torch.randn(rows, classes, generator=generator)
    theirs = peer().sparsemax
    ks = [k for k in KS if k < classes]
    maps: list[Map] = [sparsemax, partial(theirs, dim=-1)]
    maps += [partial(theirs, dim=-1, k=k) for k in ks]
    runnable = [step for function in maps for step in steps(function, x, grad)]
    times = timed(runnable)
    forward, backward, both = times[0::3], times[1::3], times[2::3]
    best = min(range(1, len(maps)), key=lambda i: both[i])
    support = float((sparsemax(x) > 0).sum(1).float().mean())
    name = "none" if best == 1 else str(ks[best - 2])
    ratios = [min(kind[1:]) / kind[0] for kind in (forward, backward, both)]
    print(
        f"{f'{rows} x {classes}':>12}{support:>9.1f}{1e3 * both[1]:>12.2f}"
        f"{1e3 * both[best]:>9.2f}{name:>6}{1e3 * both[0]:>8.2f}"
        f"{both[1] / both[0]:>9.1f}{ratios[0]:>9.1f}{ratios[1]:>9.1f}{ratios[2]:>7.1f}",
        flush=True,
    )
    return ratios


def main() -> None:
    """Print one line a shape and scale, and the geometric means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=9, help="timed runs; medians are shown")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--threads", type=int, help="PyTorch's own number unless given")
    parser.add_argument("--least", action="store_true", help="show minima, not medians")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    timed = partial(
        in_turn,
        runs=arguments.runs,
        clock=clock(arguments.clock),
        of=min if arguments.least else median,
    )
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, float32")
    print(f"{'':21}{'forward and backward, ms':^35}{'times as fast as entmax':^34}")
    print(
        f"{'B x K':>12}{'support':>9}{'no k':>12}{'best':>9}{'k':>6}{'ours':>8}"
        f"{'no k':>9}{'forward':>9}{'backward':>9}{'both':>7}"
    )
    found = [compare(*shape, scale, timed) for shape in SHAPES for scale in SCALES]
    means = [exp(fmean(log(line[i]) for line in found)) for i in range(3)]
    print(f"{'geometric mean':>21}{'':44}{means[0]:>9.1f}{means[1]:>9.1f}{means[2]:>7.1f}")
    for kind, mean in zip(("forward", "backward", "both"), means, strict=True):
        ratio(f"entmax's sparsemax / ours, {kind}", mean)


if __name__ == "__main__":
    main()
