"""Bounds on floating-point error, by the standard model of Higham (2002), sections 2.2 and 3.1.

``fl(a op b) = (a op b)(1 + e)`` with ``|e| <= u``. A sum or an inner product of n terms, in any
order and with or without fused multiply-add, has an error of at most ``gamma(n)`` times the sum of
the absolute values of its terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

UNIT_ROUNDOFF: dict[torch.dtype, float] = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
"""u for round to nearest."""

SMALLEST_NORMAL: dict[torch.dtype, float] = {torch.float64: 2.0**-1022, torch.float32: 2.0**-126}
"""Anything smaller may be flushed to zero, an absolute error of at most this much an operation."""


def gamma(n: int, dtype: torch.dtype = torch.float64) -> float:
    """Bound n accumulated roundings: ``n u / (1 - n u)`` (Higham 2002, lemma 3.1).

    Returns infinity where the bound does not hold (``n u >= 1``).

    >>> gamma(1) < 1.2e-16 < gamma(2)
    True
    """
    nu = n * UNIT_ROUNDOFF[dtype]
    return nu / (1.0 - nu) if nu < 1.0 else float("inf")


def float32_products_are_ieee(device: torch.device) -> bool:
    """Tell whether float32 matrix products on this device are computed in float32.

    TF32 on CUDA and bfloat16 on CPUs are opt-in, by two interfaces of torch; with either, the bound
    of :func:`gamma` for float32 does not hold.
    """
    backend: object = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    for place in (torch.backends, backend, getattr(backend, "matmul", None)):
        if getattr(place, "fp32_precision", "none") not in ("none", "ieee"):
            return False
    try:
        highest = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # It was set by the other interface, for some backend.
        return False
    return highest and not (device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32)


@contextmanager
def plain_arithmetic(device: torch.device) -> Iterator[None]:
    """Compute as written: no autocast, and tensors without a device on the CPU.

    Args:
        device: where products run.
    """
    with ExitStack() as stack:
        for kind in {"cpu", device.type}:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


def subnormals_are_flushed() -> bool:
    """Tell whether this thread takes subnormal numbers for zero (``torch.set_flush_denormal``)."""
    smallest = torch.tensor([1], dtype=torch.int64, device="cpu").view(torch.float64)
    return not bool((smallest != 0).item())


def inward(bound: torch.Tensor, dtype: torch.dtype, *, up: bool) -> torch.Tensor:
    """Round a bound to ``dtype`` towards the inside of a box.

    Args:
        bound: (d,) float64.
        dtype: float32 or float64.
        up: whether the inside lies above, as it does for a lower bound.
    """
    rounded = bound.to(dtype)
    outside = rounded.double() < bound if up else rounded.double() > bound
    towards = torch.full_like(rounded, torch.inf if up else -torch.inf)
    return torch.where(outside, torch.nextafter(rounded, towards), rounded)
