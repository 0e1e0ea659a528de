"""Whether a graph is being recorded, so that values can't be looked at."""

from __future__ import annotations

import torch
from torch import Tensor


def is_recorded(x: Tensor) -> bool:
    """Whether ``torch.compile``, ``torch.export`` or ``torch.jit.trace`` sees this tensor."""
    return torch.compiler.is_compiling() or x.is_meta or is_traced()


def is_traced() -> bool:
    """Whether ``torch.jit.trace`` is at work: sizes are tensors then, and it warns of their use."""
    return torch._C._get_tracing_state() is not None


def is_readable(x: Tensor) -> bool:
    """Whether values can be looked at without a synchronisation of devices."""
    return not is_recorded(x) and x.device.type == "cpu" and not is_wrapped(x)


def is_wrapped(x: Tensor) -> bool:
    """Whether ``torch.func``, or a batched ``torch.autograd.grad``, is at work on this tensor."""
    known = torch._C._functorch
    return known.is_functorch_wrapped_tensor(x) or known.is_legacy_batchedtensor(x)
