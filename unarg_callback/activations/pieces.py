"""Runs of rows that stay in the processor's cache, and in one thread where that is faster."""

from __future__ import annotations

import torch
from torch import Tensor

_ONE_THREAD = 2**17
# PyTorch works on fewer elements than this in one thread. On few cores it costs more than it saves
# to have threads meet after each of many short operations.
_GRAIN = 2**15
_FEW_THREADS = 4
_MANY = 16


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
    threads = torch.get_num_threads()
    if threads == 1:
        size = _ONE_THREAD
    else:
        # A row too long for one thread had better share its operations with others.
        apart = threads <= _FEW_THREADS and width < _GRAIN
        size = _GRAIN - 1 if apart else max(threads, _MANY) * _GRAIN
    return x.split(max(1, size // width))
