"""What a check found: counts, a line a class, a table for people, JSON and proofs on disk."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.files import replacing
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.evidence import Evidence
from unarg_callback.geometry.proof import Proofs, Status


@dataclass(frozen=True)
class Reuse:
    """What an incremental check took over, and what it had to do; all zero for one from scratch.

    Args:
        warm: whether it started from the proofs of an earlier check.
        kept: witnesses that the bound on their lead's change settled.
        evaluated: witnesses that were tried again.
        recertified: certificates that hold with new weights over the rivals they had.
        searched: classes that were searched for a witness.
        solved: classes that came to the exact stage.
        essential_seconds: what the check took before its first verdict.
    """

    warm: bool = False
    kept: int = 0
    evaluated: int = 0
    recertified: int = 0
    searched: int = 0
    solved: int = 0
    essential_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Report:
    """The verdicts of one check, each with the proof behind it.

    Args:
        dim: d, features of the layer.
        domain: where the input may lie.
        min_lead: what a lead must exceed, in units of the logits.
        scale: range of the logits over the domain, which leads may be measured by; infinite in the
            free domain.
        status: (C,) int8, values of :class:`Status`.
        lead: (C,) float64. Argmaxable: a proven lower bound on the best lead (the lead of the
            witness, less its rounding bound). Unargmaxable: a proven upper bound. Else NaN.
        measured: (C,) bool, False where the lead of an argmaxable class is only what an incremental
            check knows that it can't have fallen below.
        reflections: (C,) int64, reflections that the search spent on the class.
        rival: (C,) int64, who beats it: the heaviest rival of its certificate, or for an undecided
            class the last to win against it; -1 where there is none.
        duplicate_of: (C,) int64, lowest other class with the same row and bias, or -1.
        potential: (C,) bool, left unproven by the approximate search: *potentially unargmaxable*.
        age: (C,) int64, checks since a class was last decided: 0 where it is decided now.
        reuse: what an incremental check took over from the one before.
        names: C names or None.
        evidence: the proofs in compact form.
        seconds: wall time of the check.
        complete: False if a time limit cut the check short.
        notes: what a reader should know besides, a sentence each.
    """

    dim: int
    domain: Domain
    min_lead: float
    scale: float
    status: NDArray[np.int8]
    lead: NDArray[np.float64]
    measured: NDArray[np.bool_]
    reflections: NDArray[np.int64]
    rival: NDArray[np.int64]
    duplicate_of: NDArray[np.int64]
    potential: NDArray[np.bool_]
    age: NDArray[np.int64]
    reuse: Reuse
    names: tuple[str, ...] | None
    evidence: Evidence
    seconds: float
    complete: bool
    notes: tuple[str, ...] = ()

    @cached_property
    def proofs(self) -> Proofs:
        """A witness for every argmaxable and a certificate for every unargmaxable class."""
        return self.evidence.proofs()

    @property
    def classes(self) -> int:
        """C, excluded classes included."""
        return len(self.status)

    @property
    def counts(self) -> dict[str, int]:
        """How many classes of each kind, under the names of the JSON report.

        ``duplicates`` counts the classes that share row and bias with another; it overlaps with
        the others, as ``potentially_unargmaxable`` does.
        """
        return {
            "argmaxable": int((self.status == Status.ARGMAXABLE).sum()),
            "unargmaxable": int((self.status == Status.UNARGMAXABLE).sum()),
            "undecided": int((self.status == Status.UNDECIDED).sum()),
            "excluded": int((self.status == Status.EXCLUDED).sum()),
            "potentially_unargmaxable": int(self.potential.sum()),
            "duplicates": int((self.duplicate_of >= 0).sum()),
        }

    def name(self, index: int) -> str:
        """Name of a class, or its id as text."""
        return str(index) if self.names is None else self.names[index]

    def ids(self, status: Status) -> NDArray[np.int64]:
        """Ids of the classes with a status, ascending."""
        return np.flatnonzero(self.status == status)

    def to_dict(self) -> dict[str, Any]:
        """The JSON report as a dict; see the README for its keys."""
        return {
            "classes": self.classes,
            "dim": self.dim,
            "domain": str(self.domain),
            "min_lead": self.min_lead,
            "counts": self.counts,
            "unargmaxable": [
                {
                    "class": int(index),
                    "name": self.name(index),
                    "bound": float(self.lead[index]),
                    "duplicate_of": _id_or_none(self.duplicate_of[index]),
                }
                for index in self.ids(Status.UNARGMAXABLE)
            ],
            "seconds": self.seconds,
            "complete": self.complete,
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text of :meth:`to_dict`, also written to ``path`` if given."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)
        if any("\ud800" <= character <= "\udfff" for character in text):
            # Half of a surrogate pair, in a broken label: UTF-8 can't hold it, an escape can.
            text = json.dumps(self.to_dict(), indent=2, allow_nan=False)
        if path is not None:
            with replacing(Path(path)) as file:
                file.write(f"{text}\n".encode())
        return text

    def save_proofs(self, path: str | Path) -> Path:
        """Write all proofs to an npz file; see :class:`Proofs`."""
        return self.evidence.proofs().save(path)

    def summary(self) -> str:
        """One line: how many of what, in which domain, and whether the check is complete."""
        return f"{self._problem()}: {self._verdicts()}"

    def _problem(self) -> str:
        return f"{self.classes:,} classes x {self.dim} features, {self.domain}"

    def _verdicts(self) -> str:
        counts = self.counts
        parts = [f"{counts['argmaxable']:,} argmaxable"]
        parts.append(f"{counts['unargmaxable']:,} provably unargmaxable")
        parts.append(f"{counts['undecided']:,} undecided")
        if counts["excluded"]:
            parts.append(f"{counts['excluded']:,} excluded")
        cut = "" if self.complete else "; cut short by the time limit"
        return f"{', '.join(parts)}{cut}"

    def table(self, limit: int = 20) -> str:
        """Text for people: the summary, then a line for each class that is not argmaxable.

        Made for 80 columns; long names are cut.

        Args:
            limit: most lines; what is left out is counted.
        """
        lines = [self._problem(), self._verdicts(), *self.notes]
        shown = np.concatenate([self.ids(Status.UNARGMAXABLE), self.ids(Status.UNDECIDED)])
        if limit and len(shown):
            head = ("class", "name", "status", "best lead", "beaten by")
            rows = [head, *(self._row(int(index)) for index in shown[:limit])]
            if self.names is None:
                rows = [(row[0], *row[2:]) for row in rows]
            lines += ["", *columns(rows)]
        if len(shown) > limit:
            lines.append(f"... and {len(shown) - limit:,} more")
        return "\n".join(lines)

    def listing(
        self, ids: NDArray[np.int64], heading: str, cell: Callable[[int], str], limit: int
    ) -> list[str]:
        """Lines for some classes: id, name where there are names, and one more cell.

        Args:
            ids: (n,) the classes.
            heading: of the last cell.
            cell: the last cell of a class.
            limit: most classes; what is left out is counted.
        """
        named = self.names is not None
        rows = [("class", *(["name"] if named else []), heading)]
        for index in ids[:limit].tolist():
            name = [printable(self.name(index), 16)] if named else []
            rows.append((str(index), *name, cell(index)))
        lines = columns(rows) if len(rows) > 1 else []
        more = [f"... and {len(ids) - limit:,} more"] if len(ids) > limit else []
        return [*lines, *more]

    def _row(self, index: int) -> tuple[str, ...]:
        twin, rival = int(self.duplicate_of[index]), int(self.rival[index])
        decided = self.status[index] == Status.UNARGMAXABLE
        # The least a bound can say is that the class never leads at all.
        lead = f"<= {self.lead[index]:.3g}" if decided else "unknown"
        beaten = "" if rival < 0 else self._labelled(rival)
        if twin >= 0:
            beaten = f"equals {self._labelled(twin)}"
        status = Status(self.status[index]).name.lower()
        return str(index), printable(self.name(index), 16), status, lead, beaten

    def _labelled(self, index: int) -> str:
        """Id and name; the id alone where there are no names."""
        return str(index) if self.names is None else f"{index} {printable(self.names[index], 14)}"


def printable(name: str, width: int = 24) -> str:
    r"""A class name that can't break a table or a terminal: no controls, at most ``width`` columns.

    >>> printable("a\tb")
    'a\\tb'
    """
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    if _width(text) <= width:
        return text
    kept = text[:width]
    while _width(kept) > width - 3:
        kept = kept[:-1]
    return kept + "..."


def _id_or_none(index: int) -> int | None:
    return int(index) if index >= 0 else None


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines, their cells under each other, whatever the width of their characters.

    >>> columns([("a", "b"), ("long", "c")])
    ['a     b', 'long  c']
    """
    widths = [max(_width(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _width(text: str) -> int:
    """Columns that a terminal gives the text: wide characters two, combining ones none."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)
