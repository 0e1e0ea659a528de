"""Check one layer again and again, within a budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from unarg_callback.absolute import folded, mirrored
from unarg_callback.continuity import DAMAGED
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.distributed.row_sharded import verify_rows
from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.incremental import IncrementalVerifier
from unarg_callback.monitoring.class_history import ClassHistory
from unarg_callback.monitoring.early_warning import AtRisk
from unarg_callback.monitoring.events import Event, EventHandler
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.monitoring.warn import warn
from unarg_callback.report import Report

KEPT_RECORDS = 1000
"""Most records in a saved state, the latest; it bounds the size of a checkpoint."""

_DEEPENED = 512
"""Shallow witnesses that each check tries to replace by deeper ones, if there is time."""


class HeadMonitor:
    """Checks one layer again and again, each time from the proofs of the last check.

    It remembers since when each class has been out of reach, and which may soon be.

    Args:
        domain: where the layer's input may lie; see :meth:`Domain.of`.
        patience: as for :func:`verify`.
        time_limit: seconds for each check, or None.
        device: where the search runs, or None for where the layer lies.
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
        self.by_size = False
        """Whether classes are ranked by the size of their logits, of either sign."""
        self.handler = EventHandler.of(on_event)
        self.last_report: Report | None = None
        """What the last check found; it is not part of the saved state."""
        self.last_events: tuple[Event, ...] = ()
        """What the last check changed."""
        self.records: list[CheckRecord] = []
        """One a check, in order of time."""
        self._verifier = IncrementalVerifier(
            self.domain, patience=patience, device=device, deepen=_DEEPENED
        )
        self._earlier_rows: Report | None = None
        self._history = ClassHistory()
        self._recording = threading.Lock()

    @property
    def verifier(self) -> IncrementalVerifier:
        """Keeps the proofs; its ranks may be set before a check."""
        return self._verifier

    @property
    def provable_since(self) -> dict[int, int]:
        """Step since which each class has been proven unargmaxable at every check that decided."""
        return self._history.provable_since

    @property
    def potential_since(self) -> dict[int, int]:
        """Step since which each class has been left unproven by the search at every check."""
        return self._history.potential_since

    @property
    def at_risk(self) -> tuple[AtRisk, ...]:
        """Argmaxable classes that lead by little or by less and less, the most urgent first."""
        return self._history.at_risk

    def check(
        self,
        layer: OutputLayer,
        step: int,
        *,
        due: int | None = None,
        time_limit: float | None = None,
        domain: Domain | None = None,
        stop: Callable[[], bool] | None = None,
        beside: Mapping[str, Any] | None = None,
    ) -> CheckRecord:
        """Verify the layer, starting from the last check's proofs, and record the outcome.

        The verdicts are those of a check from scratch; what was known only saves time. A layer with
        more classes than before has grown: of the earlier classes it is still known since when they
        are out of reach. Any other change of its shape makes it another layer.

        Args:
            layer: a copy that nobody changes meanwhile.
            step: optimizer steps taken when it was copied.
            due: step at which the check fell due, if it had to wait.
            time_limit: seconds for this check, beside those for each; or None.
            domain: where the layer's input may lie from now on, or None for where it might before.
            stop: asked now and then; once it says yes, the check ends and the rest is undecided.
            beside: fields of the record about what else was checked at this step.
        """
        self.domain = domain or self.domain
        limit = self._limit(time_limit)
        layer_checked = mirrored(layer) if self.by_size else layer
        report = self._verifier.update(
            layer_checked, time_limit=limit, domain=self.domain, stop=stop
        )
        if self.by_size:
            report = folded(report, layer.names)
        return self._record(report, step, due, beside)

    def check_rows(
        self,
        rows: OutputLayer | None,
        ranks: Ranks,
        step: int,
        *,
        due: int | None = None,
        time_limit: float | None = None,
        domain: Domain | None = None,
        beside: Mapping[str, Any] | None = None,
    ) -> CheckRecord:
        """Verify a layer whose rows are divided among ranks, as :meth:`check` does. A collective.

        The proofs stay where the rows are, and aren't part of the saved state.

        Args:
            rows: copies of those of this rank, or None where it has none; see
                :func:`~unarg_callback.distributed.row_sharded.verify_rows`.
            ranks: the processes that have the others.
            step: as for :meth:`check`, as are all that follow.
            due: likewise.
            time_limit: likewise; that of rank 0 counts.
            domain: likewise.
            beside: likewise.
        """
        self.domain = domain or self.domain
        limit = ranks.broadcast(self._limit(time_limit))
        report = verify_rows(rows, ranks, self.domain, time_limit=limit, earlier=self._earlier_rows)
        self._earlier_rows = report
        return self._record(report, step, due, beside)

    def moved(self, layer: OutputLayer) -> bool:
        """Whether a layer has other numbers than the one that was checked last, if any was."""
        last = self._verifier.layer
        if last is None:
            return False
        layer = mirrored(layer) if self.by_size else layer
        pairs = ((last.weight, layer.weight), (last.bias, layer.bias))
        return any(
            (one is None) != (other is None)
            or (one is not None and other is not None and not _equal(one, other))
            for one, other in pairs
        )

    def skip(self, step: int, reason: str, *, not_finite: bool = False) -> CheckRecord:
        """Record that there was no check at this step; since-when of each class stays.

        Args:
            step: optimizer steps taken.
            reason: why.
            not_finite: whether the layer has NaN or inf, which is an event.
        """
        record = CheckRecord(step=step, due=step, skipped=reason)
        with self._recording:
            self.records.append(record)
            # What an earlier layer was like would be read as the answer for this one.
            self.last_report = None
            self.last_events = (Event("not_finite", step, head=self.head),) if not_finite else ()
        self.handler.handle(self.last_events)
        return record

    def forget(self) -> None:
        """Forget what is known of the layer, as before the first check; the records stay."""
        self._verifier.reset()
        self._earlier_rows = self.last_report = None
        self._history.forget()

    def _limit(self, time_limit: float | None) -> float | None:
        limits = [limit for limit in (time_limit, self.time_limit) if limit is not None]
        return min(limits, default=None)

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on, proofs included: tensors and builtins.

        Some 0.6 of the layer's size, and at most the latest 1,000 records. During a check in
        another thread it is what the check before found.
        """
        with self._recording:
            return self._state()

    def _state(self) -> dict[str, Any]:
        return {
            "version": 2,
            "domain": [torch.tensor(bound) for bound in (self.domain.low, self.domain.high)],
            "records": [record.to_dict() for record in self.records[-KEPT_RECORDS:]],
            "proofs": self._verifier.state_dict(),
            **self._history.state_dict(),
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
            self._history, self.records = ClassHistory(), []
            told = f"{type(cause).__name__}: {cause}"
            warn(f"the monitor's saved state can't be used ({told}); it starts from nothing")

    def _load(self, state: Mapping[str, Any]) -> None:
        self.forget()
        same_domain = _is_domain(state.get("domain"), self.domain)
        self._history.load_state_dict(state, same_domain=same_domain)
        self.records = [CheckRecord.from_dict(record) for record in state.get("records", [])]
        # It says itself, in the next report, if these are of no use.
        self._verifier.load_state_dict(state.get("proofs", {}))

    def __getstate__(self) -> dict[str, Any]:
        # A lock stays in its process.
        return {key: value for key, value in self.__dict__.items() if key != "_recording"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._recording = threading.Lock()

    def _record(
        self, report: Report, step: int, due: int | None, beside: Mapping[str, Any] | None
    ) -> CheckRecord:
        with self._recording:
            record = self._recorded(report, step, step if due is None else due, beside or {})
        # Whoever hears of an event may ask for the state.
        self.handler.handle(self.last_events)
        return record

    def _recorded(
        self, report: Report, step: int, due: int, beside: Mapping[str, Any]
    ) -> CheckRecord:
        changed = self._history.update(report, step, head=self.head)
        self.last_events = changed.events
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
            appeared=changed.appeared,
            returned=changed.returned,
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
            lost=changed.lost,
            forewarned=changed.forewarned,
            leads=self._history.quantiles(),
            **beside,
        )
        self.records.append(record)
        return record


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same; an excluded class may hold NaN."""
    same = one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
    return same and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _is_domain(saved: Any, domain: Domain) -> bool:
    """Whether saved bounds are those of a domain."""
    bounds = (domain.low, domain.high)
    return (
        isinstance(saved, list)
        and len(saved) == 2
        and all(np.array_equal(a.cpu().numpy(), b) for a, b in zip(saved, bounds, strict=True))
    )
