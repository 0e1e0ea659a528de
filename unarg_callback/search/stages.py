"""The stages of one check: what each finds is put together here, to be reported and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from unarg_callback.geometry.certificates import CertificatePart, CertificateParts, Certificates
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.compact import CompactPoints
from unarg_callback.geometry.evidence import Evidence
from unarg_callback.geometry.proof import Status
from unarg_callback.search.deepen import deepen
from unarg_callback.search.exact import Outcome
from unarg_callback.search.frame import Frame, whitening_frame
from unarg_callback.search.limits import Limits
from unarg_callback.search.reflect import SearchState, beginning, braid_reflect
from unarg_callback.search.resolve import slim
from unarg_callback.search.settle import ExactName, settle
from unarg_callback.search.twins import Twins, find_twins
from unarg_callback.search.working_set import Neighbours, exact_cost

_MOST_REFLECTIONS = 100
_TWINS = 1024
_STARTS = 4096


class Stages:
    """What one check has found so far; classes are positions in ``active``.

    Args:
        checker: decides.
        limits: when to stop.
        grace: whether the exact stage may try one batch past the deadline.
        mine: (A,) bool on the CPU, classes that are to be decided here; None for all. The others
            are rivals like any, and what is found about them by the way is kept.
    """

    def __init__(
        self, checker: Checker, limits: Limits, *, grace: bool = False, mine: Tensor | None = None
    ) -> None:
        self.checker, self.limits, self._grace = checker, limits, grace
        self.count = checker.sweep.count
        self.mine = torch.ones(self.count, dtype=torch.bool) if mine is None else mine
        """(A,) bool on the CPU, classes that are to be decided here."""
        self.common = torch.zeros(self.count, dtype=torch.bool)
        """(A,) bool on the CPU, classes of which every rank knows what is known here."""
        self.presumed = torch.ones(self.count, dtype=torch.bool)
        """(A,) bool on the CPU, which of the others are likely to be argmaxable: most are."""
        self.state = SearchState.empty(checker)
        self.outcomes: dict[int, Outcome] = {}
        """Certificates, witnesses that the sweep's dtype can't hold, and reasons for neither."""
        self.twins = Twins.none(self.count)
        self._twins_known = False
        self.solved = torch.zeros(self.count, dtype=torch.bool)
        """(A,) bool on the CPU, classes whose witness the exact stage found."""
        self.measured = torch.ones(self.count, dtype=torch.bool)
        """(A,) bool on the CPU, False where the lead is only what it can't have fallen below."""
        self.moved = torch.ones(self.count, dtype=torch.bool)
        """(A,) bool on the CPU, False where the point is that of the check before."""
        self.deepened = torch.zeros(self.count, dtype=torch.bool)
        """(A,) bool on the CPU, classes for which a larger lead was looked for."""
        self.failed = torch.zeros(self.count, dtype=torch.bool)
        """(A,) bool on the CPU, classes whose earlier proof was found not to hold."""

    @cached_property
    def frame(self) -> Frame:
        """The whitening frame of the layer."""
        return whitening_frame(self.checker.sweep)

    @cached_property
    def neighbours(self) -> Neighbours:
        """Nearest rows in that frame."""
        return Neighbours(self.checker.sweep, self.frame)

    @property
    def potential(self) -> Tensor:
        """(A,) bool on the CPU, classes that the search left unproven."""
        return ~self.state.proven | self.solved

    @property
    def _rivals(self) -> Tensor:
        """(A,) bool on the CPU, who comes first as a rival: classes that are argmaxable."""
        return self.state.proven | (self.presumed & ~self.mine)

    def todo(self) -> Tensor:
        """(n,) int64 on the CPU, classes to be decided here without an accepted proof."""
        done = self.state.proven | ~self.mine
        done[[target for target, outcome in self.outcomes.items() if outcome.settled]] = True
        return (~done).nonzero().squeeze(1)

    def find_twins(self) -> None:
        """Look for classes with equal rows, once."""
        if not self._twins_known:
            self.twins = find_twins(self.checker.layer)
            self._twins_known = True

    def read_off_twins(self) -> None:
        """Certify what has an equal row with at least its bias, or loses by its bias alone."""
        self.find_twins()
        self._certify_by(self.twins.beaten_by)
        sweep = self.checker.sweep
        lost = sweep.raised(torch.arange(self.count, device=sweep.device)).cpu()
        if bool(lost.any()):
            # Those that Ends.within tells of lose everywhere to the class of the highest bias.
            highest = int(sweep.biases(slice(None)).argmax())
            self._certify_by(torch.where(lost, highest, -1))

    def _certify_by(self, beaten_by: Tensor) -> None:
        """Offer one rival as the certificate of each class: (A,) int64 on the CPU, or -1."""
        beaten = beaten_by >= 0
        beaten &= torch.isin(torch.arange(self.count), self.todo())
        for targets in beaten.nonzero().squeeze(1).split(_TWINS):
            supports = beaten_by[targets]
            for target, support, bound in self._accepted(targets, supports):
                rivals = np.array([support], dtype=np.int64)
                self.outcomes[target] = Outcome(
                    target, lead=bound, support=rivals, weight=np.ones(1)
                )
                self.limits.advance(1)

    def _accepted(self, targets: Tensor, supports: Tensor) -> Iterator[tuple[int, int, float]]:
        """Pairs of a class and its twin that the checker accepts, with the bound."""
        if self.checker.domain.is_free:
            for target, support in zip(targets.tolist(), supports.tolist(), strict=True):
                one = np.array([support], dtype=np.int64)
                accepted, bound = self.checker.certificate(target, one, np.ones(1))
                if accepted:
                    yield target, support, bound
            return
        device = self.checker.layer.device
        ones = torch.ones(len(targets), 1, dtype=torch.float64, device=device)
        accepted_all, bounds = self.checker.certificates(
            targets.to(device), supports.to(device)[:, None], ones
        )
        for at in accepted_all.nonzero().squeeze(1).tolist():
            yield int(targets[at]), int(supports[at]), float(bounds[at])

    def start(self, targets: Tensor) -> None:
        """Begin the search for n classes at their whitened rows.

        Args:
            targets: (n,) int64 on the CPU.
        """
        for part in targets.split(_STARTS):
            self.state.point[part.to(self.state.point.device)] = self.beginning(part)
        self.state.rival[targets] = -1

    def beginning(self, targets: Tensor) -> Tensor:
        """(n, d) in the sweep's dtype, where the search for (n,) targets on the CPU begins."""
        return beginning(self.checker, self.frame, targets.to(self.checker.layer.device))

    def search(
        self,
        targets: Tensor,
        patience: int | None,
        *,
        tried: bool = False,
        most: int = _MOST_REFLECTIONS,
    ) -> None:
        """Braid Reflect on whitened rows.

        Args:
            targets: (n,) int64 on the CPU.
            patience: most reflections a class, or None: while they pay.
            tried: whether the points that stand in the state were tried on this layer.
            most: most reflections a class while they pay.
        """
        if not len(targets):
            return
        braid_reflect(
            self.checker,
            self.frame,
            self.state,
            targets,
            patience=most if patience is None else patience,
            worthwhile=self._sweeps_pay() if patience is None else None,
            limits=self.limits,
            tried=tried,
        )

    def settle(
        self,
        targets: Tensor,
        way: ExactName,
        supports: CertificateParts | None = None,
        *,
        most: int | None = None,
    ) -> None:
        """Settle n classes exactly.

        Args:
            targets: (n,) int64 on the CPU.
            way: which exact way comes first.
            supports: of earlier certificates, to start with.
            most: how many to solve for; the others are settled by what these share, or not at all.
        """
        if not len(targets):
            return
        found = settle(
            self.checker,
            self.frame,
            targets,
            self._rivals,
            way=way,
            limits=self.limits,
            neighbours=self.neighbours,
            supports=supports,
            points=self.state.point,
            begin=self.beginning,
            grace=self._grace,
            most=most,
        )
        self._grace = False
        self._keep_witnesses(found)
        if not self.checker.domain.is_free:
            found.update(slim(self.checker, found))
        self.outcomes.update(found)

    def _keep_witnesses(self, found: dict[int, Outcome]) -> None:
        """Move exact witnesses that survive rounding to the sweep's dtype into the state."""
        targets = [target for target, outcome in found.items() if outcome.point is not None]
        if not targets:
            return
        points = torch.stack([p for t in targets if (p := found[t].point) is not None])
        rounded = self.checker.fit(points)
        check = self.checker.witnesses(torch.tensor(targets), rounded)
        at = check.accepted.nonzero().squeeze(1)
        own = torch.tensor(targets)[at.cpu()]
        self.state.point[own.to(self.state.point.device)] = rounded[at]
        self.state.lead[own] = check.lead[at].cpu()
        self.state.proven[own] = True
        self.solved[own] = True
        for target in own.tolist():
            del found[target]

    def deepen(self, count: int, rested: Tensor) -> None:
        """Look for witnesses with larger leads, for the shallowest classes. Over a box only.

        Args:
            count: most classes.
            rested: (A,) bool on the CPU, classes that may be looked at again.
        """
        if self.checker.domain.is_free or not count or self.limits.reached():
            return
        state = self.state
        shallow = (state.proven & self.mine & self.measured & rested).nonzero().squeeze(1)
        shallow = shallow[state.lead[shallow].argsort(stable=True)[:count]]
        if not len(shallow):
            return
        found = deepen(
            self.checker,
            self.frame,
            self.neighbours,
            shallow,
            state.lead[shallow],
            self._rivals,
            limits=self.limits,
        )
        state.point[found.targets.to(state.point.device)] = found.points
        state.lead[found.targets] = found.lead
        self.moved[found.targets] = True
        self.deepened[shallow] = True
        self.common[shallow] = False

    def _sweeps_pay(self) -> Callable[[int, int], bool]:
        """Compare a sweep's yield with what the exact stage would cost for the same classes."""
        ratio = exact_cost(self.checker.layer.dim, self.count)
        return lambda gained, tried: gained * ratio >= tried

    def reasons(self) -> dict[str, int]:
        """Why classes that were tried are undecided, and how many."""
        reasons: dict[str, int] = {}
        for target in self.todo().tolist():
            if target in self.outcomes:
                reason = self.outcomes[target].reason
                reasons[reason] = reasons.get(reason, 0) + 1
        return reasons

    def evidence(self, earlier: Evidence | None = None) -> Evidence:
        """What has been proven, and what the next check can try again.

        Args:
            earlier: of the check before; its certificates are kept for classes undecided now.
        """
        state, checker = self.state, self.checker
        status = np.where(state.proven.numpy(), Status.ARGMAXABLE, Status.UNDECIDED).astype(np.int8)
        lead = state.lead.numpy().copy()
        exact: dict[int, Tensor] = {}
        parts: dict[int, CertificatePart] = {}
        for target, outcome in self.outcomes.items():
            if outcome.point is not None:
                status[target] = Status.ARGMAXABLE
                exact[target] = outcome.point
            elif outcome.support is not None and outcome.weight is not None:
                status[target] = Status.UNARGMAXABLE
                parts[target] = (outcome.support, outcome.weight)
            else:
                continue
            lead[target] = outcome.lead
        lead[status == Status.UNDECIDED] = np.nan
        if earlier is not None:
            undecided = np.flatnonzero(status == Status.UNDECIDED).tolist()
            parts.update(earlier.certificates.parts(undecided))
        moved = self.moved.nonzero().squeeze(1)
        if earlier is None or len(moved) == self.count:
            unit = 1.0 if checker.grid is None else checker.grid.unit
            points = CompactPoints.pack(state.point, exact, unit)
        else:
            there = state.point[moved.to(state.point.device)]
            points = earlier.points.replaced(moved, there, exact)
        return Evidence(
            active=checker.layer.active.numpy(),
            classes=checker.layer.classes,
            domain=checker.domain,
            min_lead=checker.min_lead,
            status=status,
            lead=lead,
            points=points,
            certificates=Certificates.of(parts),
        )
