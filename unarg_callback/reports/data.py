"""What a report tells, as plain data, whatever form it takes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unarg_callback.class_filter import ClassFilter
from unarg_callback.dashboards.tables import visible
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report, printable
from unarg_callback.reports.answers import Answers
from unarg_callback.reports.nearest import Nearest, nearest, nearest_as_found

_LONGEST_TITLE = 120
_ORDER = (Status.ARGMAXABLE, Status.UNARGMAXABLE, Status.UNDECIDED, Status.EXCLUDED)


@dataclass(frozen=True)
class Row:
    """One class.

    Args:
        index: the class.
        name: safe to print, not escaped for any markup; empty where the layer has no names.
        status: of the class.
        lead: a bound on its best lead in units of the logits, from below where it is argmaxable and
            from above where not; NaN where it is undecided.
        most: an upper bound on its best lead where it is argmaxable; inf where none is known.
        share: ``lead`` in percent of the range of the logits; NaN in the free domain.
        rival: who beats it, or whom it equals; -1 if nobody is known.
        rival_name: likewise.
        equal: whether it has the row and bias of the rival.
        steps: reflections that the search spent on it.
    """

    index: int
    name: str
    status: Status
    lead: float
    most: float
    share: float
    rival: int
    rival_name: str
    equal: bool
    steps: int


@dataclass(frozen=True, eq=False)
class ReportData:
    """What a report tells about one layer.

    Args:
        title: of the layer: a file's name.
        source: what it was read from, a line each.
        report: of the check, about all classes.
        chosen: what the filter keeps; None where all classes are told about.
        kept: (C,) bool, True for classes that are told about.
        unargmaxable: the classes with a certificate, by id.
        duplicates: classes that share row and bias with another, by id; their rival is that one.
        undecided: classes with no proof, by id.
        nearest: argmaxable classes with the lowest best leads, the lowest first.
        closest: what is known of their best leads, and of the leads of others.
        answers: what else was asked of each class.
    """

    title: str
    source: tuple[str, ...]
    report: Report
    chosen: ClassFilter | None
    kept: NDArray[np.bool_]
    unargmaxable: tuple[Row, ...]
    duplicates: tuple[Row, ...]
    undecided: tuple[Row, ...]
    nearest: tuple[Row, ...]
    closest: Nearest
    answers: Answers = Answers()

    @property
    def counts(self) -> dict[str, int]:
        """How many classes of each kind are told about; as :attr:`Report.counts`."""
        return counts_of(self.report, self.kept)

    @property
    def problem(self) -> str:
        """Size of the layer and domain, in words."""
        report = self.report
        return (
            f"{report.classes:,} classes, {report.dim:,} features, inputs "
            f"{domain_text(str(report.domain))}"
        )

    @property
    def verdict(self) -> str:
        """The one sentence that matters."""
        counts = self.counts
        told = sum(counts[kind] for kind in ("argmaxable", "unargmaxable", "undecided"))
        out = counts["unargmaxable"]
        among = "" if self.kept.all() else " that this report tells about"
        if not told:
            return f"There are no classes{among}."
        if out:
            subject = f"{out:,} of {told:,} classes{among} can"
            text = f"{subject} never be the argmax ({100 * out / told:.2g}%), and that is proven."
        elif counts["undecided"]:
            text = f"No class{among} is known that can never be the argmax."
        else:
            text = f"Each of the {told:,} classes{among} can be the argmax, and that is proven."
        if counts["undecided"]:
            text += f" {counts['undecided']:,} are undecided: there is no proof either way."
        return text

    @property
    def filtered(self) -> str:
        """What the filter left out, or nothing where there is none."""
        if self.chosen is None:
            return ""
        if self.report.names is None:
            return f"The classes have no names, so the filter leaves none out: {self.chosen}."
        left_out = ~self.kept
        lost = int((self.report.status[left_out] == Status.UNARGMAXABLE).sum())
        return (
            f"Only classes with {self.chosen} are listed and counted: {int(left_out.sum()):,} of "
            f"{len(self.kept):,} are left out, {lost:,} of them unargmaxable. All took part in the "
            "check."
        )

    @property
    def nearness(self) -> str:
        """What the list of the nearest tells, and what it doesn't."""
        closest, total = self.closest, self.counts["argmaxable"]
        shown = len(closest.ids)
        which = f"The {shown:,} of {total:,}" if total > shown else "All"
        if not closest.deepened:
            return (
                f"{which} argmaxable classes with the least leads, at the inputs that the check "
                "found for them. These are lower bounds: best leads may be far larger, and classes "
                "that are not listed may be nearer."
            )
        if closest.complete:
            text = f"{which} argmaxable classes with the lowest best leads."
        else:
            text = (
                f"The {shown:,} classes with the lowest best leads of {closest.deepened:,} that "
                f"there was time to look at closely, of {total:,} argmaxable ones: those that led "
                "by least as the check found them."
            )
        text += " The best lead over all inputs of the domain is proven to lie between two figures."
        if total > shown:
            text += f" Every other class has one of at least {figure(closest.others)}."
        if not np.isfinite(closest.bound).all():
            text += " Where the second is \N{INFINITY} no bound was found."
        return text

    @property
    def proofs(self) -> str:
        """How many proofs of which kind there are, over how many rivals."""
        report = self.report
        counts = report.counts
        sizes = np.diff(report.proofs.certificate_offsets)
        rivals = f", over {int(np.median(sizes)):,} rivals in the median" if len(sizes) else ""
        return (
            f"{counts['argmaxable']:,} witnesses (an input at which the class leads) and "
            f"{counts['unargmaxable']:,} certificates (weights over rivals that bound its lead at "
            f"every input){rivals}."
        )


def report_data(
    report: Report,
    title: str,
    source: Iterable[str] = (),
    chosen: ClassFilter | None = None,
    *,
    layer: OutputLayer | None = None,
    seconds: float | None = None,
    answers: Answers | None = None,
) -> ReportData:
    """What to tell of a check.

    Args:
        report: of the check.
        title: of the layer, such as a file's name.
        source: what it was read from, a line each.
        chosen: which classes to tell about; where they have no names, all of them.
        layer: that was checked, to find the lowest best leads; None to list leads as found.
        seconds: for finding them; None for no limit.
        answers: what else was asked of each class.
    """
    chosen = chosen or None
    kept = kept_classes(report, chosen)
    twin = report.duplicate_of >= 0
    out = kept & (report.status == Status.UNARGMAXABLE)
    closest = (
        nearest_as_found(report, kept)
        if layer is None
        else nearest(report, layer, kept, seconds=seconds)
    )

    def rows(ids: NDArray[np.int64]) -> tuple[Row, ...]:
        return tuple(_row(report, index) for index in ids.tolist())

    return ReportData(
        title=printable(title, _LONGEST_TITLE),
        source=tuple(source),
        report=report,
        chosen=chosen,
        kept=kept,
        unargmaxable=rows(np.flatnonzero(out)),
        duplicates=rows(np.flatnonzero(kept & twin)),
        undecided=rows(np.flatnonzero(kept & (report.status == Status.UNDECIDED))),
        nearest=tuple(
            replace(_row(report, index), lead=lead, most=most, share=_share(report, lead))
            for index, lead, most in zip(
                closest.ids.tolist(), closest.lead.tolist(), closest.bound.tolist(), strict=True
            )
        ),
        closest=closest,
        answers=answers or Answers(),
    )


def counts_of(report: Report, kept: NDArray[np.bool_]) -> dict[str, int]:
    """How many of some classes are of each kind; as :attr:`Report.counts`.

    Args:
        report: of the check.
        kept: (C,) bool, the classes.
    """
    return {
        **{s.name.lower(): int((report.status[kept] == s).sum()) for s in _ORDER},
        "potentially_unargmaxable": int(report.potential[kept].sum()),
        "duplicates": int((report.duplicate_of[kept] >= 0).sum()),
    }


def kept_classes(report: Report, chosen: ClassFilter | None) -> NDArray[np.bool_]:
    """(C,) bool, True for the classes that are told about.

    Args:
        report: of the check.
        chosen: which classes to tell about; where they have no names, or it is None, all of them.
    """
    if not chosen or report.names is None:
        return np.ones(report.classes, dtype=bool)
    return chosen.mask(report.names)


def domain_text(domain: str) -> str:
    """A domain in words.

    >>> domain_text("box:-100,100"), domain_text("box:0,5"), domain_text("free")
    ('between −100 and 100', 'between 0 and 5', 'of any size')
    """
    if domain == "free":
        return "of any size"
    kind, _, numbers = domain.partition(":")
    if kind == "box" and numbers:
        low, high = numbers.replace("-", "\N{MINUS SIGN}").split(",")
        return f"between {low} and {high}"
    return f"in a {domain}"


def figure(value: float) -> str:
    """Three digits of a number, with a true minus sign; a dash for NaN.

    >>> figure(-0.12345), figure(float("nan"))
    ('−0.123', '–')
    """
    if math.isnan(value):
        return "\N{EN DASH}"
    if math.isinf(value):
        return "\N{INFINITY}" if value > 0 else "\N{MINUS SIGN}\N{INFINITY}"
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


def _row(report: Report, index: int) -> Row:
    twin, rival = int(report.duplicate_of[index]), int(report.rival[index])
    other = twin if twin >= 0 else rival
    lead = float(report.lead[index])
    return Row(
        index=index,
        name="" if report.names is None else visible(report.names[index]),
        status=Status(int(report.status[index])),
        lead=lead,
        most=math.inf,
        share=_share(report, lead),
        rival=other,
        rival_name="" if report.names is None or other < 0 else visible(report.names[other]),
        equal=twin >= 0,
        steps=int(report.reflections[index]),
    )


def _share(report: Report, lead: float) -> float:
    """In percent of the range of the logits, NaN where that is infinite or nothing."""
    finite = math.isfinite(report.scale) and report.scale
    return 100 * lead / report.scale if finite else math.nan
