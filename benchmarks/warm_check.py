"""Checks that start from an earlier snapshot's proofs, as ratios to cold checks of the same layer.

Usage: ``python -m benchmarks.warm_check [--runs 3] [--case ru16]``

Cold and warm runs take turns. Each warm run has a verifier of its own that has just seen the first
snapshot; copying that one is not timed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Any

import torch

from benchmarks.timing import ratio, real_layers
from unarg_callback import IncrementalVerifier, OutputLayer, Report, verify

CASES = (
    ("ru64_550", "ru64_600"),
    ("ru64_550", "ru64_550"),
    ("ru16_300", "ru16_400"),
    ("ru16_100", "ru16_200"),
    ("ru16_400", "ru16_400"),
)
_REUSED = ("kept", "evaluated", "recertified", "searched", "solved")


def compare(seen: IncrementalVerifier, layer: OutputLayer, runs: int) -> dict[str, Any]:
    """Time cold and warm checks of a layer in turn.

    Args:
        seen: has seen the layer before; it is copied for each run and stays as it is.
        layer: the layer to check.
        runs: timed runs of either kind, after one of each to warm up.

    Returns:
        The last ``cold`` and ``warm`` report, and the medians ``cold_seconds``, ``warm_seconds``.
    """
    cold_times, warm_times = [], []
    for at in range(runs + 1):
        begin = time.perf_counter()
        cold = verify(layer, seen.domain)
        cold_seconds = time.perf_counter() - begin
        fresh = copy.deepcopy(seen)
        begin = time.perf_counter()
        warm = fresh.update(layer)
        warm_seconds = time.perf_counter() - begin
        if at:
            cold_times.append(cold_seconds)
            warm_times.append(warm_seconds)
    return {
        "cold": cold,
        "warm": warm,
        "cold_seconds": statistics.median(cold_times),
        "warm_seconds": statistics.median(warm_times),
    }


def line(case: str, found: dict[str, Any], kept_bytes: float) -> str:
    """One line of the table."""
    cold, warm = found["cold"], found["warm"]
    assert isinstance(cold, Report)
    assert isinstance(warm, Report)
    differ = int((cold.status != warm.status).sum())
    reused = "".join(f"{getattr(warm.reuse, name):>12,}" for name in _REUSED)
    return (
        f"{case:22}{found['cold_seconds']:>8.2f}{found['warm_seconds']:>8.2f}"
        f"{found['warm_seconds'] / found['cold_seconds']:>8.3f}"
        f"{warm.counts['unargmaxable']:>14,}{warm.counts['undecided']:>11,}{differ:>8,}"
        f"{reused}{kept_bytes:>9.2f}"
    )


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3, help="timed runs; the medians are shown")
    parser.add_argument("--case", default="", help="only cases that start with this")
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, box:100")
    reused = "".join(f"{name:>12}" for name in _REUSED)
    print(
        f"{'case':22}{'cold s':>8}{'warm s':>8}{'ratio':>8}{'unargmaxable':>14}{'undecided':>11}"
        f"{'differ':>8}{reused}{'bytes/W':>9}"
    )
    for first, second in CASES:
        if not first.startswith(arguments.case):
            continue
        layers = real_layers(first, second)
        seen = IncrementalVerifier("box:100")
        seen.update(layers[first])
        weight = layers[first].weight
        share = seen.nbytes / (weight.numel() * weight.element_size())
        case = f"{first} again" if first == second else f"{first} -> {second[5:]}"
        found = compare(seen, layers[second], arguments.runs)
        print(line(case, found, share), flush=True)
        ratio(f"warm / cold check, {case}", found["warm_seconds"] / found["cold_seconds"])


if __name__ == "__main__":
    main()
