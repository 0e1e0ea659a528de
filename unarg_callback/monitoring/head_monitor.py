"""Check one layer again and again, within a budget."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from unarg_callback.continuity import DAMAGED
from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.incremental import IncrementalVerifier
from unarg_callback.monitoring.budget import OverheadBudget
from unarg_callback.monitoring.early_warning import AtRisk, LeadHistory, forewarned
from unarg_callback.monitoring.events import Event, EventHandler, changes, last_decided
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report

KEPT_RECORDS = 1000
"""Most records in a saved state, the latest; it bounds the size of a checkpoint."""

_LISTED = 20
_FEWEST_LISTED, _MOST_LISTED = 50, 1000
"""Of the argmaxable classes one in so many is listed as at risk, within these limits."""

_DEEPENED = 512
"""Shallow witnesses that each check tries to replace by deeper ones, if there is time."""
_CREDIT = 0.5
"""Seconds that checks may take in all however short the training, so that small runs have some."""
_BEFORE_THE_END = 0.5
"""Share of its time that a monitor spends before the last check, which has much left to do."""
_USEFUL = 1.5
"""A check waits for time for so many times what it needs before its first verdict."""


@dataclass
class _Since:
    """For each class in a set, the step since which it has been there at every check."""

    steps: dict[int, int] = field(default_factory=dict)

    def update(self, ids: ArrayLike, step: int) -> None:
        members: list[int] = np.asarray(ids).tolist()
        self.steps = {index: self.steps.get(index, step) for index in members}

    def state(self) -> dict[str, list[int]]:
        return {"class": list(self.steps), "step": list(self.steps.values())}

    def load(self, state: Mapping[str, list[int]]) -> None:
        self.steps = dict(zip(state.get("class", []), state.get("step", []), strict=False))


class HeadMonitor:
    """Checks one layer again and again, each time from the proofs of the last check.

    It remembers since when each class has been out of reach, and which may soon be.

    Args:
        domain: where the layer's input may lie; see :meth:`Domain.of`.
        patience: as for :func:`verify`.
        time_limit: seconds for each check, or None.
        device: where the search runs, or None for where the layer lies.
        max_overhead: most time for checks, as a share of training time; None for no limit. It
            counts once ``budget.start()`` was called. Half of it goes to checks before the last;
            what doesn't fit into that waits for the next one.
        on_event: what to do when a class becomes unargmaxable or comes back; see
            :class:`EventHandler`.
        head: the layer's name in events.

    >>> monitor = HeadMonitor("box:10")
    >>> layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [-0.1, 0.0]])
    >>> record = monitor.check(layer, step=50)
    >>> record.provable, monitor.provable_since
    (1, {3: 50})
    """

    def __init__(
        self,
        domain: Domain | str | float = "box:100",
        *,
        patience: int | None = None,
        time_limit: float | None = None,
        device: str | None = None,
        max_overhead: float | None = None,
        on_event: Any = None,
        head: str = "output",
    ) -> None:
        if patience is not None and not (isinstance(patience, int) and patience >= 0):
            raise UnargError(f"patience is {patience}; expected a whole number from 0")
        if time_limit is not None and not time_limit > 0:
            raise UnargError(f"time_limit is {time_limit}; expected seconds above 0")
        self.domain = Domain.of(domain)
        self.time_limit = time_limit
        self.head = head
        self.max_overhead = max_overhead
        OverheadBudget(max_overhead)  # Refuses what is no share.
        share = None if max_overhead is None else max_overhead * _BEFORE_THE_END
        self.budget = OverheadBudget(share, credit=_CREDIT)
        self.handler = EventHandler.of(on_event)
        self.last_report: Report | None = None
        """What the last check found; it is not part of the saved state."""
        self.at_risk: tuple[AtRisk, ...] = ()
        """Argmaxable classes that lead by little or by less and less, the most urgent first."""
        self.records: list[CheckRecord] = []
        """One a check, in order of time."""
        self._verifier = IncrementalVerifier(
            self.domain, patience=patience, device=device, deepen=_DEEPENED
        )
        self._history = LeadHistory()
        self._decided: NDArray[np.int8] | None = None
        self._provable = _Since()
        self._potential = _Since()
        self._classes: int | None = None

    @property
    def provable_since(self) -> dict[int, int]:
        """Step since which each class has been proven unargmaxable at every check that decided."""
        return dict(self._provable.steps)

    @property
    def potential_since(self) -> dict[int, int]:
        """Step since which each class has been left unproven by the search at every check."""
        return dict(self._potential.steps)

    def check(
        self, layer: OutputLayer, step: int, *, due: int | None = None, final: bool = False
    ) -> CheckRecord:
        """Verify the layer, starting from the last check's proofs, and record the outcome.

        The verdicts are those of a check from scratch; what was known only saves time. A layer with
        another number of classes or features is another layer: everything starts afresh.

        Args:
            layer: a copy that nobody changes meanwhile.
            step: optimizer steps taken when it was copied.
            due: step at which the check fell due, if it had to wait.
            final: whether it is the last one, which the budget doesn't limit.
        """
        if self._classes != layer.classes:
            # The verifier notices by itself, and its report says so.
            self._forget_classes()
            self._classes = layer.classes
        with self.budget.spending():
            report = self._verifier.update(layer, time_limit=self._limit(final))
            essential = report.reuse.essential_seconds
            self.budget.learn(_USEFUL * essential)
            return self._record(report, step, step if due is None else due)

    def skip(self, step: int, reason: str, *, not_finite: bool = False) -> CheckRecord:
        """Record that there was no check at this step; since-when of each class stays.

        Args:
            step: optimizer steps taken.
            reason: why.
            not_finite: whether the layer has NaN or inf, which is an event.
        """
        record = CheckRecord(step=step, due=step, skipped=reason)
        self.records.append(record)
        # What an earlier layer was like would be read as the answer for this one.
        self.last_report = None
        if not_finite:
            self.handler.handle([Event("not_finite", step, head=self.head)])
        return record

    def forget(self) -> None:
        """Forget what is known of the layer, as before the first check; the records stay."""
        self._verifier.reset()
        self._forget_classes()

    def _forget_classes(self) -> None:
        self.last_report = self._decided = None
        self.at_risk = ()
        self._history = LeadHistory()
        self._provable, self._potential = _Since(), _Since()

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on, proofs included: tensors and builtins.

        Some 0.6 of the layer's size, and at most the latest 1,000 records.
        """
        decided = None if self._decided is None else torch.from_numpy(self._decided)
        return {
            "version": 2,
            "classes": self._classes,
            "domain": str(self.domain),
            "provable_since": self._provable.state(),
            "potential_since": self._potential.state(),
            "records": [record.to_dict() for record in self.records[-KEPT_RECORDS:]],
            "decided": decided,
            "proofs": self._verifier.state_dict(),
            "leads": self._history.state_dict(),
            "budget": self.budget.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave; what is missing is as at the start.

        The next check starts from the proofs, and tries each again. What was found in another
        domain says nothing about this one: only its records are kept. A damaged state is left out,
        and a warning says so.
        """
        try:
            self._load(state)
        except DAMAGED as cause:
            self.forget()
            self._classes, self.records = None, []
            told = f"{type(cause).__name__}: {cause}"
            warnings.warn(
                f"the monitor's saved state can't be used ({told}); it starts from nothing",
                stacklevel=2,
            )

    def _load(self, state: Mapping[str, Any]) -> None:
        self.forget()
        classes = state.get("classes")
        self._classes = None if classes is None else int(classes)
        self.records = [CheckRecord.from_dict(record) for record in state.get("records", [])]
        self.budget.load_state_dict(state.get("budget", {}))
        # It says itself, in the next report, if these are of no use.
        self._verifier.load_state_dict(state.get("proofs", {}))
        if state.get("domain") == str(self.domain):
            self._provable.load(state.get("provable_since", {}))
            self._potential.load(state.get("potential_since", {}))
            self._history.load_state_dict(state.get("leads", {}))
            decided = state.get("decided")
            self._decided = None if decided is None else decided.cpu().numpy().astype(np.int8)
            self.at_risk = self._list_at_risk()

    def _limit(self, final: bool) -> float | None:
        """Seconds for a check that begins now."""
        allowance = float("inf") if final else self.budget.allowance
        limit = min(allowance, float("inf") if self.time_limit is None else self.time_limit)
        return None if limit == float("inf") else limit

    def _record(self, report: Report, step: int, due: int) -> CheckRecord:
        was_provable = self._provable.steps
        argmaxable = set(report.ids(Status.ARGMAXABLE).tolist())
        returned = sum(index in argmaxable for index in was_provable)
        lost, warned = self._look_ahead(report, step)
        # A class that is undecided for want of time is what it was when last decided.
        assert self._decided is not None
        provable = np.flatnonzero(self._decided == Status.UNARGMAXABLE)
        appeared = sum(index not in was_provable for index in provable.tolist())
        self._provable.update(provable, step)
        self._potential.update(
            np.flatnonzero(report.potential | (report.status == Status.UNDECIDED)), step
        )
        self.last_report = report
        counts, reuse = report.counts, report.reuse
        record = CheckRecord(
            step=step,
            due=due,
            classes=report.classes,
            argmaxable=counts["argmaxable"],
            provable=counts["unargmaxable"],
            potential=counts["potentially_unargmaxable"],
            undecided=counts["undecided"],
            excluded=counts["excluded"],
            duplicates=counts["duplicates"],
            appeared=appeared,
            returned=returned,
            reflections=int(report.reflections.sum()),
            seconds=float(report.seconds),
            complete=bool(report.complete),
            warm=reuse.warm,
            kept=reuse.kept,
            evaluated=reuse.evaluated,
            recertified=reuse.recertified,
            searched=reuse.searched,
            solved=reuse.solved,
            oldest=int(report.age.max(initial=0)),
            lost=lost,
            forewarned=warned,
            leads=self._history.quantiles(),
        )
        self.records.append(record)
        return record

    def _list_at_risk(self) -> tuple[AtRisk, ...]:
        known = int(np.isfinite(self._history.lead).sum())
        return self._history.at_risk(min(max(known // _LISTED, _FEWEST_LISTED), _MOST_LISTED))

    def _look_ahead(self, report: Report, step: int) -> tuple[int, int]:
        """Tell of changes, list who is at risk; return how many were lost, and of these listed."""
        events = changes(
            self._decided, report.status, step=step, names=report.names, head=self.head
        )
        self._decided = last_decided(self._decided, report.status)
        lost = [index for e in events if e.kind == "unargmaxable" for index in e.classes]
        warned = forewarned(self.at_risk, lost)
        self._history.update(report.status, report.lead, report.scale, report.measured)
        self.at_risk = self._list_at_risk()
        self.handler.handle(events)
        return len(lost), warned
