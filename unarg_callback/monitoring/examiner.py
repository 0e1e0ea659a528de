"""Copy the layers of all heads and check the copies, the same on every rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import nn

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.budget import OverheadBudget
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.head import Copy, Head, NoLayer, Rows

_USEFUL = 1.5
"""A check waits for time for so many times what it needs before its first verdict."""


class Examiner:
    """Checks the layers of some heads together.

    Args:
        heads: which layers.
        budget: how much time there is.
        divided: whether several ranks divide each check; otherwise the first makes it alone.
    """

    def __init__(self, heads: Sequence[Head], budget: OverheadBudget, *, divided: bool) -> None:
        self.heads = list(heads)
        self.budget = budget
        self.ranks = Ranks()
        """The processes that check together."""
        self._divided = divided

    @property
    def unfinished(self) -> bool:
        """Whether the last check left something undecided for want of time."""
        reports = [head.monitor.last_report for head in self.heads]
        return any(report is not None and not report.complete for report in reports)

    def open(self, model: nn.Module) -> None:
        """Find all layers.

        Raises:
            UnargError: one can't be found, doesn't fit its settings, or has the name of another.
        """
        for head in self.heads:
            head.open(model)
            head.monitor.verifier.ranks = self.ranks if self._divided else Ranks()
        names = [head.name for head in self.heads]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UnargError(f"two heads have the name {twice[0]!r}; give them names of their own")

    @property
    def waits(self) -> bool:
        """Whether some head's domain isn't known before its input has been observed."""
        return any(head.observation is not None and head.observation.waits for head in self.heads)

    def copy(self, model: nn.Module) -> list[Copy]:
        """Copy all layers as they are now. A collective."""
        return [self.copy_one(head, model) for head in self.heads]

    def moved(self, model: nn.Module) -> bool:
        """Whether some layer is no longer what was checked last, as where weights were averaged.

        A collective. Rows that stay on their ranks are taken for unmoved.
        """
        return any(
            isinstance(copy.layer, OutputLayer) and head.monitor.moved(copy.layer)
            for head, copy in zip(self.heads, self.copy(model), strict=True)
        )

    def copy_one(self, head: Head, model: nn.Module) -> Copy:
        """Copy one layer; where that of one rank has NaN, no rank checks it. A collective."""
        layer = self.ranks.together(lambda: head.snapshot(model, self.ranks))
        for told in self.ranks.gather(layer if isinstance(layer, NoLayer) else None):
            if told is not None:
                return Copy(told)
        return Copy(layer, head.domain(self.ranks))

    @staticmethod
    def scattered(copies: Sequence[Copy]) -> bool:
        """Whether some layer's rows stay on their ranks, so that all have to check it."""
        return any(isinstance(copy.layer, Rows) for copy in copies)

    def left_domains(self) -> dict[str, str]:
        """By head, how inputs left an assumed domain; each is told once. A collective."""
        told = {head.name: head.left(self.ranks) for head in self.heads}
        return {name: text for name, text in told.items() if text is not None}

    def close(self) -> None:
        """Stop to observe inputs."""
        for head in self.heads:
            if head.observation is not None:
                head.observation.detach()

    def gather_observations(self) -> None:
        """Put together what all ranks have observed. A collective."""
        for head in self.heads:
            if head.observation is not None:
                head.observation.gather(self.ranks)

    def examine(
        self,
        copies: Sequence[Copy],
        step: int,
        due: int,
        *,
        limited: bool,
        stop: Callable[[], bool] | None = None,
    ) -> tuple[Finding, ...]:
        """Check copies; each gets an equal part of the time that is left. A collective if divided.

        Args:
            copies: one a head.
            step: optimizer steps taken when they were made.
            due: step at which the check fell due.
            limited: whether the budget limits it.
            stop: asked now and then; once it says yes, the checks end.
        """
        divided = self._divided or self.scattered(copies)
        if not (divided or self.ranks.first):
            return ()
        ranks = self.ranks if divided else Ranks()
        findings: list[Finding] = []
        for at, (head, copy) in enumerate(zip(self.heads, copies, strict=True)):
            left = self.budget.allowance if limited else math.inf
            limit = None if math.isinf(left) else left / (len(copies) - at)

            def check(
                head: Head = head,
                copy: Copy = copy,
                limit: float | None = limit,
            ) -> Finding:
                return head.examine(copy, ranks, step, due, limit, stop)

            findings.append(ranks.together(check))
        essential = [f.report.reuse.essential_seconds for f in findings if f.report is not None]
        if essential:
            self.budget.learn(_USEFUL * sum(essential))
        return tuple(findings)
