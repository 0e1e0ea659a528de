"""The processes that check a layer together, and what they say to each other."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from unarg_callback.errors import UnargError

T = TypeVar("T")

_TIMEOUT = timedelta(hours=6)
"""Longest wait for other ranks: as long as the longest check. Gloo notices a dead one at once."""


_FAILED = 2**62
"""Stands in for the size of a message where a rank has failed."""
_ARRAYS = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64),
)
"""What numpy can hold."""


class RankError(UnargError):
    """Something failed on one of several processes; raised on all of them."""


class Ranks:
    """A group of processes, or this one alone.

    Every method but the properties and :meth:`close` is a collective where there are several: each
    rank has to call it, in the same order. Tensors travel over the CPU, so that no accelerator has
    to synchronise and nothing gets between the collectives of a training.

    Each collective opens with one small message, by which a rank that has failed in
    :meth:`together` tells the others: whatever they are waiting for, they raise
    :class:`RankError`, and all are in step again.

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
        self._depth = 0
        self._told: Exception | None = None
        """What all ranks have heard of, while it makes its way out of :meth:`together`."""

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
        own = _packed(value) if self.first else b""
        sent = _sized(own, self._opened(len(own)))
        dist.broadcast(sent, group_src=0, group=self._group)
        return cast(T, _unpacked(sent))

    def gather(self, value: T) -> list[T]:
        """What each rank has, by rank; on every rank.

        Args:
            value: can be pickled; its tensors lie on the CPU.
        """
        if self.alone:
            return [value]
        own = _packed(value)
        return self._exchanged(own, self._opened(len(own)))

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
            work: may hold collectives, and may fail anywhere between them. Within it no exception
                of a collective may be caught, but for those of a further :meth:`together`.

        Raises:
            RankError: it failed on another rank. Where it failed, its own exception is raised.
        """
        if self.alone:
            return work()
        self._depth += 1
        try:
            result = work()
        except Exception as cause:  # Whatever it is, the others have to hear of it.
            if not self._has_told(cause):
                self._header(_FAILED)
                self._hear(f"{type(cause).__name__}: {cause}")
                self._told = cause
            raise
        else:
            self._opened(0)
            return result
        finally:
            self._depth -= 1
            if not self._depth:
                # Its traceback holds all that was worked on.
                self._told = None

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
        self._opened(0)
        dist.all_reduce(reduced, how, group=self._group)
        return reduced.to(values.device)

    def _opened(self, size: int) -> int:
        """Open a collective: the largest size that a rank gives, if none has failed."""
        largest = self._header(size)
        if largest == _FAILED:
            heard = RankError(self._hear(None))
            self._told = heard if self._depth else None
            raise heard
        return largest

    def _header(self, size: int) -> int:
        header = torch.tensor([size], device="cpu")
        dist.all_reduce(header, dist.ReduceOp.MAX, group=self._group)
        return int(header)

    def _hear(self, failure: str | None) -> str:
        """Tell the others what failed here, if anything did; who was the first to fail, and how."""
        own = _packed(failure)
        told: list[str | None] = self._exchanged(own, self._header(len(own)))
        return next(f"rank {at} failed: {text}" for at, text in enumerate(told) if text is not None)

    def _exchanged(self, own: bytes, largest: int) -> list[Any]:
        sent = _sized(own, largest)
        parts = [torch.empty_like(sent) for _ in range(self.size)]
        dist.all_gather(parts, sent, group=self._group)
        return [_unpacked(part) for part in parts]

    def _has_told(self, failure: BaseException | None) -> bool:
        """Whether the others have heard of it, or of what it came from."""
        chain: list[BaseException] = []
        while failure is not None and failure not in chain:
            chain.append(failure)
            failure = failure.__cause__ or failure.__context__
        return self._told in chain

    def __getstate__(self) -> dict[str, Any]:
        # A group belongs to the process that joined it.
        return {**self.__dict__, "_group": None, "rank": 0, "size": 1, "_depth": 0, "_told": None}


class _Pickler(pickle.Pickler):
    """Tensors travel as arrays, and views without what they are views of.

    What torch makes of each takes longer than many a message.
    """

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not Tensor or value.device.type != "cpu" or value.dtype not in _ARRAYS:
            return NotImplemented
        return torch.from_numpy, (value.detach().numpy(),)


def _packed(value: object) -> bytes:
    packed = io.BytesIO()
    _Pickler(packed, pickle.HIGHEST_PROTOCOL).dump(value)
    return packed.getvalue()


def _unpacked(message: Tensor) -> Any:
    # What stands after the end of a pickle is left alone.
    return pickle.loads(message.numpy().data)


def _sized(message: bytes, size: int) -> Tensor:
    """(size,) uint8 on the CPU, of which the message is the beginning."""
    sized = torch.zeros(size, dtype=torch.uint8, device="cpu")
    if message:
        sized[: len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
    return sized


def from_environment() -> Ranks:
    """The processes that ``torchrun`` started, this one among them; alone without it.

    Raises:
        UnargError: this torch has no distributed package.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return Ranks()
    if not dist.is_available():
        raise UnargError("torchrun started several processes, but this torch can't connect them")
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=_TIMEOUT)
    return Ranks.join()
