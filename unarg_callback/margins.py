"""Which classes can win only by little: their best lead over the domain is below a given one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from unarg_callback.errors import UnargError
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.report import Report
from unarg_callback.verification import verify


@dataclass(frozen=True, eq=False)
class MarginReport:
    """Which argmaxable classes never lead by more than a given lead.

    Args:
        least_lead: that lead, in units of the logits.
        weak: (n,) int64 ids of classes that can win, but provably never by more.
        undecided: (n,) int64 ids of classes that can win, and not known whether by more.
        argmax: whether classes can win at all.
        led: whether they can by more than ``least_lead``, with the proofs.
    """

    least_lead: float
    weak: NDArray[np.int64]
    undecided: NDArray[np.int64]
    argmax: Report
    led: Report

    @property
    def weakest(self) -> NDArray[np.int64]:
        """(n,) ids of the weak classes, those that lead by least first."""
        return self.weak[np.argsort(self.led.lead[self.weak], kind="stable")]

    def summary(self) -> str:
        """One line."""
        return (
            f"{len(self.weak):,} classes can win, but provably never by more than "
            f"{self.least_lead:g}; {len(self.undecided):,} undecided"
        )

    def table(self, limit: int = 20) -> str:
        """A line, and one for each weak class, those that lead by least first.

        Args:
            limit: most lines.
        """
        listed = self.argmax.listing(
            self.weakest, "best lead", lambda index: f"<= {self.led.lead[index]:.3g}", limit
        )
        return "\n".join([self.summary(), *listed])


def least_asked(layer: OutputLayer, domain: Domain) -> float:
    """What a class has to lead by to count as argmaxable, by default.

    Args:
        layer: the output layer.
        domain: where x may lie.

    Raises:
        DomainError: the domain doesn't fit the layer.
    """
    with torch.no_grad(), plain_arithmetic(layer.device):
        return Checker(layer, domain).min_lead


def require_above(least_lead: float, asked: float) -> None:
    """Raise unless a least lead asks for more than the check did.

    Args:
        least_lead: in units of the logits.
        asked: of a lead, by the check.

    Raises:
        UnargError: it doesn't.
    """
    if not (np.isfinite(least_lead) and least_lead > asked):
        raise UnargError(
            f"the least lead is {least_lead}; expected a finite number above {asked:g}, what a "
            "class has to lead by to count as argmaxable"
        )


def verify_margin(
    layer: OutputLayer,
    least_lead: float,
    domain: Domain | str | float | ArrayLike = "box:100",
    *,
    report: Report | None = None,
    time_limit: float | None = None,
    progress: bool = False,
) -> MarginReport:
    """Decide which classes can win only by ``least_lead`` or less.

    It is the check with ``least_lead`` for ``min_lead``, read beside that with the default.

    Args:
        layer: the output layer.
        least_lead: above 0, in units of the logits.
        domain: where x may lie. In the free domain a class that can win at all mostly can by any
            lead, far enough out.
        report: of :func:`~unarg_callback.verify` for this layer and domain, if there is one.
        time_limit: seconds for each check.
        progress: show a bar on stderr.

    Raises:
        DomainError: the domain doesn't fit the layer.
        UnargError: ``least_lead`` isn't above what the report asks of a lead.

    >>> layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [-1.01, 0.0]])
    >>> verify_margin(layer, 0.1, "box:1").weak
    array([3])
    """
    within = Domain.of(domain)
    if report is None:
        require_above(least_lead, least_asked(layer, within))
        report = verify(layer, within, time_limit=time_limit, progress=progress)
    require_above(least_lead, report.min_lead)
    led = verify(layer, within, min_lead=least_lead, time_limit=time_limit, progress=progress)
    wins = report.status == Status.ARGMAXABLE
    return MarginReport(
        least_lead,
        np.flatnonzero(wins & (led.status == Status.UNARGMAXABLE)),
        np.flatnonzero(wins & (led.status == Status.UNDECIDED)),
        report,
        led,
    )
