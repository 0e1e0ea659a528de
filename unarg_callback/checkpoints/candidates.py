"""Which tensors of a file could be an output layer's weight, and which bias goes with each."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from unarg_callback.checkpoints.parts import is_part
from unarg_callback.checkpoints.tensor_file import Entry, TensorFile, layer_text

_PAIRED = {
    "weight": ("bias",),
    "weights": ("biases", "bias"),
    "kernel": ("bias",),
    "W": ("b", "bias"),
    "Wt": ("b",),
    "w": ("b", "bias"),
}
_ENDING = re.compile(rf"(?:^|(?<=[._/]))({'|'.join(_PAIRED)})$")
_BIAS_LIKE = re.compile(r"bias|(^|[._/])(b|intercept_?|arr_\d+)$")


@dataclass(frozen=True)
class Candidate:
    """A weight that could be meant.

    Args:
        weight: the tensor.
        bias: the one that its name pairs with it, or None.
        tied: other names under which the file holds the same data.
    """

    weight: Entry
    bias: Entry | None
    tied: tuple[Entry, ...] = ()

    def __str__(self) -> str:
        """Names, shape and bias, for a list to choose from."""
        return layer_text(self.weight, self.bias, self.tied)


def candidates(file: TensorFile, bias: Entry | None) -> list[Candidate]:
    """All layers that could be meant, those with most rows first, tied ones once.

    A tensor can be meant if it holds real numbers in two dimensions and has a bias, or may have
    more classes than features. Where the convention of torch fixes which is which, that means more
    rows than columns.

    Args:
        file: where to look.
        bias: the bias that the user named; then only weights that it fits can be meant.
    """
    found = []
    for entry in file.entries:
        if not (entry.offered and is_matrix(entry)) or is_part(file, entry):
            continue
        own = paired_bias(file, entry)
        if bias is not None:
            meant = bias.length in entry.shape and bias != entry
        elif entry.length is not None:
            meant = own is not None  # Else a vector kept as a matrix: a bias, a gain.
        else:
            meant = own is not None or _may_have_more_classes(file, entry)
        if meant:
            found.append(Candidate(entry, own))
    found.sort(key=lambda c: (-max(c.weight.shape), c.bias is None))
    return merged(file, found)


def candidate_of(file: TensorFile, weight: Entry) -> Candidate:
    """The layer of a weight that the user named, with the bias of a tied one if it has none."""
    own = paired_bias(file, weight)
    alike = [e for e in file.entries if e != weight and e.shape == weight.shape and is_matrix(e)]
    sought = file.fingerprint(weight) if alike else None
    same = [e for e in alike if file.fingerprint(e) == sought and file.identical(weight, e)]
    biases = {bias for entry in same if (bias := paired_bias(file, entry)) is not None}
    if own is None and len(biases) == 1:
        own = biases.pop()
    return Candidate(weight, own, tuple(same))


def paired_bias(file: TensorFile, weight: Entry) -> Entry | None:
    """The bias that the weight's name implies: ``X.weight`` and ``X.bias``, ``W`` and ``b``."""
    found = bias_by_name(file, weight)
    return found if found is not None and found.numeric and found.length is not None else None


def bias_by_name(file: TensorFile, weight: Entry) -> Entry | None:
    """What is called as the weight's bias would be, though it may hold no vector of numbers."""
    match = _ENDING.search(weight.name)
    if match is None:
        return None
    stem = weight.name[: match.start(1)]
    named = (file.by_name.get(stem + ending) for ending in _PAIRED[match[1]])
    found = [entry for entry in named if entry is not None]
    fitting = (entry for entry in found if entry.numeric and entry.length is not None)
    return next(fitting, found[0] if found else None)


def unclaimed_biases(file: TensorFile, sizes: Iterable[int]) -> list[Entry]:
    """Vectors of one of these lengths that are called a bias and belong to no weight by name."""
    # By any weight: the gain of a normalisation claims its bias too.
    claimed = {paired_bias(file, entry) for entry in file.entries}
    wanted = set(sizes)
    return [
        entry
        for entry in file.entries
        if entry.offered
        and entry.numeric
        and entry.length in wanted
        and _BIAS_LIKE.search(entry.name)
        and entry not in claimed
    ]


def is_matrix(entry: Entry) -> bool:
    """Whether it holds real numbers in two dimensions."""
    return entry.numeric and len(entry.shape) == 2


def by_convention(file: TensorFile, weight: Entry) -> bool:
    """Whether torch's convention says that the rows are the classes."""
    return file.torch_names and (weight.name == "weight" or weight.name.endswith(".weight"))


def _may_have_more_classes(file: TensorFile, entry: Entry) -> bool:
    rows, columns = entry.shape
    return rows > columns if by_convention(file, entry) else rows != columns


def merged(file: TensorFile, found: list[Candidate]) -> list[Candidate]:
    """Candidates with the same data as one, unless their biases differ."""
    if len(found) < 2:
        return found
    merged: list[Candidate] = []
    places: dict[Hashable, list[int]] = {}
    for new in found:
        alike = places.setdefault(file.fingerprint(new.weight), [])
        for at in alike:
            old = merged[at]
            if _one_bias(file, old.bias, new.bias) and file.identical(old.weight, new.weight):
                merged[at] = Candidate(old.weight, old.bias or new.bias, (*old.tied, new.weight))
                break
        else:
            alike.append(len(merged))
            merged.append(new)
    return merged


def _one_bias(file: TensorFile, one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None or one == other:
        return True
    return file.fingerprint(one) == file.fingerprint(other) and file.identical(one, other)
