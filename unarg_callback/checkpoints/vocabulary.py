"""What a model's own files say about its classes: their names, and which ones take no part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LISTED = 6


@dataclass(frozen=True)
class Exclusion:
    """Classes that take no part, and the rule that says so.

    Args:
        ids: class ids.
        rule: why, in a few words.
    """

    ids: tuple[int, ...]
    rule: str

    def __str__(self) -> str:
        """How many, why, and which.

        >>> print(Exclusion((50,), "padding"))
        1 class (padding): 50
        >>> print(Exclusion((7, 8, 9, 3), "rows beyond the vocabulary"))
        4 classes (rows beyond the vocabulary): 3, 7 to 9
        """
        number = "1 class" if len(self.ids) == 1 else f"{len(self.ids)} classes"
        return f"{number} ({self.rule}): {spans(self.ids)}"


@dataclass(frozen=True)
class Vocabulary:
    """Names and exclusions that come with a file.

    Args:
        names: C class names, or None.
        exclusions: classes that take no part, by rule; no class twice.
        note: where the names are from, or why there are none.
        files: those that were read for it, beside the model's own.
    """

    names: tuple[str, ...] | None = None
    exclusions: tuple[Exclusion, ...] = ()
    note: str = ""
    files: tuple[Path, ...] = ()


def spans(ids: Iterable[int]) -> str:
    """Ids as runs, ascending; a long list is cut.

    >>> spans([5, 1, 2, 3])
    '1 to 3, 5'
    """
    runs: list[list[int]] = []
    for index in sorted(set(ids)):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    texts = [f"{first} to {last}" if last > first else str(first) for first, last in runs]
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def scarce(named: int, classes: int) -> str:
    """What to add to where the names are from, if they are less than half of the classes.

    >>> scarce(7, 60).split(":")[0]
    ', which names only 7 of 60 rows'
    """
    if 2 * named >= classes:
        return ""
    return (
        f", which names only {named} of {classes} rows: if it is another model's, say --labels and "
        "--exclude"
    )


def exclusive(exclusions: Iterable[Exclusion]) -> tuple[Exclusion, ...]:
    """The exclusions that name any class, each class under the first rule that names it."""
    taken: set[int] = set()
    kept = []
    for exclusion in exclusions:
        ids = tuple(index for index in exclusion.ids if index not in taken)
        taken.update(ids)
        if ids:
            kept.append(Exclusion(ids, exclusion.rule))
    return tuple(kept)
