"""Verify a layer again and again while it trains, each time from what was proven before."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from unarg_callback.assembly import report_of
from unarg_callback.continuity import Held, Shape
from unarg_callback.errors import UnargError
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.report import Report, Reuse
from unarg_callback.search.exact import DEADLINE
from unarg_callback.search.limits import Limits
from unarg_callback.search.renewal import Renewal
from unarg_callback.search.settle import ExactName
from unarg_callback.search.stages import Stages
from unarg_callback.verification import from_scratch, require_options

_FROM_NOTHING = "Started from nothing"
_LONGEST_WAIT = 30_000
_REST = 1
"""Updates that are left out from one search for a larger lead of a class to the next."""
_SHALLOWEST = 64
"""Classes with the least leads, which are measured at every update."""


class IncrementalVerifier:
    """Gives the verdicts of :func:`verify`, starting from the proofs of the last update.

    What an update costs follows how far the layer has moved: a bound on the change of each
    witness's lead settles most classes, certificates are solved anew over the rivals they had, and
    only what is left is searched or comes to the exact stage.

    With a ``time_limit`` an update does what fits, the most urgent first: classes whose proof no
    longer holds, then those that have waited longest. The rest is undecided and comes first next
    time; each update gets through at least one batch, so nothing waits for ever.

    A layer with other classes, features, names or excluded classes is another layer: the update
    starts from nothing, and the report says so in its notes.

    Args:
        domain: as for :func:`verify`.
        patience: likewise.
        min_lead: likewise.
        device: likewise.
        sweep_dtype: likewise.
        exact: likewise.
        deepen: for how many classes each update looks for a witness with a larger lead, the
            shallowest first, once all verdicts are in and if there is time. Deep witnesses last
            longer, and their leads tell how far a class is from being unargmaxable.

    Raises:
        DomainError: the domain can't be read.
        UnargError: another argument is out of range.

    >>> verifier = IncrementalVerifier("box:10")
    >>> rows = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.1, 0.0]])
    >>> verifier.update(OutputLayer(rows)).counts["unargmaxable"]
    1
    >>> rows[3] = torch.tensor([1.0, 2.0])
    >>> report = verifier.update(OutputLayer(rows))
    >>> report.counts["unargmaxable"], report.reuse.warm
    (0, True)
    """

    def __init__(
        self,
        domain: Domain | str | float | ArrayLike = "box:100",
        *,
        patience: int | None = None,
        min_lead: float | None = None,
        device: torch.device | str | None = None,
        sweep_dtype: torch.dtype = torch.float32,
        exact: ExactName = "interior_point",
        deepen: int = 0,
    ) -> None:
        require_options(
            patience=patience,
            time_limit=None,
            exact=exact,
            min_lead=min_lead,
            sweep_dtype=sweep_dtype,
        )
        if isinstance(deepen, bool) or not isinstance(deepen, int) or deepen < 0:
            raise UnargError(f"deepen is {deepen!r}; expected a whole number from 0")
        self._domain = Domain.of(domain)
        self.patience = patience
        self.min_lead = min_lead
        self.device = device
        self.sweep_dtype = sweep_dtype
        self.exact: ExactName = exact
        self.deepen = deepen
        self._held: Held | None = None
        self._why_cold: str | None = None

    @property
    def domain(self) -> Domain:
        """Where the layer's input may lie."""
        return self._domain

    @property
    def last_report(self) -> Report | None:
        """What the last update found; None before the first, and after a state was loaded."""
        return None if self._held is None else self._held.report

    def update(self, layer: OutputLayer, *, time_limit: float | None = None) -> Report:
        """Verify the layer as it is now.

        Args:
            layer: it is copied, so that it may change afterwards.
            time_limit: seconds after which no new batch starts; what is left is undecided.

        Raises:
            DomainError: the domain doesn't fit the layer.
            LayerError: the layer can't be read in this thread.
            UnargError: the time limit is out of range.
        """
        begin = time.monotonic()
        require_options(patience=None, time_limit=time_limit, exact=self.exact)
        if not isinstance(layer, OutputLayer):
            raise UnargError(f"layer is a {type(layer).__name__}; expected an OutputLayer")
        layer = layer if self.device is None else layer.to(self.device)
        layer.require_plain_values()
        held, reason, shape = self._held, self._why_cold, Shape.of(layer)
        if held is not None:
            reason = held.shape.difference(shape)
            held = held.to(layer.device) if reason is None else None
        notes = () if reason is None else (f"{_FROM_NOTHING}: {reason}.",)
        with torch.no_grad(), plain_arithmetic(layer.device):
            same = held is not None and held.layer is not None and _same_values(held.layer, layer)
            if same and held is not None and _settled(held.report):
                return self._again(held, begin)
            checker = Checker(layer, self.domain, self.min_lead, self.sweep_dtype)
            stages = Stages(checker, Limits(time_limit), grace=True)
            if held is None:
                reuse = Reuse(essential_seconds=time.monotonic() - begin)
                from_scratch(stages, self.patience, self.exact)
            else:
                reuse = self._renew(held, layer, stages, begin, same)
            return self._keep(stages, shape, held, reuse, notes, begin)

    def reset(self) -> None:
        """Forget everything: the next update starts from nothing."""
        self._held = self._why_cold = None

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: tensors and builtins, some 0.6 of the layer's size.

        It grows by what certificates take: about ``50 (d + 1)`` bytes a class out of reach.
        """
        return {} if self._held is None else self._held.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave.

        No proof in it is believed: the next update tries each again. A state that can't be used
        (damaged, or for another domain) is left out, and the next report's notes say so.
        """
        self.reset()
        if state is not None and (not isinstance(state, Mapping) or len(state)):
            try:
                self._held = Held.from_state(state, self._domain)
            except UnargError as cause:
                self._why_cold = str(cause)

    @property
    def nbytes(self) -> int:
        """Bytes kept from one update to the next, a copy of the layer included."""
        return 0 if self._held is None else self._held.nbytes

    def _renew(
        self, held: Held, layer: OutputLayer, stages: Stages, begin: float, same: bool
    ) -> Reuse:
        renewal = Renewal(stages, held.evidence, self.patience, self.exact)
        if same:
            renewal.take_over()
        elif held.layer is not None:
            renewal.screen(held.layer, layer)
        essential = time.monotonic() - begin
        renewal.run(held.urgency)
        renewal.measure(_SHALLOWEST)
        return Reuse(
            warm=True,
            kept=renewal.kept,
            evaluated=renewal.evaluated,
            recertified=renewal.recertified,
            searched=renewal.searched,
            solved=renewal.solved,
            essential_seconds=essential,
        )

    def _keep(
        self,
        stages: Stages,
        shape: Shape,
        held: Held | None,
        reuse: Reuse,
        notes: tuple[str, ...],
        begin: float,
    ) -> Report:
        resting = np.zeros(stages.count, np.int8) if held is None else held.resting
        if self.deepen:
            stages.deepen(self.deepen, torch.from_numpy(resting == 0))
        evidence = stages.evidence(None if held is None else held.evidence)
        undecided = evidence.status == Status.UNDECIDED
        zero = np.zeros(stages.count, dtype=np.int16)
        age = np.minimum((zero if held is None else held.age) + 1, _LONGEST_WAIT)
        waiting = np.minimum((zero if held is None else held.waiting) + 1, _LONGEST_WAIT)
        # Who was tried to the end has had its turn, whatever came of it.
        tried = [t for t, outcome in stages.outcomes.items() if outcome.reason != DEADLINE]
        waiting[tried] = 0
        age = np.where(undecided, age, 0).astype(np.int16)
        report = report_of(
            stages, evidence, time.monotonic() - begin, age=age, reuse=reuse, notes=notes
        )
        # One assignment: whatever interrupts an update, layer, proofs and report belong together.
        self._held = Held(
            layer=stages.checker.layer.copy(),
            shape=shape,
            evidence=evidence,
            age=age,
            waiting=np.where(undecided, waiting, 0).astype(np.int16),
            failed=undecided & stages.failed.numpy(),
            resting=np.where(stages.deepened.numpy(), _REST, (resting - 1).clip(0)).astype(np.int8),
            report=report,
        )
        self._why_cold = None
        return report

    def _again(self, held: Held, begin: float) -> Report:
        """The last report answers for this layer too."""
        assert held.report is not None
        kept = held.report.counts["argmaxable"]
        seconds = time.monotonic() - begin
        reuse = Reuse(warm=True, kept=kept, essential_seconds=seconds)
        notes = tuple(n for n in held.report.notes if not n.startswith(_FROM_NOTHING))
        report = replace(held.report, seconds=seconds, reuse=reuse, notes=notes)
        self._held = replace(held, report=report)
        return report


def _settled(report: Report | None) -> bool:
    """Whether a report has a verdict for every class."""
    return report is not None and not (report.status == Status.UNDECIDED).any()


def _same_values(one: OutputLayer, other: OutputLayer) -> bool:
    if one.weight.dtype != other.weight.dtype or not torch.equal(one.weight, other.weight):
        return False
    if one.bias is None or other.bias is None:
        return one.bias is other.bias
    return one.bias.dtype == other.bias.dtype and torch.equal(one.bias, other.bias)
