"""Copy the layers of all heads and check the copies, the same on every rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.attention_keys import count_keys
from unarg_callback.monitoring.attention_watch import AttentionWatch
from unarg_callback.monitoring.budget import OverheadBudget
from unarg_callback.monitoring.copies import Copy, NoLayer, Rows
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.head import Head

_USEFUL = 1.5
"""A check waits for time for so many times what it needs before its first verdict."""


class Examiner:
    """Checks the layers of some heads together.

    Args:
        heads: which layers.
        budget: how much time there is.
        divided: whether several ranks divide each check; otherwise the first makes it alone.
        attention: keeps keys of attention layers, or None.
    """

    def __init__(
        self,
        heads: Sequence[Head],
        budget: OverheadBudget,
        *,
        divided: bool,
        attention: AttentionWatch | None = None,
    ) -> None:
        self.heads = list(heads)
        self.budget = budget
        self.ranks = Ranks()
        """The processes that check together."""
        self.attention = attention
        self._divided = divided

    @property
    def unfinished(self) -> bool:
        """Whether the last check left something undecided for want of time."""
        reports = [head.monitor.last_report for head in self.heads]
        sets = [head.labelling.last for head in self.heads]
        return any(report is not None and not report.complete for report in reports) or any(
            finding is not None and not finding.report.complete for finding in sets
        )

    def open(self, model: nn.Module) -> None:
        """Find all layers.

        Raises:
            UnargError: one can't be found, doesn't fit its settings, or has the name of another.
        """
        for head in self.heads:
            head.open(model)
            head.monitor.verifier.ranks = self.ranks if self._divided else Ranks()
        if self.attention is not None:
            self.attention.open(model)
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
        copies = self._copy_heads(model)
        watch = self.attention
        if watch is not None:
            keys = self.ranks.together(lambda: watch.copy() if self.ranks.first else ())
            copies[0] = replace(copies[0], keys=keys)
        return copies

    def moved(self, model: nn.Module) -> bool:
        """Whether some layer is no longer what was checked last, as where weights were averaged.

        A collective. Rows that stay on their ranks are taken for unmoved.
        """
        return any(
            isinstance(copy.layer, OutputLayer) and head.monitor.moved(copy.layer)
            for head, copy in zip(self.heads, self._copy_heads(model), strict=True)
        )

    def _copy_heads(self, model: nn.Module) -> list[Copy]:
        return [self.copy_one(head, model) for head in self.heads]

    def copy_one(self, head: Head, model: nn.Module) -> Copy:
        """Copy one layer; where that of one rank has NaN, no rank checks it. A collective."""
        layer = self.ranks.together(lambda: head.snapshot(model, self.ranks))
        for told in self.ranks.gather(layer if isinstance(layer, NoLayer) else None):
            if told is not None:
                return Copy(told)
        asked = head.labelling.asked(self.ranks, layer)
        return Copy(layer, head.domain(self.ranks), asked)

    @staticmethod
    def scattered(copies: Sequence[Copy]) -> bool:
        """Whether some layer's rows stay on their ranks, so that all have to check it."""
        return any(isinstance(copy.layer, Rows) for copy in copies)

    def left_domains(self) -> dict[str, str]:
        """By head, how inputs left an assumed domain; each is told once. A collective."""
        told = {head.name: head.left(self.ranks) for head in self.heads}
        return {name: text for name, text in told.items() if text is not None}

    def unseen(self, copies: Sequence[Copy]) -> dict[str, str]:
        """By what it is, why label sets or keys that are asked for aren't checked."""
        told = {
            f"keys of {keys.layer}": f"the keys of {keys.layer} aren't checked: {keys.reason}"
            for copy in copies
            for keys in copy.keys
            if keys.reason is not None
        }
        for head, copy in zip(self.heads, copies, strict=True):
            if head.labelling.asks and copy.asked is None:
                why = head.labelling.reason or (
                    "rows of so large a layer stay on their ranks"
                    if isinstance(copy.layer, Rows)
                    else "none was seen yet (inside of torch.compile and torch.func there is "
                    "nothing to see: give a function of the batch as label_sets)"
                )
                if not isinstance(copy.layer, NoLayer):
                    told[f"sets of {head.name}"] = f"no label sets of {head.name}: {why}"
        return told

    def pause(self) -> None:
        """Leave attention layers alone until :meth:`resume`."""
        if self.attention is not None:
            self.attention.pause()

    def resume(self) -> None:
        """Watch them again."""
        if self.attention is not None:
            self.attention.resume()

    def close(self) -> None:
        """Stop to observe inputs, targets and keys."""
        for head in self.heads:
            head.close()
        if self.attention is not None:
            self.attention.close()

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
        shares = _Shares(self.budget if limited else None, copies)
        findings: list[Finding] = []
        for head, copy in zip(self.heads, copies, strict=True):

            def check(head: Head = head, copy: Copy = copy) -> Finding:
                beside: dict[str, Any] = {}
                sets = None
                # The first rank knows the sets of all, and has the keys.
                if copy.keys:
                    beside["attention"] = count_keys(copy.keys, shares.next(), stop)
                if copy.asked is not None and ranks.first:
                    sets = head.examine_sets(copy, step, shares.next(), stop)
                    beside["label_sets"] = {} if sets is None else sets.numbers()
                if head.labelling.asks or self.attention is not None:
                    beside = ranks.broadcast(beside)
                return head.examine(copy, ranks, step, due, shares.next(), stop, beside, sets)

            findings.append(ranks.together(check))
        essential = [f.report.reuse.essential_seconds for f in findings if f.report is not None]
        if essential:
            self.budget.learn(_USEFUL * sum(essential))
        return tuple(findings)


class _Shares:
    """Divides the time that is left equally among what is still to be checked.

    Args:
        budget: how much time there is, or None for no limit.
        copies: what is to be checked.
    """

    def __init__(self, budget: OverheadBudget | None, copies: Sequence[Copy]) -> None:
        self._budget = budget
        asked = sum(copy.asked is not None for copy in copies)
        self._parts = len(copies) + asked + sum(bool(copy.keys) for copy in copies)

    def next(self) -> float | None:
        """Seconds for the next part; None for no limit."""
        left = math.inf if self._budget is None else self._budget.allowance
        parts, self._parts = self._parts, max(self._parts - 1, 1)
        return None if math.isinf(left) else left / parts
