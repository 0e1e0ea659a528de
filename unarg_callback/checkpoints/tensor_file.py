"""What every reader gives: the named tensors of one file, listed before any is loaded."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from unarg_callback.checkpoints.vocabulary import Vocabulary
from unarg_callback.errors import CheckpointError

Orientation = Literal["classes-first", "features-first"]

_LISTED = 12

BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    ValueError,
    OverflowError,
    EOFError,
    RuntimeError,
)
"""What ``zipfile`` raises for damaged archives: it documents the first alone."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a file, known by its header alone.

    Args:
        name: as ``--weight`` and ``--bias`` take it.
        shape: as stored.
        dtype: as the format spells it; for messages and for comparing.
        numeric: whether it holds real numbers (floating or integer).
        offered: whether it may be chosen without being named. False for what is not part of the
            model proper, such as a second copy of the weights.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    numeric: bool
    offered: bool = True

    @property
    def length(self) -> int | None:
        """Length n of a vector of shape (n,), (n, 1) or (1, n), else None."""
        if len(self.shape) == 1:
            return self.shape[0]
        if len(self.shape) == 2 and 1 in self.shape:
            return self.shape[0] * self.shape[1]
        return None

    def __str__(self) -> str:
        """Name and shape, safe to print."""
        return f"{shown(self.name)} {self.shape}"


@dataclass(frozen=True)
class KnownLayer:
    """An output layer that the format itself knows, where names and shapes alone wouldn't do.

    Args:
        weight: its weight.
        bias: its bias, or None if the format says that there is none.
        orientation: which dimension of the weight counts the classes.
        tied: other names of the same weight.
        why: what says so, for the description; empty where the names do.
    """

    weight: Entry
    bias: Entry | None
    orientation: Orientation = "classes-first"
    tied: tuple[Entry, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        """Names, shape and bias, for a list to choose from."""
        return layer_text(self.weight, self.bias, self.tied)


@dataclass(frozen=True, eq=False)
class TensorFile:
    """The tensors of one file.

    Args:
        path: the file.
        entries: what it holds.
        load: loads one tensor by name, all others untouched. Raises CheckpointError.
        head: the first bytes of one tensor's data; equal data has equal heads.
        torch_names: whether torch's convention holds, by which ``X.weight`` of a linear layer or
            an embedding is (classes, features).
        known: the output layers that the format itself knows; no others can then be meant unless
            they are named.
        refusal: why none is known, in a format that would know; nothing is then guessed.
        vocabulary: what the format knows of a layer with that many classes, or None.
        notes: what else a user should hear about the file.
        quantised: what says that the model, or part of it, is quantised; empty if nothing does.
        files: what else than ``path`` was read, or will be by ``load``.
    """

    path: Path
    entries: tuple[Entry, ...]
    load: Callable[[str], Tensor]
    head: Callable[[str], bytes]
    torch_names: bool
    known: tuple[KnownLayer, ...] = ()
    refusal: str = ""
    vocabulary: Callable[[int], Vocabulary] | None = None
    notes: tuple[str, ...] = ()
    quantised: str = ""
    files: tuple[Path, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Entry]:
        """The entries by their names."""
        return {entry.name: entry for entry in self.entries}

    def find(self, name: str, option: str) -> Entry:
        """The tensor called ``name``, or the only one whose dotted name ends in it.

        Args:
            name: what the user asked for.
            option: the option that named it, for the message.

        Raises:
            CheckpointError: there is none, or more than one.
        """
        exact = [entry for entry in self.entries if entry.name == name]
        found = exact or [entry for entry in self.entries if entry.name.endswith("." + name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise CheckpointError(
                f"{self.path}: {option} {shown(name)} fits {len(found)} tensors: "
                f"{listing(found)}; give the whole name"
            )
        raise CheckpointError(
            f"{self.path} has no tensor {shown(name)} for {option}; it holds "
            f"{listing(_likely(self.entries, name))}"
        )

    def fingerprint(self, entry: Entry) -> tuple[tuple[int, ...], str, bytes]:
        """What tensors with the same data have in common, from the first bytes alone."""
        return entry.shape, entry.dtype, self.head(entry.name)

    def identical(self, first: Entry, second: Entry) -> bool:
        """Whether two tensors of one fingerprint hold the same bytes: tied, or a copy."""
        one, other = self.load(first.name), self.load(second.name)
        if one.data_ptr() == other.data_ptr() and one.stride() == other.stride():
            return True
        # Plain bytes, so that NaN equals itself.
        return raw_bytes(one).equal(raw_bytes(other))


def raw_bytes(tensor: Tensor) -> Tensor:
    """(nbytes,) uint8 view (or copy) of a tensor's data in row order."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def shown(name: str) -> str:
    """A name as it is, or escaped if it would break a line or a terminal."""
    return name if name.isprintable() and name else ascii(name)


def layer_text(weight: Entry, bias: Entry | None, tied: Iterable[Entry]) -> str:
    """Names, shape and bias of a layer."""
    names = " = ".join(shown(entry.name) for entry in (weight, *tied))
    return f"{names} {weight.shape}" + (f" with {shown(bias.name)}" if bias else "")


def listing(items: Iterable[object]) -> str:
    """The first dozen, separated by commas, and how many more there are.

    >>> listing(range(14))
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more'
    """
    texts = [str(item) for item in items]
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return (", ".join(texts[:_LISTED]) + more) or "nothing"


def reason(cause: BaseException) -> str:
    """First sentence of an error, on one line and short."""
    text = " ".join(str(cause).split()) or type(cause).__name__
    first = text.split(". ", 1)[0].rstrip(".")
    return first if len(first) <= 160 else first[:157] + "..."


def _likely(entries: Iterable[Entry], name: str) -> list[Entry]:
    """Entries with the most similar names first, then the largest."""
    import difflib
    import math

    near = difflib.get_close_matches(name, [entry.name for entry in entries], n=3, cutoff=0.6)
    return sorted(
        entries,
        key=lambda entry: (
            near.index(entry.name) if entry.name in near else len(near),
            -math.prod(entry.shape),
        ),
    )
