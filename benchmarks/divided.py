"""Cold checks by two processes, as ratios to the same check by one; each has one thread.

Usage: ``python -m benchmarks.divided [--runs 3] [--processes 2]``

The processes hold the same layer, as in data-parallel training, and divide the classes.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

from benchmarks.timing import ratio, real_layers, seconds
from tests.distributed.processes import in_processes
from unarg_callback import verify
from unarg_callback.distributed.ranks import Ranks


def timed(name: str, runs: int) -> tuple[float, dict[str, int]]:
    """Median seconds of a check by all processes, and its counts; run in each of them."""
    ranks = Ranks.join()
    layer = real_layers(name)[name]
    counts = verify(layer, ranks=ranks).counts
    return seconds(partial(verify, layer, ranks=ranks), runs), counts


def main() -> None:
    """Print one line a layer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3, help="timed runs; the median is shown")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    size = options.processes
    print(f"1 thread a process, torch {torch.__version__}, box:100")
    print(
        f"{'layer':16}{'C x d':>12}{'unargmaxable':>14}{'undecided':>11}"
        f"{'1 process s':>13}{f'{size} processes s':>15}{'ratio':>7}"
    )
    for name, layer in real_layers("ppocrv4_rec_ch", "ru16_0", "ru16_300").items():
        (alone, counts), *_ = in_processes(timed, name, options.runs, size=1)
        told = in_processes(timed, name, options.runs, size=size)
        # How many the search leaves unproven may differ; no verdict does.
        kinds = ("argmaxable", "unargmaxable", "undecided")
        assert all(heard[kind] == counts[kind] for _, heard in told for kind in kinds), told
        divided = max(taken for taken, _ in told)
        print(
            f"{name:16}{f'{layer.classes} x {layer.dim}':>12}{counts['unargmaxable']:>14}"
            f"{counts['undecided']:>11}{alone:>13.2f}{divided:>15.2f}{divided / alone:>7.2f}"
        )
        ratio(f"{size} processes / 1, {name}", divided / alone)


if __name__ == "__main__":
    main()
