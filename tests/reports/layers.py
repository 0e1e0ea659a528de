"""Reports of small layers, with names that would do harm."""

from __future__ import annotations

from typing import Any

from unarg_callback import OutputLayer, Report, verify

NAMES = [
    "<script>alert(1)</script>",
    "東京",
    "a|b*_`c`",
    "</td></table><img src=x onerror=alert(1)>",
    "\"quoted\" & 'so'",
    "\x1b[31m\u202eevil\n",
    "in",
    "twin",
    "padding",
]
ROWS = [
    [1.0, 1.0],
    [1.0, -1.0],
    [-1.0, 1.0],
    [-1.0, -1.0],
    [0.25, 0.0],
    [0.0, -1.5],
    [0.0, 0.125],
    [1.0, 1.0],
    [9.0, 9.0],
]
"""0 and 7 are equal, 4 and 6 are inside, and 8 is excluded."""


def hostile_report(**options: Any) -> Report:
    return verify(OutputLayer(ROWS, names=NAMES, excluded=[8]), **options)


def plain_report(classes: int = 300, **options: Any) -> Report:
    """Without names, with many unargmaxable classes."""
    import numpy as np

    rng = np.random.default_rng(3)
    return verify(OutputLayer(rng.normal(size=(classes, 2)), rng.normal(size=classes)), **options)
