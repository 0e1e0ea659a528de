"""What PyTorch is asked to do: names and sizes of operations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Of those that `torch.use_deterministic_algorithms` refuses on CUDA, what maps and losses could
# come to use; the first two for floating point.
REFUSED_ON_CUDA = ("cumsum", "cumprod", "kthvalue", "median", "put_", "histc", "_ctc_loss")


class Operations(TorchDispatchMode):
    """Records every operation below autograd, forward and backward.

    Attributes:
        names: of operations, as "sort".
        refused: of those that have no deterministic form on CUDA.
        largest: bytes of the largest tensor that was made.
        total: bytes of all that was made: at least what was alive at any time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.refused: set[str] = set()
        self.largest = 0
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.names.add(name)
        made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        floating = any(x.is_floating_point() for x in made)
        if name in REFUSED_ON_CUDA and floating:
            self.refused.add(name)
        if name == "bincount" and len(args) > 1 and args[1] is not None:
            self.refused.add(name)
        given = {_storage(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for x in made:
            if _storage(x) not in given:
                size = x.untyped_storage().nbytes()
                self.largest = max(self.largest, size)
                self.total += size
        return out


def _storage(x: Tensor) -> int:
    return 0 if x.device == torch.device("meta") else x.untyped_storage().data_ptr()
