"""What the benchmarks share: the clock, the layers, and where their ratios go."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.shared_data import SHARED, load_layer, load_snapshot
from unarg_callback import OutputLayer

RATIOS = "UNARG_BENCH_RATIOS"
"""Environment variable: the file to which :func:`ratio` adds a line."""


def ratio(what: str, value: float) -> None:
    """Add a ratio to the table at the end of ``make bench``; nothing happens outside of it.

    Args:
        what: both sides, and of which layer, in some 50 characters.
        value: the ratio.
    """
    if RATIOS in os.environ:
        with Path(os.environ[RATIOS]).open("a", encoding="utf-8") as file:
            file.write(json.dumps([what, value]) + "\n")


def told(path: Path) -> list[tuple[str, float]]:
    """Read the ratios that a benchmark added to a file; none if there is no such file."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(str(what), float(value)) for what, value in lines]


def seconds(run: Callable[[], object], runs: int) -> float:
    """Median wall time of a number of runs, after one to warm up."""
    run()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def real_layers(*names: str) -> dict[str, OutputLayer]:
    """Layers and snapshots by name; ends the benchmark where there are none."""
    if SHARED is None:
        print("skipped: no shared data (set UNARG_SHARED)")
        sys.exit(0)
    loaded = {}
    for name in names:
        weight, bias = load_snapshot(name) if name.startswith("ru") else load_layer(name)[:2]
        loaded[name] = OutputLayer(weight, bias)
    return loaded
