"""What the benchmarks share: the clock and the layers."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from tests.shared_data import SHARED, load_layer, load_snapshot
from unarg_callback import OutputLayer


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
