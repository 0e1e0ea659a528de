"""What watching an output layer's input costs, as a ratio to the layer's own forward pass.

Usage: ``python -m benchmarks.activation_range [--tokens 4096] [--dim 512] [--classes 32000]``

The layer is called with and without the hook in turn, so that both see the same machine; the hook
alone is timed as well, as its share is too small to be told from two times of the whole.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.timing import ratio
from unarg_callback.monitoring.activation_range import ActivationRange

_DTYPES = (torch.float32, torch.bfloat16)


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one run, until the device is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def measure(layer: nn.Linear, x: torch.Tensor, runs: int) -> tuple[float, float, float]:
    """Median seconds of the layer, of the watched layer, and of the hook alone."""
    times: list[tuple[float, float, float]] = []
    observed = ActivationRange("both")
    for _ in range(runs + 1):
        plain = seconds(lambda: layer(x))
        with observed.attach(layer):
            watched = seconds(lambda: layer(x))
        times.append((plain, watched, seconds(lambda: observed.update(x))))
    plain, watched, alone = (statistics.median(column) for column in zip(*times[1:], strict=True))
    return plain, watched, alone


def main() -> None:
    """Print one line a dtype."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, default=32_000)
    parser.add_argument("--runs", type=int, default=5, help="timed runs; the medians are shown")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(
        f"{arguments.tokens} tokens x {arguments.dim}, {arguments.classes} classes, {device}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    print(f"{'dtype':10}{'forward s':>11}{'watched s':>11}{'hook s':>9}{'hook / forward':>16}")
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(arguments.tokens, arguments.dim, generator=draw)
    for dtype in _DTYPES:
        layer = nn.Linear(arguments.dim, arguments.classes, device=device, dtype=dtype)
        with torch.no_grad():
            plain, watched, alone = measure(layer, x.to(device, dtype), arguments.runs)
        name = str(dtype).removeprefix("torch.")
        print(f"{name:10}{plain:>11.4f}{watched:>11.4f}{alone:>9.5f}{alone / plain:>16.4f}")
        ratio(f"hook / forward pass, {name}", alone / plain)


if __name__ == "__main__":
    main()
