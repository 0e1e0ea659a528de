"""Whether torch can compute where it is asked to."""

from __future__ import annotations

import torch

from unarg_callback.errors import UnargError


def usable_device(name: str, argument: str = "device") -> torch.device:
    """Return the device if it computes in float64, as every proof does.

    Args:
        name: as torch names it, such as "cpu" or "cuda:0".
        argument: what the user wrote the name in, for the message.

    Raises:
        UnargError: there is no such device here, or it can't.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, dtype=torch.float64, device=device).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as cause:
        text = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise UnargError(
            f"{argument} {name} can't be used ({text}); expected cpu, cuda or another device that "
            "torch has here and that computes in float64"
        ) from cause
    return device
