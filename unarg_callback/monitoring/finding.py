"""What a check found, on its way to loggers, dashboards and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.early_warning import AtRisk
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.label_set_monitor import LabelSetFinding
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report


@dataclass(frozen=True, eq=False)
class Finding:
    """What one check of one head found.

    Args:
        head: its part of each tag.
        record: the numbers.
        report: verdicts and proofs; None if the check was skipped.
        at_risk: argmaxable classes that may soon be lost, the most urgent first.
        provable_since: step since which each class has been proven unargmaxable.
        potential_since: the same for classes that the search left unproven.
        events: what changed.
        label_sets: of a multilabel head, what was found of the label sets that training has seen.
    """

    head: str
    record: CheckRecord
    report: Report | None = None
    at_risk: tuple[AtRisk, ...] = ()
    provable_since: Mapping[int, int] = field(default_factory=dict)
    potential_since: Mapping[int, int] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    label_sets: LabelSetFinding | None = None


@dataclass(frozen=True)
class Outcome:
    """What a call of a monitor brought; the same on every rank but for ``findings``.

    Args:
        findings: of the checks that ended, in order of time; empty on ranks that don't write.
        values: numbers of the last of them by tag, as loggers get them.
        stop: whether an event asks for training to stop.
    """

    findings: tuple[Finding, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    stop: bool = False

    @property
    def records(self) -> tuple[CheckRecord, ...]:
        """One a check that ended."""
        return tuple(finding.record for finding in self.findings)


class Output(Protocol):
    """Where findings go: a logger, a dashboard, a file. Only the first of several ranks has any."""

    def show(self, finding: Finding, *, seen: bool) -> None:
        """Take in one finding.

        Args:
            finding: of one check.
            seen: whether an earlier finding of this head was at the same step.
        """

    def finish(self, finding: Finding, layer: OutputLayer) -> None:
        """Take in how a head ended, after its last :meth:`show`.

        Args:
            finding: the last one.
            layer: what it is about.
        """
