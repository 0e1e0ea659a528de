"""The argmaxable classes whose best leads are lowest: those that may be unargmaxable next.

A check is content with any input at which a class leads. Here larger leads are looked for, and how
large they could be at all, beginning with the classes whose leads are lowest as found. Whoever
hasn't been looked at leads by at least the lowest of the leads that are left; once that exceeds
the leads of those to be listed, nobody else belongs on the list. If time is over before, the list
is of those that were looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.report import Report
from unarg_callback.search.deepen import deepen
from unarg_callback.search.frame import whitening_frame
from unarg_callback.search.limits import Limits
from unarg_callback.search.working_set import Neighbours

MOST_NEAREST = 200
"""Classes that are listed."""
_AT_A_TIME = 200


@dataclass(frozen=True, eq=False)
class Nearest:
    """Classes with the lowest best leads, as far as is known.

    Args:
        ids: (n,) int64, argmaxable classes, those with the lowest ``lead`` first.
        lead: (n,) float64, proven lower bounds on their best leads.
        bound: (n,) float64, proven upper bounds on them, inf where none is known.
        others: the best leads of those asked about that aren't listed are at least this; inf if
            there are none.
        deepened: among how many classes these are the lowest; 0 where all is as the check found it.
    """

    ids: NDArray[np.int64]
    lead: NDArray[np.float64]
    bound: NDArray[np.float64]
    others: float
    deepened: int

    @property
    def complete(self) -> bool:
        """Whether nobody that isn't listed may be nearer, as far as the lower bounds tell."""
        return not len(self.lead) or self.others >= float(self.lead[-1])


def nearest_as_found(report: Report, kept: NDArray[np.bool_], most: int = MOST_NEAREST) -> Nearest:
    """The lowest leads as the check found them: lower bounds on best leads, and maybe far below.

    Args:
        report: of the check.
        kept: (C,) bool, classes that may be listed.
        most: most classes.
    """
    order = _by_lead(report, kept)
    ids, rest = order[:most], order[most:]
    others = float(report.lead[rest[0]]) if len(rest) else np.inf
    return Nearest(ids, report.lead[ids], np.full(len(ids), np.inf), others, 0)


def nearest(
    report: Report,
    layer: OutputLayer,
    kept: NDArray[np.bool_],
    *,
    most: int = MOST_NEAREST,
    seconds: float | None = None,
) -> Nearest:
    """The lowest best leads, each between two proven bounds.

    In the free domain, where best leads have no scale, they are as the check found them.

    Args:
        report: of the check.
        layer: that was checked.
        kept: (C,) bool, classes that may be listed.
        most: most classes.
        seconds: after which no further classes are looked at; None for no limit.
    """
    order = _by_lead(report, kept)
    if report.domain.is_free or not len(order):
        return nearest_as_found(report, kept, most)
    lead, bound = report.lead[order].copy(), np.full(len(order), np.inf)
    limits, done = Limits(seconds), 0
    with torch.no_grad(), plain_arithmetic(layer.device):
        checker = Checker(layer, report.domain, report.min_lead)
        frame = whitening_frame(checker.sweep)
        neighbours = Neighbours(checker.sweep, frame)
        active = layer.active.cpu()
        known = torch.from_numpy(report.status == Status.ARGMAXABLE)[active]
        position = torch.full((report.classes,), -1)
        position[active] = torch.arange(len(active))
        while done < len(order) and not limits.reached():
            listed = np.sort(lead[:done])[:most]
            if len(listed) == most and lead[done] >= listed[-1]:
                break
            span = slice(done, done + _AT_A_TIME)
            targets = position[order[span]]
            found = deepen(
                checker,
                frame,
                neighbours,
                targets,
                torch.from_numpy(lead[span]),
                known,
                limits=limits,
            )
            place = {target: at for at, target in enumerate(targets.tolist(), done)}
            lead[[place[target] for target in found.targets.tolist()]] = found.lead.numpy()
            bound[span] = found.bound.numpy()
            if limits.reached():  # Halfway; they would stand out for nothing but that.
                break
            done += len(targets)
    if not done:
        return nearest_as_found(report, kept, most)
    # Leads as found are no measure beside the others; the loop ends when they aren't needed.
    shown = np.argsort(lead[:done], kind="stable")[:most]
    others = np.delete(lead, shown).min(initial=np.inf)
    return Nearest(order[shown], lead[shown], bound[shown], float(others), done)


def _by_lead(report: Report, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Ids of the argmaxable classes, by their leads as found."""
    ids = np.flatnonzero(kept & (report.status == Status.ARGMAXABLE))
    return ids[np.argsort(report.lead[ids], kind="stable")]
