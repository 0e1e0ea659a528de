"""How one head's logits are read while it trains, and the check of its label sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.heads.multilabel import MultilabelHead
from unarg_callback.label_sets import Rule
from unarg_callback.monitoring.copies import Copy
from unarg_callback.monitoring.label_set_monitor import (
    AskedSets,
    LabelSetFinding,
    LabelSetMonitor,
    labelled,
)
from unarg_callback.monitoring.reading import multilabel_of, reading_of
from unarg_callback.snapshots.found import FoundLayer


class HeadLabels:
    """Knows how a head's logits are read, and has its label sets checked.

    Args:
        rule: as :func:`~unarg_callback.monitoring.reading.given_rule` has it.
        monitor: checks sets of labels, or None where nobody wants that.
    """

    def __init__(
        self, rule: Rule | str | None = None, monitor: LabelSetMonitor | None = None
    ) -> None:
        self.rule = rule
        self.monitor = monitor
        self.by_size = False
        """Whether classes are ranked by ``|z|``; known once opened."""
        self.asks = False
        """Whether label sets are checked; known once opened."""
        self.reason = ""
        """Why there are none to check now, if it is known."""
        self._head: MultilabelHead | None = None

    @property
    def last(self) -> LabelSetFinding | None:
        """What the last check of the label sets found."""
        return None if self.monitor is None else self.monitor.last

    def open(self, found: FoundLayer) -> None:
        """Read how the head of a layer reads its logits, and watch the label sets of training.

        Raises:
            UnargError: label sets are asked for, and have no rule, or can't be known; or the head's
                map is of a kind whose order isn't known.
        """
        self._head = multilabel_of(found)
        reading = reading_of(self.rule, self._head)
        self.by_size = reading.by_size
        asked_for = self.monitor is not None and self.monitor.given is not None
        if asked_for and reading.rule is None:
            raise UnargError(
                f"label_sets are given for {found.text}, and {reading.reason}; leave them out, or "
                "give another rule"
            )
        self.asks = asked_for or (
            self.monitor is not None and self._head is not None and not reading.by_size
        )
        if self.asks and self.monitor is not None:
            self.monitor.open(found.classes, None if self._head is None else self._head.loss)

    def follow(self, found: FoundLayer) -> None:
        """Open again if the layer has got another owner, loss, or number of labels."""
        head, monitor = multilabel_of(found), self.monitor
        loss = None if head is None else head.loss
        watched = not self.asks or monitor is None or monitor.watches(found.classes, loss)
        if head is not self._head or not watched:
            self.open(found)

    def forget(self) -> None:
        """Forget what is known of label sets, as before the first check."""
        if self.monitor is not None:
            self.monitor.forget()

    def close(self) -> None:
        """Watch targets no longer."""
        if self.monitor is not None:
            self.monitor.close()

    def see(self, batch: Any) -> None:
        """Take in the label sets of a training batch, where a function was given for that."""
        if self.asks and self.monitor is not None:
            self.monitor.see(batch)

    def asked(self, ranks: Ranks, layer: object) -> AskedSets | None:
        """The label sets to check by now, and how; None if there are none. A collective.

        Args:
            ranks: that have seen some.
            layer: what was copied of the layer.
        """
        if not self.asks or self.monitor is None:
            return None
        ranks.together(self.monitor.raise_failure)
        self.monitor.collect(ranks)
        reading = reading_of(self.rule, self._head)
        self.reason = reading.reason
        if reading.rule is None or not isinstance(layer, OutputLayer):
            return None
        asked = self.monitor.asked(reading.rule, reading.exact)
        return None if asked is None or asked.sets.shape[1] != layer.classes else asked

    def check(
        self,
        copy: Copy,
        step: int,
        domain: Domain,
        time_limit: float | None,
        stop: Callable[[], bool] | None = None,
    ) -> LabelSetFinding | None:
        """Check the label sets of a copy; None where there is nothing to check."""
        layer, asked = copy.layer, copy.asked
        if asked is None or self.monitor is None or not isinstance(layer, OutputLayer):
            return None
        head, asked = labelled(layer, asked)
        return self.monitor.check(
            head, asked, step, domain=domain, time_limit=time_limit, stop=stop
        )

    def __getstate__(self) -> dict[str, Any]:
        # It is a part of the model.
        return {**self.__dict__, "_head": None}
