"""Verify a layer again and again while it trains, each time from what was proven before."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike

from unarg_callback.assembly import report_of
from unarg_callback.continuity import Held, Shape
from unarg_callback.distributed.divided import (
    OTHER_LAYER,
    Agreement,
    Start,
    agree,
    checker_of,
    fingerprint,
    fingerprint_of,
    part_of,
    share,
)
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
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
_OTHER_DOMAIN = "The proofs were for another domain and were tried again."
_ONCE = (_FROM_NOTHING, _OTHER_DOMAIN, OTHER_LAYER)
"""What notes say that are about one update."""
_LONGEST_WAIT = 30_000
_REST = 1
"""Updates that are left out from one search for a larger lead of a class to the next."""
_SHALLOWEST = 64
"""Classes with the least leads, which are measured at every update."""


_Given: TypeAlias = tuple[Domain, float | None, str | None, str]
"""Domain, time limit, why there is nothing to start from, and the mark of what is kept."""


@dataclass(frozen=True, eq=False)
class _Base:
    """What an update starts from.

    Args:
        shape: of the layer as it is now.
        held: what the last update left, or None.
        same: whether the layer is as it was, bit by bit.
        notes: for the report.
    """

    shape: Shape
    held: Held | None
    same: bool
    notes: tuple[str, ...]

    @property
    def settled(self) -> bool:
        """Whether the last report answers for this layer too."""
        report = None if self.held is None else self.held.report
        return self.same and report is not None and not (report.status == Status.UNDECIDED).any()


class IncrementalVerifier:
    """Gives the verdicts of :func:`verify`, starting from the proofs of the last update.

    What an update costs follows how far the layer has moved: a bound on the change of each
    witness's lead settles most classes, certificates are solved anew over the rivals they had, and
    only what is left is searched or comes to the exact stage.

    With a ``time_limit`` an update does what fits, the most urgent first: classes whose proof no
    longer holds, then those that have waited longest. The rest is undecided and comes first next
    time; each update gets through at least one batch, so nothing waits for ever.

    A layer with other classes, features, names or excluded classes is another layer: the update
    starts from nothing, and the report says so in its notes. In another domain nothing is known,
    but everything held is tried first; the notes say that too.

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
        ranks: the processes that divide each update among them; None for this one alone. Each has
            to call :meth:`update`. All end with the same report, about the layer of rank 0, and
            if an update fails on one it fails on all of them. The attribute can be set later.

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
        ranks: Ranks | None = None,
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
        self.ranks = ranks
        self._held: Held | None = None
        self._why_cold: str | None = None

    @property
    def domain(self) -> Domain:
        """Where the layer's input may lie; an update can change it."""
        held = self._held
        # Proofs without a layer were loaded, and may be for another domain.
        return self._domain if held is None or held.layer is None else held.evidence.domain

    @property
    def last_report(self) -> Report | None:
        """What the last update found; None before the first, and after a state was loaded."""
        return None if self._held is None else self._held.report

    @property
    def layer(self) -> OutputLayer | None:
        """The layer of the last update; None before the first, and after a state was loaded."""
        return None if self._held is None else self._held.layer

    def update(
        self,
        layer: OutputLayer,
        *,
        time_limit: float | None = None,
        domain: Domain | str | float | ArrayLike | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Report:
        """Verify the layer as it is now.

        Args:
            layer: it is copied, so that it may change afterwards.
            time_limit: seconds after which no new batch starts; what is left is undecided. Among
                ranks that of rank 0 counts, and each looks at its own clock.
            domain: where the input may lie from now on, if that changes. That of rank 0 counts.
            stop: asked as often as the clock is looked at; once it says yes, the time is over.

        Raises:
            DomainError: the domain doesn't fit the layer, or can't be read.
            LayerError: the layer can't be read in this thread.
            UnargError: the time limit is out of range.
            RankError: the update failed on another rank.
        """
        begin = time.monotonic()
        ranks = Ranks() if self.ranks is None else self.ranks
        kept = ranks.together(
            lambda: self._updated(ranks, self._start(layer, time_limit, domain), begin, stop)
        )
        assert kept.report is not None
        # One assignment: whatever interrupts an update, layer, proofs and report belong together,
        # and where it fails on one rank all are as they were.
        self._held = kept
        self._why_cold = None
        return kept.report

    def reset(self) -> None:
        """Forget everything but the domain: the next update starts from nothing."""
        self._domain = self.domain
        self._held = self._why_cold = None

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: tensors and builtins, some 0.6 of the layer's size.

        It grows by what certificates take: about ``50 (d + 1)`` bytes a class out of reach.
        """
        return {} if self._held is None else self._held.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave.

        No proof in it is believed: the next update tries each again, in this verifier's domain. A
        damaged state is left out, and the next report's notes say so.
        """
        self.reset()
        if state is not None and (not isinstance(state, Mapping) or len(state)):
            try:
                self._held = Held.from_state(state)
            except UnargError as cause:
                self._why_cold = str(cause)

    @property
    def nbytes(self) -> int:
        """Bytes kept from one update to the next, a copy of the layer included."""
        return 0 if self._held is None else self._held.nbytes

    def _start(
        self,
        layer: OutputLayer,
        time_limit: float | None,
        domain: Domain | str | float | ArrayLike | None,
    ) -> Start[_Given]:
        """What this process brings to an update, if that can be used."""
        require_options(patience=None, time_limit=time_limit, exact=self.exact)
        if not isinstance(layer, OutputLayer):
            raise UnargError(f"layer is a {type(layer).__name__}; expected an OutputLayer")
        within = self.domain if domain is None else Domain.of(domain)
        layer = layer if self.device is None else layer.to(self.device)
        layer.require_plain_values()
        if self.ranks is None or self.ranks.alone:
            return Start(layer, "", (within, time_limit, self._why_cold, ""))
        held = "" if self._held is None else self._held.mark or _fingerprint(self._held)
        return Start(layer, held, (within, time_limit, self._why_cold, uuid.uuid4().hex))

    def _updated(
        self,
        ranks: Ranks,
        start: Start[_Given],
        begin: float,
        stop: Callable[[], bool] | None,
    ) -> Held:
        """What an update leaves behind. A collective."""
        common = agree(ranks, start)
        within, seconds, *_, mark = common.given
        with torch.no_grad(), plain_arithmetic(common.layer.device):
            base = self._base(common)
            if base.settled:
                return _again(base, begin)
            checker = checker_of(ranks, common.layer, within, self.min_lead, self.sweep_dtype)
            mine = part_of(ranks, checker.sweep.count)
            stages = Stages(checker, Limits(seconds, stop=stop), grace=True, mine=mine)
            reuse = share(ranks, stages, self._work(ranks, stages, base, begin))
            return replace(_kept(stages, base, reuse, begin), mark=mark)

    def _base(self, common: Agreement[_Given]) -> _Base:
        """What of the proofs that are held is of use for a layer and a domain."""
        layer, (within, _, reason, _) = common.layer, common.given
        held, shape = self._held, Shape.of(layer)
        if common.others:
            reason = f"rank {common.others[0]} held other proofs than rank 0"
        elif held is not None:
            reason = held.shape.difference(shape)
        notes = common.notes
        if held is None or reason is not None:
            notes = notes if reason is None else (*notes, f"{_FROM_NOTHING}: {reason}.")
            return _Base(shape, None, False, notes)
        if not held.is_for(within):
            return _Base(shape, held.proposals(within), False, (*notes, _OTHER_DOMAIN))
        held = held.to(layer.device)
        return _Base(shape, held, _same_values(held.layer, layer), notes)

    def _work(self, ranks: Ranks, stages: Stages, base: _Base, begin: float) -> Reuse:
        """Decide this process's part of the classes. A collective."""
        held = base.held
        if held is None:
            reuse = Reuse(essential_seconds=time.monotonic() - begin)
            from_scratch(stages, self.patience, self.exact, ranks)
        else:
            reuse = self._renew(held, stages, begin, base.same)
        if self.deepen:
            count = len(stages.mine)
            part = -(-self.deepen * int(stages.mine.sum()) // max(count, 1))
            rested = torch.ones(count, dtype=torch.bool)
            if held is not None:
                rested = torch.from_numpy(held.resting == 0)
            stages.deepen(part, rested)
        return reuse

    def _renew(self, held: Held, stages: Stages, begin: float, same: bool) -> Reuse:
        renewal = Renewal(stages, held.evidence, self.patience, self.exact)
        if not held.is_for(stages.checker.domain):
            renewal.refit()
        elif same:
            renewal.take_over()
        elif held.layer is not None:
            renewal.screen(held.layer, stages.checker.layer)
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


def _kept(stages: Stages, base: _Base, reuse: Reuse, begin: float) -> Held:
    """What an update leaves behind, its report included."""
    held, count = base.held, stages.count
    evidence = stages.evidence(None if held is None else held.evidence)
    undecided = evidence.status == Status.UNDECIDED
    zero = np.zeros(count, dtype=np.int16)
    age = np.minimum((zero if held is None else held.age) + 1, _LONGEST_WAIT)
    waiting = np.minimum((zero if held is None else held.waiting) + 1, _LONGEST_WAIT)
    resting = np.zeros(count, np.int8) if held is None else held.resting
    # Who was tried to the end has had its turn, whatever came of it.
    tried = [t for t, outcome in stages.outcomes.items() if outcome.reason != DEADLINE]
    waiting[tried] = 0
    age = np.where(undecided, age, 0).astype(np.int16)
    return Held(
        layer=stages.checker.layer.copy(),
        shape=base.shape,
        evidence=evidence,
        age=age,
        waiting=np.where(undecided, waiting, 0).astype(np.int16),
        failed=undecided & stages.failed.numpy(),
        resting=np.where(stages.deepened.numpy(), _REST, (resting - 1).clip(0)).astype(np.int8),
        report=report_of(
            stages, evidence, time.monotonic() - begin, age=age, reuse=reuse, notes=base.notes
        ),
    )


def _again(base: _Base, begin: float) -> Held:
    """The last report answers for this layer too."""
    assert base.held is not None
    assert base.held.report is not None
    report = base.held.report
    seconds = time.monotonic() - begin
    reuse = Reuse(warm=True, kept=report.counts["argmaxable"], essential_seconds=seconds)
    lasting = [note for note in report.notes if not any(once in note for once in _ONCE)]
    notes = (*base.notes, *lasting)
    return replace(base.held, report=replace(report, seconds=seconds, reuse=reuse, notes=notes))


def _fingerprint(held: Held) -> str:
    """Tell apart what two ranks hold."""
    layer = "" if held.layer is None else fingerprint_of(held.layer)
    known = {"lead": held.evidence.lead, "layer": layer, "report": held.report is None}
    return fingerprint({**held.state_dict(), **known})


def _same_values(one: OutputLayer | None, other: OutputLayer) -> bool:
    if (
        one is None
        or one.weight.dtype != other.weight.dtype
        or not torch.equal(one.weight, other.weight)
    ):
        return False
    if one.bias is None or other.bias is None:
        return one.bias is other.bias
    return one.bias.dtype == other.bias.dtype and torch.equal(one.bias, other.bias)
