"""Prove again, for a layer that has moved, what was proven for it before.

Witnesses that the screen can't settle are evaluated; those that lost are searched from where they
were. Certificates are solved anew over their own rivals, and some are offered to every class that
is still open. Only what is left comes to the exact stage.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unarg_callback.geometry.certificates import CertificateParts
from unarg_callback.geometry.evidence import Evidence
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.search.exact import Outcome
from unarg_callback.search.reflect import evaluate
from unarg_callback.search.resolve import resolve
from unarg_callback.search.screen import screen
from unarg_callback.search.settle import ExactName
from unarg_callback.search.sharing import share
from unarg_callback.search.simplex import barycentric_weights, share_simplex
from unarg_callback.search.stages import Stages

_SLICE = 1024
"""Classes that go through all stages before the next ones do, where time is limited."""
_URGENT = 64
"""Of these, classes that come to the exact stage before the next ones do."""
_SAMPLE, _MOST = 256, 0.9
"""If more than this share of so many witnesses is lost, none is tried."""
_MEASURED = 96
_MEASUREMENTS = 1
"""Classes to measure at once, and how many times at most."""
_FITTED = 8192
"""Points that are moved into another domain at once."""
_LENDERS = 4
"""Certificates that are offered to all open classes."""


class Renewal:
    """One warm check; classes are positions in ``active``.

    Args:
        stages: of the layer as it is now.
        evidence: of the layer as it was, for the same classes and features.
        patience: most reflections a class, or None.
        exact: which exact way comes first.
    """

    def __init__(
        self, stages: Stages, evidence: Evidence, patience: int | None, exact: ExactName
    ) -> None:
        self.stages, self.evidence = stages, evidence
        self.patience, self.exact = patience, exact
        self.kept = self.evaluated = self.recertified = self.searched = self.solved = 0
        state = stages.state
        points, self._exact_points = evidence.points.unpack(state.point.dtype)
        state.point = points.to(state.point.device)
        stages.presumed = torch.from_numpy(evidence.status) != Status.UNARGMAXABLE
        self._twins_known = self._afresh = False

    def refit(self) -> None:
        """Move into the domain what lies outside: the evidence is for another one."""
        checker, points = self.stages.checker, self.stages.state.point
        for part in points.split(_FITTED):
            exact = part.double()
            inside = torch.isfinite(exact) & (exact >= checker.low) & (exact <= checker.high)
            outside = ~inside.all(1)
            part[outside] = checker.fit(exact[outside])
        for target, point in list(self._exact_points.items()):
            low, high = checker.low.cpu(), checker.high.cpu()
            if not bool(((point >= low) & (point <= high)).all()):
                del self._exact_points[target]

    def take_over(self) -> None:
        """Keep every proof: the layer is the same, bit by bit."""
        stages, state, evidence = self.stages, self.stages.state, self.evidence
        status = torch.from_numpy(evidence.status)
        lead = torch.from_numpy(evidence.lead)
        argmaxable = (status == Status.ARGMAXABLE) & stages.mine
        proven = argmaxable.clone()
        proven[list(self._exact_points)] = False
        state.proven |= proven
        state.lead[proven] = lead[proven]
        stages.moved[proven] = False
        for target, point in self._exact_points.items():
            if argmaxable[target]:
                stages.outcomes[target] = Outcome(target, point, float(lead[target]))
        certified = ((status == Status.UNARGMAXABLE) & stages.mine).nonzero().squeeze(1).tolist()
        for target, (support, weight) in evidence.certificates.parts(certified).items():
            stages.outcomes[target] = Outcome(
                target, lead=float(lead[target]), support=support.astype(np.int64), weight=weight
            )
        self.kept, self.recertified = int(proven.sum()), len(certified)
        stages.limits.advance(self.kept + self.recertified)

    def screen(self, old: OutputLayer, new: OutputLayer) -> None:
        """Keep the witnesses that the change of the layer can't have hurt."""
        state = self.stages.state
        was = torch.from_numpy(self.evidence.status) == Status.ARGMAXABLE
        was &= self.stages.mine
        was[list(self._exact_points)] = False
        targets = was.nonzero().squeeze(1)
        leads = torch.from_numpy(self.evidence.lead)[targets]
        above = self.stages.checker.min_lead
        everyone = len(targets) == len(was)
        points = state.point if everyone else state.point[targets.to(state.point.device)]
        lower = screen(old, new, targets, points, leads, above)
        kept = lower > above
        state.proven[targets[kept]] = True
        state.lead[targets[kept]] = lower[kept]
        self.stages.measured[targets[kept]] = False
        self.stages.moved[targets[kept]] = False
        self.kept = int(kept.sum())
        self.stages.limits.advance(self.kept)

    def run(self, urgency: Tensor) -> None:
        """Do the rest, the most urgent first if there is a limit.

        Args:
            urgency: (A,) int64.
        """
        left = self.stages.todo()
        self._afresh = self._lost_most(left)
        left = left[torch.argsort(urgency[left], descending=True, stable=True)]
        certified = torch.from_numpy(self.evidence.certificates.targets)
        has = torch.isin(left, certified)
        if bool(has.any()):
            self._find_twins()
            # All of them first: they cost little, and are lost if the time ends before.
            self._recertify(self._open(left[has]))
            left = left[~has | torch.isin(left, self.stages.todo())]
        size = _SLICE if self.stages.limits.limited else max(len(left), 1)
        for at, part in enumerate(left.split(size) if len(left) else ()):
            if at and self.stages.limits.reached():
                break
            self._slice(part)
        if not bool(self.stages.state.proven[self.stages.mine].all()):
            self._find_twins()

    def _lost_most(self, left: Tensor) -> bool:
        """Whether hardly any witness holds, by a sample: then rows are better starts."""
        held = ~torch.isin(left, torch.from_numpy(self.evidence.certificates.targets))
        sample = left[held][:: max(1, int(held.sum()) // _SAMPLE)]
        if len(sample) < _SAMPLE:
            return False
        evaluate(self.stages.checker, self.stages.state, sample, self.stages.limits)
        return len(self._open(sample)) > _MOST * len(sample)

    def _find_twins(self) -> None:
        if not self._twins_known:
            self.stages.read_off_twins()
            self._twins_known = True

    def _slice(self, targets: Tensor) -> None:
        stages = self.stages
        certified = torch.from_numpy(self.evidence.certificates.targets)
        has = torch.isin(targets, certified)
        if not self._afresh:
            self._evaluate(targets[~has])
        if len(self._open(targets)):
            self._find_twins()
        fresh = self._open(targets if self._afresh else targets[has])
        if len(fresh):
            stages.start(fresh)
            stages.search(fresh, self.patience)
        lost = self._open(targets[~has][: 0 if self._afresh else None])
        stages.failed[self._open(targets)] = True
        stages.search(lost, self.patience, tried=True)
        self.searched += len(fresh) + len(lost)
        self._share(self._open(targets))
        left = self._open(targets)
        self.solved += len(left)
        # Under a limit a batch is drawn from the most urgent alone.
        for part in left.split(_URGENT if stages.limits.limited else max(len(left), 1)):
            if len(part):
                stages.settle(part, self.exact, self.evidence.certificates.parts(part.tolist()))
            if stages.limits.reached():
                return

    def _open(self, targets: Tensor) -> Tensor:
        todo = self.stages.todo()
        return targets[torch.isin(targets, todo)]

    def _evaluate(self, targets: Tensor) -> None:
        """Try witnesses again where they are."""
        exact = [t for t in targets.tolist() if t in self._exact_points]
        if exact:
            self._evaluate_exact(exact)
        evaluate(self.stages.checker, self.stages.state, self._open(targets), self.stages.limits)
        self.evaluated += len(targets)

    def _evaluate_exact(self, targets: list[int]) -> None:
        checker = self.stages.checker
        points = torch.stack([self._exact_points[t] for t in targets]).to(checker.layer.device)
        found = checker.witnesses(torch.tensor(targets), points)
        for at in found.accepted.nonzero().squeeze(1).tolist():
            target = targets[at]
            self.stages.outcomes[target] = Outcome(target, points[at], float(found.lead[at]))
        self.stages.limits.advance(int(found.accepted.sum()))

    def _recertify(self, targets: Tensor) -> None:
        """Solve certificates anew over the supports that they have."""
        if not len(targets):
            return
        stages = self.stages
        parts = self.evidence.certificates.parts(targets.tolist())
        if stages.checker.domain.is_free:
            found = self._recheck(parts)
        else:
            found = resolve(stages.checker, parts, stages.limits)
        stages.outcomes.update(found)
        self.recertified += len(found)
        stages.limits.advance(len(found))

    def _recheck(self, parts: CertificateParts) -> dict[int, Outcome]:
        """Look whether simplices of the free domain still hold their class, one by one."""
        checker, limits = self.stages.checker, self.stages.limits
        found: dict[int, Outcome] = {}
        for target, (rivals, weight) in parts.items():
            if found and limits.reached():
                break
            support = rivals.astype(np.int64)
            accepted, bound = checker.certificate(target, support, weight)
            if accepted:
                # The proof is the support; the weights that it determines have changed with it.
                weight = barycentric_weights(checker, target, support)
                found[target] = Outcome(target, lead=bound, support=support, weight=weight)
        return found

    def _share(self, targets: Tensor) -> None:
        """Offer a few of the certificates that hold, far from each other, to open classes."""
        stages = self.stages
        lenders = [t for t, outcome in stages.outcomes.items() if outcome.support is not None]
        if not len(targets) or not lenders:
            return
        one_for_all = share_simplex if stages.checker.domain.is_free else share
        for lender in stages.neighbours.densest(torch.tensor(lenders), _LENDERS).tolist():
            if stages.limits.reached():
                return
            shared = one_for_all(stages.checker, stages.outcomes[lender], targets)
            stages.outcomes.update({outcome.target: outcome for outcome in shared})
            stages.limits.advance(len(shared))
            targets = self._open(targets)

    def measure(self, count: int) -> None:
        """Evaluate the shallowest witnesses that were kept by a bound on their lead alone.

        Stops when ``count`` classes are known to have shallower leads than all that are left.

        Args:
            count: how many of the shallowest matter.
        """
        stages, state = self.stages, self.stages.state
        for _ in range(_MEASUREMENTS):
            proven = state.proven & stages.mine
            bounded = (proven & ~stages.measured).nonzero().squeeze(1)
            known = state.lead[proven & stages.measured]
            if not len(bounded) or stages.limits.reached():
                return
            lowest = bounded[state.lead[bounded].argsort()[:_MEASURED]]
            if len(known) >= count and float(known.kthvalue(count).values) <= float(
                state.lead[lowest[0]]
            ):
                return
            points = state.point[lowest.to(state.point.device)]
            found = stages.checker.witnesses(lowest, points)
            # The bound and the evaluation are independent; where they disagree nothing is proven.
            state.proven[lowest] = found.accepted.cpu()
            state.lead[lowest] = torch.maximum(state.lead[lowest], found.lead.cpu())
            stages.measured[lowest] = True
