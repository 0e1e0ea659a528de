"""What becomes of each class of a layer from check to check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.early_warning import AtRisk, LeadHistory, forewarned
from unarg_callback.monitoring.events import Event, changes, last_decided
from unarg_callback.report import Report

_LISTED = 20
_FEWEST_LISTED, _MOST_LISTED = 50, 1000
"""Of the argmaxable classes one in so many is listed as at risk, within these limits."""


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


@dataclass(frozen=True)
class Changes:
    """What a check changed.

    Args:
        events: what became of classes.
        appeared: how many are proven unargmaxable that weren't before.
        returned: how many that were proven unargmaxable are argmaxable.
        lost: how many became unargmaxable, as the events tell.
        forewarned: how many of these had been listed as at risk.
    """

    events: tuple[Event, ...]
    appeared: int
    returned: int
    lost: int
    forewarned: int


class ClassHistory:
    """Since when each class of a layer has been out of reach, and which may soon be.

    >>> from unarg_callback import OutputLayer, verify
    >>> layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [-0.1, 0.0]])
    >>> history = ClassHistory()
    >>> history.update(verify(layer, "box:10"), step=50, head="output").appeared
    1
    >>> history.provable_since
    {3: 50}
    """

    def __init__(self) -> None:
        self.at_risk: tuple[AtRisk, ...] = ()
        """Argmaxable classes that lead by little or by less and less, the most urgent first."""
        self._leads = LeadHistory()
        self._decided: NDArray[np.int8] | None = None
        self._provable = _Since()
        self._potential = _Since()
        self._classes: int | None = None
        self._features: int | None = None

    @property
    def provable_since(self) -> dict[int, int]:
        """Step since which each class has been proven unargmaxable at every check that decided."""
        return dict(self._provable.steps)

    @property
    def potential_since(self) -> dict[int, int]:
        """Step since which each class has been left unproven by the search at every check."""
        return dict(self._potential.steps)

    def forget(self) -> None:
        """Forget what is known of the classes, but not the layer's shape."""
        self._decided = None
        self.at_risk = ()
        self._leads = LeadHistory()
        self._provable, self._potential = _Since(), _Since()

    def update(self, report: Report, step: int, head: str) -> Changes:
        """Take in a check.

        A layer with more classes than before has grown; any other change of its shape makes it
        another layer, of which nothing is known.

        Args:
            report: what the check found.
            step: optimizer steps taken when the layer was copied.
            head: the layer's name in events.
        """
        self._fit_to(report.classes, report.dim)
        was_provable = self._provable.steps
        argmaxable = set(report.ids(Status.ARGMAXABLE).tolist())
        returned = sum(index in argmaxable for index in was_provable)
        events = changes(self._decided, report.status, step=step, names=report.names, head=head)
        # A class that is undecided for want of time is what it was when last decided.
        self._decided = last_decided(self._decided, report.status)
        lost = [index for e in events if e.kind == "unargmaxable" for index in e.classes]
        warned = forewarned(self.at_risk, lost)
        self._leads.update(report.status, report.lead, report.scale, report.measured)
        self.at_risk = self._list_at_risk()
        provable = np.flatnonzero(self._decided == Status.UNARGMAXABLE)
        appeared = sum(index not in was_provable for index in provable.tolist())
        self._provable.update(provable, step)
        self._potential.update(
            np.flatnonzero(report.potential | (report.status == Status.UNDECIDED)), step
        )
        return Changes(events, appeared, returned, len(lost), warned)

    def quantiles(self) -> dict[str, float]:
        """Relative leads of the argmaxable classes; see :meth:`LeadHistory.quantiles`."""
        return self._leads.quantiles()

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: tensors and builtins."""
        decided = None if self._decided is None else torch.from_numpy(self._decided)
        return {
            "classes": self._classes,
            "features": self._features,
            "provable_since": self._provable.state(),
            "potential_since": self._potential.state(),
            "decided": decided,
            "leads": self._leads.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any], *, same_domain: bool) -> None:
        """Take up what :meth:`state_dict` gave, after :meth:`forget`.

        Args:
            state: what is missing in it is as at the start.
            same_domain: whether it was found in the domain that is checked now; what was found in
                another says nothing about this one.
        """
        classes = state.get("classes")
        self._classes = None if classes is None else int(classes)
        features = state.get("features")
        self._features = None if features is None else int(features)
        if same_domain:
            self._provable.load(state.get("provable_since", {}))
            self._potential.load(state.get("potential_since", {}))
            self._leads.load_state_dict(state.get("leads", {}))
            decided = state.get("decided")
            self._decided = None if decided is None else decided.cpu().numpy().astype(np.int8)
            self.at_risk = self._list_at_risk()

    def _fit_to(self, classes: int, features: int) -> None:
        """Make room for classes that are new, or forget those of another layer."""
        if self._classes is not None and (
            classes < self._classes or self._features not in (None, features)
        ):
            self.forget()
        elif self._decided is not None and classes > len(self._decided):
            new = classes - len(self._decided)
            self._decided = np.pad(self._decided, (0, new), constant_values=Status.UNDECIDED)
            self._leads.grow(new)
        self._classes, self._features = classes, features

    def _list_at_risk(self) -> tuple[AtRisk, ...]:
        known = int(np.isfinite(self._leads.lead).sum())
        return self._leads.at_risk(min(max(known // _LISTED, _FEWEST_LISTED), _MOST_LISTED))
