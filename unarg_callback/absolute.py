"""Which classes can be first by ``|z|``, as spherical softmax and sparsegen-sq rank them.

Class t is first at x if ``|z_t| > |z_i|`` for all others: with the sign of z_t, if z_t (or -z_t)
beats every z_i and every -z_i. So it can be first exactly if class t or C + t of the layer with
rows ``W, -W`` and biases ``b, -b`` can be the argmax, and the engine and its proofs serve as they
are. Where t leads, its lead is the same as well: its own mirror image is the rival it beats most
easily, by 2 |z_t|.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report
from unarg_callback.verification import verify

_NOTE = (
    "Classes are ranked by the size of their logits, of either sign: proofs are about the layer "
    "with rows W, -W, where class C + t is t with a negative logit."
)


def mirrored(layer: OutputLayer) -> OutputLayer:
    """The layer of 2C classes with rows ``W, -W`` and biases ``b, -b``.

    Where only one class takes part its mirror image doesn't: it is no rival, and the class is
    always first.
    """
    weight = torch.cat([layer.weight, -layer.weight])
    bias = None if layer.bias is None else torch.cat([layer.bias, -layer.bias])
    out = range(layer.classes) if len(layer.active) == 1 else layer.excluded
    excluded = [*layer.excluded, *(layer.classes + index for index in out)]
    return OutputLayer(weight, bias, excluded=excluded)


@dataclass(frozen=True, eq=False)
class AbsoluteReport:
    """Which classes can be first by ``|z|``.

    Args:
        status: (C,) int8, values of :class:`Status`: argmaxable if either sign can lead,
            unargmaxable if neither can.
        lead: (C,) float64, the better lead of the two signs, as bounded by their proofs; NaN where
            undecided.
        mirrored: the report on :func:`mirrored`, with its proofs; class C + t is t with z_t < 0.
    """

    status: NDArray[np.int8]
    lead: NDArray[np.float64]
    mirrored: Report

    @property
    def counts(self) -> dict[str, int]:
        """How many classes have each status."""
        return {one.name.lower(): int((self.status == one).sum()) for one in Status}

    @classmethod
    def of(cls, report: Report) -> AbsoluteReport:
        """Put the verdicts on both signs of each class together."""
        both, leads = report.status.reshape(2, -1), report.lead.reshape(2, -1)
        status = np.full(both.shape[1], Status.UNDECIDED, dtype=np.int8)
        never = (both == Status.UNARGMAXABLE) | (both == Status.EXCLUDED)
        status[never.all(0)] = Status.UNARGMAXABLE
        status[(both == Status.EXCLUDED).all(0)] = Status.EXCLUDED
        status[(both == Status.ARGMAXABLE).any(0)] = Status.ARGMAXABLE
        counted = np.where(
            (status == Status.ARGMAXABLE) & (both != Status.ARGMAXABLE), -np.inf, leads
        )
        lead = np.where(status == Status.UNDECIDED, np.nan, counted.max(0))
        return cls(status, lead, report)


def folded(report: Report, names: tuple[str, ...] | None) -> Report:
    """A report on the C classes themselves, from that on their :func:`mirrored` layer.

    What a class has twice is told by the sign that leads where one does, else by the positive one.
    The proofs stay those of the mirrored layer, and a note says so.

    Args:
        report: on the mirrored layer.
        names: C class names, or None.
    """
    verdicts = AbsoluteReport.of(report)
    classes = len(verdicts.status)
    both = report.status.reshape(2, -1)
    leads = np.where(both == Status.ARGMAXABLE, report.lead.reshape(2, -1), -np.inf)
    # Of equal leads, as mirror images have without a bias, the positive sign's.
    at = leads.argmax(0), np.arange(classes)
    # Of equal rows the lowest has a number below C for one of the signs.
    equal, own = report.duplicate_of.reshape(2, -1), np.arange(classes)
    twins = np.where((equal < 0) | (equal >= classes) | (equal == own), classes, equal).min(0)
    rivals = np.where(report.rival < 0, -1, report.rival % classes).reshape(2, -1)[at]
    undecided = verdicts.status == Status.UNDECIDED
    return replace(
        report,
        status=verdicts.status,
        lead=verdicts.lead,
        measured=report.measured.reshape(2, -1)[at],
        reflections=report.reflections.reshape(2, -1).sum(0),
        rival=np.where(rivals == own, -1, rivals),
        duplicate_of=np.where(twins == classes, -1, twins),
        potential=np.logical_and(*report.potential.reshape(2, -1)),
        age=np.where(undecided, report.age.reshape(2, -1).max(0), 0),
        names=names,
        notes=(*report.notes, _NOTE),
    )


def verify_absolute(
    layer: OutputLayer, domain: Domain | str | float | ArrayLike = "box:100", **options: Any
) -> AbsoluteReport:
    """Decide for every class whether some input of the domain makes it first by ``|z|``.

    Args:
        layer: the output layer.
        domain: where x may lie.
        options: as for :func:`~unarg_callback.verify`.

    >>> layer = OutputLayer([[2.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.5, 0.1]])
    >>> verify_absolute(layer).counts["unargmaxable"]
    1
    """
    report = verify(mirrored(layer), domain, **options)
    if layer.names is not None:
        names = (*layer.names, *(f"-{name}" for name in layer.names))
        report = replace(report, names=names)
    return AbsoluteReport.of(report)
