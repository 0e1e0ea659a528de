"""The heads that a monitor watches: what is known of each, and their saved states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unarg_callback.errors import UnargError
from unarg_callback.monitoring.activation_range import ActivationRange
from unarg_callback.monitoring.head import Head
from unarg_callback.monitoring.head_monitor import HeadMonitor
from unarg_callback.monitoring.label_set_monitor import LabelSetFinding
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report


class WatchedHeads:
    """What is known of some heads, by their names or, where there is one, without.

    Args:
        heads: their names may be known only once their layers are found.
    """

    def __init__(self, heads: Sequence[Head]) -> None:
        self._heads = list(heads)
        self._saved: Mapping[str, Any] = {}

    @property
    def heads(self) -> dict[str, HeadMonitor]:
        """What is known of each head, by its name in tags; names are final once training starts."""
        return {head.name: head.monitor for head in self._heads}

    @property
    def activation_ranges(self) -> dict[str, ActivationRange]:
        """What was observed of the input of each head that is watched, by its name.

        In training it is what this process saw; after :meth:`Monitor.finish`, what all ranks did.
        The paper's Table 9 is ``print(monitor.activation_ranges["head"].table9())``.
        """
        return {
            head.name: head.observation.range
            for head in self._heads
            if head.observation is not None
        }

    @property
    def label_sets(self) -> dict[str, LabelSetFinding]:
        """What the last check of label sets found, proofs included, by the head's name."""
        found = {head.name: head.labelling.last for head in self._heads}
        return {name: finding for name, finding in found.items() if finding is not None}

    @property
    def labels(self) -> Any:
        """Class names of the only head; they may be assigned before training starts."""
        return self._only_head().labels

    @labels.setter
    def labels(self, labels: Any) -> None:
        self._only_head().labels = labels

    @property
    def last_report(self) -> Report | None:
        """What the last check of the only head found, proofs included."""
        return self._only_head().monitor.last_report

    @property
    def records(self) -> list[CheckRecord]:
        """One record a check of the only head, in order of time; after a resume all of them."""
        return list(self._only_head().monitor.records)

    def describe(self, labels: Sequence[str] | None, exclude: Sequence[int]) -> None:
        """Name the classes of the only head, and those that take no part, from the next check on.

        For a layer that has got more classes, or whose classes mean something else now.
        """
        self._only_head().describe(labels, exclude)

    def forget(self) -> None:
        """Forget what is known of the layers, as before the first check; the records stay."""
        for head in self._heads:
            head.monitor.forget()
            head.labelling.forget()

    def _load_heads(self, saved: Mapping[str, Any]) -> None:
        """Take up the states of heads, by name."""
        self._saved = saved
        for head in self._heads:
            self._load_head(head)

    def _load_late_heads(self) -> None:
        """Take up what is left of the saved states, now that the layers are found."""
        for head in self._heads:
            # Some have their names, and so their states, only now.
            if head.name in self._saved and not head.monitor.records:
                self._load_head(head)
        self._saved = {}

    def _load_head(self, head: Head) -> None:
        """Take up the saved state of a head; a head found by itself has its name only later."""
        state = self._saved.get(head.name)
        if state is None and len(self._heads) == len(self._saved) == 1:
            state = next(iter(self._saved.values()))
        head.load_state_dict(state if isinstance(state, Mapping) else {})

    def _only_head(self) -> Head:
        if len(self._heads) == 1:
            return self._heads[0]
        names = ", ".join(repr(head.name) for head in self._heads)
        raise UnargError(f"there are several heads ({names}); ask `heads` for one of them")
