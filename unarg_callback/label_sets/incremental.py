"""Verify the label sets of a head again and again while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.label_sets.evidence import SetEvidence
from unarg_callback.label_sets.head import LabelHead
from unarg_callback.label_sets.report import LabelSetReport
from unarg_callback.label_sets.verification import Given, run

_FROM_NOTHING = "Started from nothing"


class IncrementalLabelSets:
    """Gives the verdicts of :func:`verify_label_sets`, starting from the proofs of the last update.

    Sets may come and go from one update to the next, and the rule may change. A head of another
    size is another head: the update starts from nothing, and the report's notes say so.

    Args:
        domain: as for :func:`verify_label_sets`.
        min_margin: likewise.

    Raises:
        DomainError: the domain can't be read.

    >>> import numpy as np
    >>> checks = IncrementalLabelSets("box:10")
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> checks.update(LabelHead(rows), [[0, 1], [2]]).counts["unattainable"]
    2
    >>> rows[2] = [-1.0, 0.5]
    >>> report = checks.update(LabelHead(rows), [[0, 1], [2]])
    >>> report.counts["unattainable"], report.reuse.warm
    (0, True)
    """

    def __init__(
        self,
        domain: Domain | str | float | ArrayLike = "box:100",
        *,
        min_margin: float | None = None,
    ) -> None:
        self._domain = Domain.of(domain)
        self.min_margin = min_margin
        self._held: SetEvidence | None = None
        self._why_cold: str | None = None

    @property
    def domain(self) -> Domain:
        """Where the head's input may lie."""
        return self._domain

    def update(
        self,
        head: LabelHead,
        sets: Given,
        *,
        time_limit: float | None = None,
        activations: Tensor | ArrayLike | None = None,
        domain: Domain | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> LabelSetReport:
        """Verify the sets for the head as it is now.

        Args:
            head: the head.
            sets: multi-hot (n, K) or lists of label ids.
            time_limit: seconds after which no new work starts; what is left is undecided.
            activations: (n, d) inputs that were seen, as for :func:`verify_label_sets`.
            domain: where the head's input may lie from now on, or None for where it might before.
            stop: asked now and then; once it says yes, what is left is undecided.

        Raises:
            DomainError: the domain doesn't fit the head.
            LabelSetError: sets or activations don't.
        """
        self._domain = domain or self._domain
        held, reason = self._held, self._why_cold
        if held is not None:
            was = held.sets.shape[1], held.points.shape[1]
            now = head.labels, head.dim
            if was != now:
                reason = f"the head was {was[0]} x {was[1]} and is {now[0]} x {now[1]}"
                held = None
        notes = () if reason is None else (f"{_FROM_NOTHING}: {reason}.",)
        report, self._held = run(
            head,
            sets,
            self._domain,
            self.min_margin,
            time_limit,
            activations=activations,
            held=held,
            notes=notes,
            stop=stop,
        )
        self._why_cold = None
        return report

    def reset(self) -> None:
        """Forget everything: the next update starts from nothing."""
        self._held = self._why_cold = None

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: tensors and builtins."""
        return {} if self._held is None else self._held.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave.

        No proof in it is believed: the next update tries each again. A state that can't be read is
        left out, and the next report's notes say so.
        """
        self.reset()
        if state:
            try:
                self._held = SetEvidence.from_state(state)
            except UnargError as cause:
                self._why_cold = str(cause)
