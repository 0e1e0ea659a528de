"""The two exact ways on the same classes: agreement, and the ratio of their times.

Usage: ``python -m benchmarks.exact_ways``

Each settles what the search leaves of a layer; sharing of certificates is on for both.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.timing import ratio, real_layers
from unarg_callback import OutputLayer, Report, verify


def random_layer(classes: int, dim: int) -> OutputLayer:
    """Gaussian rows and biases."""
    rng = np.random.default_rng(0)
    return OutputLayer(rng.normal(size=(classes, dim)), rng.normal(size=classes))


def timed(layer: OutputLayer, way: str) -> tuple[Report, float]:
    """Verify with one exact way first."""
    begin = time.perf_counter()
    report = verify(layer, exact="interior_point" if way == "interior_point" else "cutting_plane")
    return report, time.perf_counter() - begin


def main() -> None:
    """Print one line a layer."""
    layers = real_layers("g2pm", "ru16_0")
    layers |= {"random 3000 x 8": random_layer(3000, 8), "random 3000 x 12": random_layer(3000, 12)}
    print(f"{'layer':18}{'left':>6}{'differ':>8}{'interior s':>12}{'HiGHS s':>9}{'ratio':>7}")
    for name, layer in layers.items():
        verify(layer)
        inner, inner_seconds = timed(layer, "interior_point")
        outer, outer_seconds = timed(layer, "cutting_plane")
        print(
            f"{name:18}{inner.counts['potentially_unargmaxable']:>6}"
            f"{int((inner.status != outer.status).sum()):>8}{inner_seconds:>12.2f}"
            f"{outer_seconds:>9.2f}{outer_seconds / inner_seconds:>7.1f}"
        )
        ratio(f"HiGHS with cuts / interior point, {name}", outer_seconds / inner_seconds)


if __name__ == "__main__":
    main()
