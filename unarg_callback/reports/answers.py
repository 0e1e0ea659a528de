"""What else was asked of each class, as data: who can be among the K best, who wins only by little.

Lists hold the classes that a report tells about; counts are of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.geometry.proof import Status
from unarg_callback.margins import MarginReport
from unarg_callback.report import Report
from unarg_callback.top_k import Reach, TopKReport


@dataclass(frozen=True)
class Section:
    """One answer as a table.

    Args:
        heading: of the section.
        note: what the answer is, in a sentence.
        column: heading of the last column.
        rows: ids of classes, each with what stands in the last column.
    """

    heading: str
    note: str
    column: str
    rows: tuple[tuple[int, str | float], ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """What was asked besides whether a class can be the argmax; None for what wasn't.

    Args:
        top: who can be among the K best.
        margin: who can win, but only by little.
    """

    top: TopKReport | None = None
    margin: MarginReport | None = None

    def to_dict(self, kept: NDArray[np.bool_]) -> dict[str, Any]:
        """The answers as the JSON report has them, under ``top_k`` and ``margin``.

        Args:
            kept: (C,) bool, True for classes that are listed.
        """
        found: dict[str, Any] = {}
        if self.top is not None:
            top = self.top
            found["top_k"] = {
                "k": top.k,
                "counts": top.counts,
                **{
                    reach.name.lower(): _named(top.argmax, top.ids(reach), kept)
                    for reach in (Reach.UNREACHABLE, Reach.UNDECIDED)
                },
                "seconds": top.seconds,
                "complete": top.complete,
            }
        if self.margin is not None:
            margin = self.margin
            weak = _named(margin.argmax, margin.weakest, kept)
            bounds = [float(margin.led.lead[one["class"]]) for one in weak]
            found["margin"] = {
                "least_lead": margin.least_lead,
                "counts": {"weak": len(margin.weak), "undecided": len(margin.undecided)},
                "weak": [{**one, "bound": bound} for one, bound in zip(weak, bounds, strict=True)],
                "undecided": _named(margin.argmax, margin.undecided, kept),
                "seconds": margin.led.seconds,
                "complete": margin.argmax.complete and margin.led.complete,
            }
        return found

    def sections(self, kept: NDArray[np.bool_]) -> Iterator[Section]:
        """The answers as tables for people.

        Args:
            kept: (C,) bool, True for classes that are listed.
        """
        if self.top is not None:
            ids = np.concatenate([self.top.ids(Reach.UNREACHABLE), self.top.ids(Reach.UNDECIDED)])
            yield Section(
                f"Classes that can never be among the {self.top.k} best",
                _sentence(self.top.summary()),
                "status",
                tuple(
                    (index, Reach(int(self.top.status[index])).name.lower())
                    for index in ids[kept[ids]].tolist()
                ),
            )
        if self.margin is not None:
            weak = self.margin.weakest
            yield Section(
                f"Classes that never win by more than {self.margin.least_lead:g}",
                _sentence(self.margin.summary()),
                "best lead at most",
                tuple(
                    (index, float(self.margin.led.lead[index]))
                    for index in weak[kept[weak]].tolist()
                ),
            )

    def columns(self) -> dict[str, list[str]]:
        """A word for every class, by the name of a column."""
        found = {}
        if self.top is not None:
            words = [Reach(value).name.lower() for value in self.top.status.tolist()]
            found[f"among_the_{self.top.k}_best"] = words
        if self.margin is not None:
            report = self.margin.argmax
            leads = np.full(report.classes, "", dtype=object)
            leads[report.status == Status.ARGMAXABLE] = "yes"
            leads[self.margin.weak] = "no"
            leads[self.margin.undecided] = "undecided"
            found[f"wins_by_more_than_{self.margin.least_lead:g}"] = leads.tolist()
        return found


def _named(report: Report, ids: NDArray[np.int64], kept: NDArray[np.bool_]) -> list[dict[str, Any]]:
    return [{"class": index, "name": report.name(index)} for index in ids[kept[ids]].tolist()]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
