"""Tensors of which each rank holds a part, and how to have them whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def is_sharded(value: object) -> bool:
    """Whether a tensor is a ``DTensor`` (fully_shard, tensor parallelism)."""
    return isinstance(value, Tensor) and hasattr(value, "full_tensor")


def any_sharded(module: nn.Module) -> bool:
    """Whether any parameter or buffer of a module is a ``DTensor``."""
    return any(map(is_sharded, module.parameters())) or any(map(is_sharded, module.buffers()))


def local_part(value: Tensor) -> Tensor:
    """What this rank holds of a ``DTensor``, or the tensor itself."""
    local: Any = value
    return local.to_local() if is_sharded(value) else value


def whole(value: Tensor) -> Tensor:
    """The whole tensor; of a ``DTensor`` a collective that every rank of its mesh has to enter."""
    if not is_sharded(value):
        return value
    sharded: Any = value
    meant = sharded.device_mesh.device_type
    if sharded.device.type != meant:
        # Parameters that fully_shard offloads to the CPU are gathered where the ranks talk.
        sharded = sharded.to(meant)
    gathered: Tensor = sharded.full_tensor()
    return gathered


def is_flattened(value: object) -> bool:
    """Whether a parameter is a view into what FullyShardedDataParallel has flattened."""
    return bool(getattr(value, "_fsdp_flattened", False))


def units_within(module: nn.Module) -> list[nn.Module]:
    """Modules below one that FullyShardedDataParallel wraps."""
    return [part for part in module.modules() if "_fsdp_wrapped_module" in part._modules]


@contextmanager
def unsharded(units: Iterable[nn.Module], root: nn.Module | None) -> Iterator[None]:
    """Have the own parameters of FullyShardedDataParallel wrappers whole, on every rank.

    A collective: every rank has to enter, between steps. Nothing is written back.

    Args:
        units: the wrappers.
        root: the outermost wrapper of the model, or None where there is no wrapper.
    """
    wrappers = list({id(unit): unit for unit in units}.values())
    if not wrappers:
        yield
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    def summoned(unit: nn.Module) -> Any:
        return FullyShardedDataParallel.summon_full_params(unit, recurse=False, writeback=False)

    with ExitStack() as stack:
        # Before the first forward pass the wrapper that is summoned first is taken for the root.
        if root is not None and getattr(root, "_is_root", True) is None:
            with summoned(root):
                pass
        for unit in wrappers:
            stack.enter_context(summoned(unit))
        yield


def rows_of(value: Tensor) -> tuple[Tensor, int] | None:
    """Rows of a ``DTensor`` that this rank holds, and the first one's id.

    Returns:
        None unless the rows, whole and contiguous, are divided over a mesh of one dimension.
    """
    if not is_sharded(value):
        return None
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    tensor: Any = value
    if tensor.device_mesh.ndim != 1 or tuple(tensor.placements) != (Shard(0),):
        return None
    _, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    if not offset:
        return None
    with torch.no_grad():
        return tensor.to_local(), int(offset[0])
