"""Runs of rows that stay in the processors' caches."""

from __future__ import annotations

import torch
from torch import Tensor

_A_THREAD = 2**17
"""Elements that a thread works on at once. Fewer, and the calls themselves take the time."""


def pieces(x: Tensor, width: int) -> tuple[Tensor, ...]:
    """Split rows into runs short enough to work on at once.

    Args:
        x: (R, ...) rows.
        width: columns worked on at once.

    Returns:
        One or more views. Elsewhere than on the CPU it is one.
    """
    if x.device.type != "cpu":
        return (x,)
    size = torch.get_num_threads() * _A_THREAD
    return x.split(max(1, size // width))
