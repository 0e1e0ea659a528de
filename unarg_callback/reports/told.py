"""A report whose lists leave out the classes that a filter doesn't keep, with further answers."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.class_filter import ClassFilter
from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report
from unarg_callback.reports.answers import Answers
from unarg_callback.reports.data import counts_of, kept_classes


@dataclass(frozen=True, eq=False, kw_only=True)
class ToldReport(Report):
    """The report that it was made of, but for whom it lists: to be shown, not to go on from.

    Verdicts, counts and proofs are of all classes; ``notes`` ends with what is listed.

    Args:
        chosen: what is listed; None for all.
        kept: (C,) bool, which classes these are.
        answers: what else was asked of each class.
    """

    chosen: ClassFilter | None
    kept: NDArray[np.bool_]
    answers: Answers

    def ids(self, status: Status) -> NDArray[np.int64]:
        """Ids of the classes with a status that are listed, ascending."""
        return self._listed(super().ids(status))

    def listing(
        self, ids: NDArray[np.int64], heading: str, cell: Callable[[int], str], limit: int
    ) -> list[str]:
        """As :meth:`Report.listing`, for those of the classes that are listed."""
        return super().listing(self._listed(ids), heading, cell, limit)

    def to_dict(self) -> dict[str, Any]:
        """As :meth:`Report.to_dict`, with what was chosen, and the counts of that."""
        chosen, found = self.chosen, {**super().to_dict(), **self.answers.to_dict(self.kept)}
        if chosen is None:
            return found
        told = {
            "script": list(chosen.scripts),
            "words": chosen.words,
            "keep_regex": chosen.pattern,
            "classes": int(self.kept.sum()),
            "counts": counts_of(self, self.kept),
        }
        return {**found, "filter": told}

    def _listed(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids[self.kept[ids]]


def told(report: Report, chosen: ClassFilter | None, answers: Answers | None = None) -> Report:
    """The report, listing only what is chosen; itself where nothing is, and nothing else asked.

    Args:
        report: of a check.
        chosen: which classes to list; where they have no names, all of them.
        answers: what else was asked of each class.
    """
    if not chosen and answers is None:
        return report
    kept = kept_classes(report, chosen)
    same = {field.name: getattr(report, field.name) for field in fields(Report)}
    if chosen:
        line = textwrap.fill(which_are_listed(report, chosen, kept), 80, break_long_words=False)
        same["notes"] = (*report.notes, line)
    return ToldReport(**same, chosen=chosen or None, kept=kept, answers=answers or Answers())


def which_are_listed(report: Report, chosen: ClassFilter, kept: NDArray[np.bool_]) -> str:
    """How many classes a filter kept, in a line.

    Args:
        report: of the check.
        chosen: the filter.
        kept: (C,) bool, what it kept.
    """
    if report.names is None:
        return f"The classes have no names, so the filter leaves none out: {chosen}"
    counts, listed = report.counts, counts_of(report, kept)
    parts = [f"{int(kept.sum()):,} of {report.classes:,} classes"]
    parts += [
        f"{listed[kind]:,} of {counts[kind]:,} {kind}"
        for kind in ("unargmaxable", "undecided")
        if counts[kind]
    ]
    return f"Listed ({chosen}): {', '.join(parts)}"
