"""Values of options: read from text, and refused in words that name what was expected."""

from __future__ import annotations

import argparse
import math


def seconds(text: str) -> float:
    """A finite number of seconds from 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    value = _finite(text)
    if value is None or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of seconds from 0")
    return value


def positive(text: str) -> float:
    """A finite number above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    value = _finite(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
