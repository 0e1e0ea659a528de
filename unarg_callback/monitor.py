"""When to check a layer, and what is known since when; no training framework is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report
from unarg_callback.verification import verify

KEPT_RECORDS = 1000
"""Most records in a saved state, the latest; it bounds the size of a checkpoint."""


@dataclass(frozen=True)
class CheckRecord:
    """One check in numbers, all of them builtins.

    Args:
        step: optimizer steps taken when the layer was copied.
        classes: C, excluded ones included.
        argmaxable: classes with a witness.
        provable: classes proven unargmaxable.
        potential: classes that the approximate search left unproven.
        undecided: classes with no proof either way.
        excluded: classes that take no part.
        duplicates: classes that share row and bias with another.
        appeared: of the provable, those that weren't at the last check (at the first one: all).
        returned: argmaxable classes that were provably unargmaxable at the last check.
        reflections: steps that the search spent, over all classes.
        seconds: wall time.
        complete: False if a time limit cut the check short.
        skipped: why there was no check (all counts are then 0), or None.
    """

    step: int
    classes: int = 0
    argmaxable: int = 0
    provable: int = 0
    potential: int = 0
    undecided: int = 0
    excluded: int = 0
    duplicates: int = 0
    appeared: int = 0
    returned: int = 0
    reflections: int = 0
    seconds: float = 0.0
    complete: bool = True
    skipped: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CheckRecord:
        """Inverse of :meth:`to_dict`; unknown fields are left out, missing ones get defaults."""
        known = {key: values[key] for key in cls.__dataclass_fields__ if key in values}
        return cls(**known)


class Cadence:
    """Tells when a multiple of ``every_n_steps`` has been passed since the last check.

    Steps may jump (several optimizers) or repeat (gradient accumulation): a multiple that was
    jumped over is due at the next step seen, and no step is due twice.

    Args:
        every_n_steps: at least 1, or 0 for never.
        at_start: whether step 0 is due, once.

    >>> cadence = Cadence(5)
    >>> for step in (0, 2, 4, 4, 6, 6, 8, 10):
    ...     if cadence.due(step):
    ...         cadence.mark(step)
    ...         print(step)
    6
    10
    """

    def __init__(self, every_n_steps: int, *, at_start: bool = False) -> None:
        if isinstance(every_n_steps, bool) or not isinstance(every_n_steps, int):
            raise UnargError(f"every_n_steps is {every_n_steps!r}; expected an integer")
        if every_n_steps < 0:
            raise UnargError(
                f"every_n_steps is {every_n_steps}; expected 1 or more, or 0 for never"
            )
        self.every_n_steps = every_n_steps
        self.at_start = at_start
        self.last: int | None = None
        """Step that was marked last, or None."""

    def due(self, step: int) -> bool:
        """Whether a check is due at this step; asking changes nothing."""
        if self.every_n_steps == 0 or step == self.last:
            return False
        if self.last is None and step == 0:
            return self.at_start
        return step // self.every_n_steps > (self.last or 0) // self.every_n_steps

    def mark(self, step: int) -> None:
        """Note that the check of this step was done."""
        self.last = step

    def restart(self, step: int) -> bool:
        """Begin at ``step``: a mark beyond it is of an earlier run; tells whether there was one."""
        earlier = self.last is not None and self.last > step
        if earlier:
            self.last = None
        return earlier


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


class Monitor:
    """Checks one layer again and again, and remembers since when each class has been out of reach.

    Args:
        domain: where the layer's input may lie; see :meth:`Domain.of`.
        patience: as for :func:`verify`.
        time_limit: seconds for each check, or None.
        device: where the search runs, or None for where the layer lies.

    >>> monitor = Monitor("box:10")
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
    ) -> None:
        if patience is not None and not (isinstance(patience, int) and patience >= 0):
            raise UnargError(f"patience is {patience}; expected a whole number from 0")
        if time_limit is not None and not time_limit > 0:
            raise UnargError(f"time_limit is {time_limit}; expected seconds above 0")
        self.domain = Domain.of(domain)
        self.patience = patience
        self.time_limit = time_limit
        self.device = device
        self.last_report: Report | None = None
        """What the last check found; it is not part of the saved state."""
        self.records: list[CheckRecord] = []
        """One a check, in order of time."""
        self._provable = _Since()
        self._potential = _Since()
        self._classes: int | None = None

    @property
    def provable_since(self) -> dict[int, int]:
        """Step since which each class has been proven unargmaxable at every check."""
        return dict(self._provable.steps)

    @property
    def potential_since(self) -> dict[int, int]:
        """Step since which each class has been left unproven by the search at every check."""
        return dict(self._potential.steps)

    def check(self, layer: OutputLayer, step: int) -> CheckRecord:
        """Verify the layer, starting from the last check's proofs, and record the outcome.

        The verdicts are those of a check from scratch; what was known only saves time. A layer with
        another number of classes or features is another layer: everything starts afresh.

        Args:
            layer: a copy that nobody changes meanwhile.
            step: optimizer steps taken when it was copied.
        """
        before = self.last_report
        if before is not None and (before.classes, before.dim) != (layer.classes, layer.dim):
            before = self.last_report = None
        if self._classes != layer.classes:
            self.forget()
            self._classes = layer.classes
        report = verify(
            layer,
            self.domain,
            patience=self.patience,
            time_limit=self.time_limit,
            device=self.device,
            warm_start=before,
        )
        return self._record(report, step)

    def skip(self, step: int, reason: str) -> CheckRecord:
        """Record that there was no check at this step; since-when of each class stays."""
        record = CheckRecord(step=step, skipped=reason)
        self.records.append(record)
        # What an earlier layer was like would be read as the answer for this one.
        self.last_report = None
        return record

    def forget(self) -> None:
        """Forget what is known of the layer, as before the first check; the records stay."""
        self.last_report = None
        self._provable, self._potential = _Since(), _Since()

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: builtins only, and at most the latest 1,000 records.

        Its size grows with the number of classes that are out of reach: four integers each.
        """
        return {
            "version": 1,
            "classes": self._classes,
            "domain": str(self.domain),
            "provable_since": self._provable.state(),
            "potential_since": self._potential.state(),
            "records": [record.to_dict() for record in self.records[-KEPT_RECORDS:]],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave; what is missing is as at the start.

        The proofs are not in it: the next check is one from scratch. What was found in another
        domain says nothing about this one: only its records are kept.
        """
        self._classes = state.get("classes")
        self.forget()
        if state.get("domain") == str(self.domain):
            self._provable.load(state.get("provable_since", {}))
            self._potential.load(state.get("potential_since", {}))
        self.records = [CheckRecord.from_dict(record) for record in state.get("records", [])]
        self.last_report = None

    def _record(self, report: Report, step: int) -> CheckRecord:
        was_provable = self._provable.steps
        provable = report.ids(Status.UNARGMAXABLE)
        argmaxable = set(report.ids(Status.ARGMAXABLE).tolist())
        appeared = sum(index not in was_provable for index in provable.tolist())
        returned = sum(index in argmaxable for index in was_provable)
        self._provable.update(provable, step)
        self._potential.update(
            np.flatnonzero(report.potential | (report.status == Status.UNDECIDED)), step
        )
        self.last_report = report
        counts = report.counts
        record = CheckRecord(
            step=step,
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
        )
        self.records.append(record)
        return record
