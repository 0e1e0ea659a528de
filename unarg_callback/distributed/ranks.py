"""The processes that check a layer together, and what they say to each other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from unarg_callback.errors import UnargError

T = TypeVar("T")

_TIMEOUT = timedelta(hours=6)
"""Longest wait for other ranks: as long as the longest check. Gloo notices a dead one at once."""


class RankError(UnargError):
    """Something failed on one of several processes; raised on all of them."""


class Ranks:
    """A group of processes, or this one alone.

    Every method but the properties is a collective where there are several: each rank has to call
    it, in the same order. Tensors travel over the CPU, so that no accelerator has to synchronise
    and nothing gets between the collectives of a training.

    Args:
        group: of ``torch.distributed``, gloo; None for this process alone.

    >>> alone = Ranks()
    >>> alone.size, alone.first, alone.gather("a"), alone.together(lambda: 3)
    (1, True, ['a'], 3)
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.rank: int = 0 if group is None else dist.get_rank(group)
        """0 to ``size - 1``."""
        self.size: int = 1 if group is None else dist.get_world_size(group)
        """How many processes there are."""

    @classmethod
    def join(cls) -> Ranks:
        """A group of its own for all processes of the default group; alone where there is none.

        A collective: all of them have to call it.
        """
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return cls()
        return cls(dist.new_group(backend="gloo", timeout=_TIMEOUT))

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which decides and writes."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.size == 1

    def broadcast(self, value: T) -> T:
        """What rank 0 has; the values of the others are ignored."""
        if self.alone:
            return value
        box = [value if self.first else None]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """What each rank has, by rank; on every rank."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def maximum(self, values: Tensor) -> Tensor:
        """The largest of all ranks, entry by entry; the same shape and dtype on every rank."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all ranks, entry by entry; the same shape and dtype on every rank."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def together(self, work: Callable[[], T]) -> T:
        """Do something on every rank; if it fails on any, fail on all.

        Without this, a rank that raises leaves the others waiting in their next collective.

        Args:
            work: has no collective inside that a failure could make it miss.

        Raises:
            RankError: it failed on another rank. Where it failed, its own exception is raised.
        """
        try:
            result, failure = work(), None
        except Exception as cause:  # Whatever it is, the others have to hear of it.
            failure = cause
        told = None if failure is None else f"{type(failure).__name__}: {failure}"
        failed = {at: text for at, text in enumerate(self.gather(told)) if text is not None}
        if failure is not None:
            raise failure
        if failed:
            at, text = next(iter(failed.items()))
            raise RankError(f"rank {at} failed: {text}")
        return result

    def close(self) -> None:
        """Leave the group. Not a collective; no effect the second time."""
        group, self._group = self._group, None
        self.rank, self.size = 0, 1
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)

    def _reduced(self, values: Tensor, how: Any) -> Tensor:
        if self.alone:
            return values
        reduced = values.detach().to("cpu", copy=True).contiguous()
        dist.all_reduce(reduced, how, group=self._group)
        return reduced.to(values.device)

    def __getstate__(self) -> dict[str, Any]:
        # A group belongs to the process that joined it.
        return {"_group": None, "rank": 0, "size": 1}


def from_environment() -> Ranks:
    """The processes that ``torchrun`` started, this one among them; alone without it.

    Raises:
        UnargError: this torch has no distributed package.
    """
    if not dist.is_torchelastic_launched():
        return Ranks()
    if not dist.is_available():
        raise UnargError("torchrun started several processes, but this torch can't connect them")
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=_TIMEOUT)
    return Ranks.join()
