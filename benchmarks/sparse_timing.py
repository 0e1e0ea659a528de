"""The clock of the benchmarks of sparse maps and losses."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

_TURN = 0.02


def in_turn(
    runnable: Sequence[Callable[[], object]],
    runs: int,
    clock: Callable[[], float] = time.perf_counter,
    of: Callable[[Sequence[float]], float] = statistics.median,
) -> list[float]:
    """Median seconds of each, or ``of`` them, by turns: what else runs hits all alike.

    A turn is one call, or as many as 0.02 s hold; the first is not counted.
    """
    times: list[list[float]] = [[] for _ in runnable]
    for turn in range(runs + 1):
        for function, taken in zip(runnable, times, strict=True):
            calls, begin = 0, clock()
            while not calls or clock() - begin < _TURN:
                function()
                calls += 1
            if turn:
                taken.append((clock() - begin) / calls)
    return [of(taken) for taken in times]


def clock(name: str) -> Callable[[], float]:
    """Return a clock: "wall", or "cpu", the time of all threads, where others use the machine."""
    return {"wall": time.perf_counter, "cpu": time.process_time}[name]
