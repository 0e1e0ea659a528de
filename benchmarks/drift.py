"""What a warm check costs as the layer drifts: from no change at all to a new layer.

Usage: ``python -m benchmarks.drift [--runs 3] [--plot docs/drift.png]``

The layer is ``W(t) = W_0 + t (W_1 - W_0)`` between two snapshots of one training run, so t = 1 is
what that run did in 50 or 100 steps; the last line is a layer of random rows of the same sizes.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import ratio, real_layers
from benchmarks.warm_check import compare
from unarg_callback import IncrementalVerifier, OutputLayer

PAIRS = (("ru64_550", "ru64_600"), ("ru16_300", "ru16_400"))
STEPS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0)
_PIXELS_AN_INCH = 100
_ZERO_AT = 0.003

Curve = list[tuple[float, float, float]]
"""Drift t, ratio of warm to cold seconds, share of the witnesses that the screen kept."""


def between(one: OutputLayer, other: OutputLayer, t: float) -> OutputLayer:
    """The layer at ``one + t (other - one)``, in the dtype of ``one``."""
    assert one.bias is not None
    assert other.bias is not None
    pairs = ((one.weight, other.weight), (one.bias, other.bias))
    weight, bias = (
        (a.double() + t * (b.double() - a.double())).to(a.dtype) if t else a for a, b in pairs
    )
    return OutputLayer(weight, bias)


def random_like(layer: OutputLayer) -> OutputLayer:
    """Other rows, drawn with the mean and standard deviation of each feature, and other biases."""
    assert layer.bias is not None
    generator = torch.Generator().manual_seed(0)
    weight, bias = layer.weight, layer.bias
    rows = torch.randn(weight.shape, generator=generator) * weight.std(0) + weight.mean(0)
    biases = torch.randn(bias.shape, generator=generator) * bias.std() + bias.mean()
    return OutputLayer(rows.to(weight.dtype), biases.to(bias.dtype))


def measure(first: str, second: str, runs: int) -> Curve:
    """Print a line for each drift from the first snapshot; return what can be drawn."""
    layers = real_layers(first, second)
    start, end = layers[first], layers[second]
    seen = IncrementalVerifier("box:100")
    witnesses = max(seen.update(start).counts["argmaxable"], 1)
    cases = [(f"{t:g}", between(start, end, t)) for t in STEPS]
    cases.append(("random", random_like(start)))
    curve: Curve = []
    for name, layer in cases:
        moved = float((layer.weight - start.weight).norm() / start.weight.norm())
        found = compare(seen, layer, runs)
        share_of_cold = found["warm_seconds"] / found["cold_seconds"]
        reuse = found["warm"].reuse
        share = reuse.kept / witnesses
        differ = int((found["warm"].status != found["cold"].status).sum())
        print(
            f"{first:10}{name:>8}{moved:>10.2g}{found['cold_seconds']:>9.2f}"
            f"{found['warm_seconds']:>9.2f}{share_of_cold:>8.3f}{share:>8.3f}"
            f"{found['warm'].counts['unargmaxable']:>14,}{differ:>8,}"
            f"{reuse.searched:>10,}{reuse.solved:>8,}",
            flush=True,
        )
        ratio(f"warm / cold check, {first[:4]}, drift {name}", share_of_cold)
        if name != "random":
            curve.append((float(name), share_of_cold, share))
    return curve


def drawing() -> Any:
    """Return matplotlib's pyplot for files; matplotlib is no dependency of this project."""
    try:
        import_module("matplotlib").use("Agg")
        return import_module("matplotlib.pyplot")
    except ImportError:
        sys.exit("--plot needs matplotlib, which isn't installed: pip install matplotlib")


def plot(curves: dict[str, Curve], path: Path) -> None:
    """Draw ratio and share against drift, and write a picture some 900 pixels wide."""
    pyplot = drawing()
    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(9, 6.4))
    for name, curve in curves.items():
        drift = [t or _ZERO_AT for t, _, _ in curve]
        above.plot(drift, [ratio for _, ratio, _ in curve], "o-", label=name)
        below.plot(drift, [share for _, _, share in curve], "o-", label=name)
    above.axhline(1.0, color="grey", linewidth=1, linestyle="--")
    above.text(_ZERO_AT, 1.02, "a cold check", color="grey", va="bottom")
    above.set_ylabel("warm / cold seconds")
    highest = max(ratio for curve in curves.values() for _, ratio, _ in curve)
    above.set_ylim(0, max(1.2, 1.1 * highest))
    below.set_ylabel("share of witnesses kept")
    below.set_ylim(0, 1.05)
    below.set_xscale("log")
    below.set_xticks([_ZERO_AT, *STEPS[1:]], ["0", *(f"{t:g}" for t in STEPS[1:])])
    below.minorticks_off()
    below.set_xlabel("drift t since the last check (1: what the run did in the steps named)")
    above.legend(frameon=False, loc="center left")
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=_PIXELS_AN_INCH)


def main() -> None:
    """Print one line a drift, and draw them if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3, help="timed runs; the medians are used")
    parser.add_argument("--plot", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    if arguments.plot is not None:
        drawing()  # Rather now than after minutes of measuring.
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, box:100")
    print(
        f"{'from':10}{'drift':>8}{'|dW|/|W|':>10}{'cold s':>9}{'warm s':>9}{'ratio':>8}{'kept':>8}"
        f"{'unargmaxable':>14}{'differ':>8}{'searched':>10}{'solved':>8}"
    )
    curves = {
        f"{first[:4]}, step {first[5:]} to {second[5:]}": measure(first, second, arguments.runs)
        for first, second in PAIRS
    }
    if arguments.plot is not None:
        plot(curves, arguments.plot)


if __name__ == "__main__":
    main()
