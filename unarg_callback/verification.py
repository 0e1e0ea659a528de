"""Verify a layer: search for witnesses, settle the rest exactly, and keep what the checker accepts.

This is the paper's combined algorithm (Grivas et al. 2022, figure 4) over all classes at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from tqdm import tqdm

from unarg_callback.errors import UnargError
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Proofs, Status
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.report import Report
from unarg_callback.search.exact import Outcome
from unarg_callback.search.frame import Frame, whitening_frame
from unarg_callback.search.limits import Limits
from unarg_callback.search.reflect import SearchState, braid_reflect, fit_to_domain
from unarg_callback.search.settle import ExactName, settle
from unarg_callback.search.twins import Twins, find_twins
from unarg_callback.search.working_set import working_set_size

_MOST_REFLECTIONS = 100
_TWINS = 1024
_BEYOND_ANY_BOX = 1e6


def verify(
    layer: OutputLayer,
    domain: Domain | str | float | ArrayLike = "box:100",
    *,
    patience: int | None = None,
    time_limit: float | None = None,
    min_lead: float | None = None,
    device: torch.device | str | None = None,
    sweep_dtype: torch.dtype = torch.float32,
    exact: ExactName = "interior_point",
    warm_start: Report | None = None,
    progress: bool = False,
) -> Report:
    """Decide for every class whether some input of the domain makes it the argmax.

    Class t is argmaxable if some x in the domain gives it a lead
    ``z_t - max_{i != t} z_i`` above ``min_lead``, with ``z = W x + b``.

    Args:
        layer: the output layer.
        domain: where x may lie: a :class:`Domain`, its text form, or a radius.
        patience: most reflections a class in the approximate search. Default: while they settle
            classes faster than the exact stage would.
        time_limit: seconds after which no new work starts; what is left is undecided.
        min_lead: in units of the logits; default 1e-9 of their range over a box, 0 if free.
        device: where products run; default: where the layer lies. Proofs are float64 everywhere.
        sweep_dtype: float32 or float64, for the search.
        exact: which exact way comes first; the other takes what it can't settle.
        warm_start: the report of an earlier check of a layer with the same classes and features;
            its witnesses are tried first.
        progress: show a bar on stderr.

    Returns:
        A report with a checked proof behind every verdict.

    Raises:
        DomainError: the domain doesn't fit the layer.
        UnargError: another argument is out of range.

    >>> layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    >>> verify(layer).counts["unargmaxable"]
    1
    """
    begin = time.monotonic()
    if exact not in get_args(ExactName):
        raise UnargError(f"exact is {exact!r}; expected one of {', '.join(get_args(ExactName))}")
    if patience is not None and patience < 0:
        raise UnargError(f"patience is {patience}; expected a whole number from 0, or None")
    if time_limit is not None and not time_limit >= 0:
        raise UnargError(f"time_limit is {time_limit}; expected seconds from 0, or None")
    layer = layer if device is None else layer.to(device)
    layer.require_plain_values()
    with (
        torch.no_grad(),
        plain_arithmetic(layer.device),
        tqdm(total=len(layer.active), disable=not progress, unit="class", desc="verify") as bar,
    ):
        check = _Check(
            Checker(layer, Domain.of(domain), min_lead, sweep_dtype),
            Limits(time_limit, bar.update),
        )
        check.read_off_twins()
        check.search(patience, warm_start)
        check.settle(exact)
        return check.report(time.monotonic() - begin)


class _Check:
    """One run of the stages, and what they have found; classes are positions in ``active``."""

    def __init__(self, checker: Checker, limits: Limits) -> None:
        self.checker, self.limits = checker, limits
        self.count = checker.sweep.count
        self.twins: Twins = find_twins(checker.layer)
        self.frame: Frame = whitening_frame(checker.sweep)
        self.state = SearchState.empty(checker)
        self.outcomes: dict[int, Outcome] = {}
        self.potential = torch.ones(self.count, dtype=torch.bool)

    def read_off_twins(self) -> None:
        """Certify what has an equal row with at least its bias."""
        beaten = (self.twins.beaten_by >= 0).nonzero().squeeze(1)
        for targets in beaten.split(_TWINS):
            supports = self.twins.beaten_by[targets]
            for target, support, bound in self._accepted(targets, supports):
                rivals = np.array([support], dtype=np.int64)
                self.outcomes[target] = Outcome(
                    target, lead=bound, support=rivals, weight=np.ones(1)
                )
        self.limits.advance(len(self.outcomes))

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

    def search(self, patience: int | None, warm_start: Report | None) -> None:
        """Braid Reflect on whitened rows, after the witnesses of an earlier check."""
        if warm_start is not None:
            self._try_again(warm_start)
        todo = self._todo()
        points = self.checker.sweep.rows(todo.to(self.checker.layer.device))
        points = self.frame.start(points)
        low, high = self.checker.low, self.checker.high
        if bool(((low < 0) & (high > 0)).all()) and not self.checker.domain.is_free:
            # Out to the boundary of the box, where biases count least.
            points = points * _BEYOND_ANY_BOX
        dtype = self.state.point.dtype
        self.state.point[todo.to(points.device)] = fit_to_domain(points, low, high, dtype)
        braid_reflect(
            self.checker,
            self.frame,
            self.state,
            todo,
            patience=_MOST_REFLECTIONS if patience is None else patience,
            worthwhile=self._sweeps_pay() if patience is None else None,
            limits=self.limits,
        )
        self.potential = ~self.state.proven

    def settle(self, way: ExactName) -> None:
        """Settle exactly what the search left."""
        found = settle(
            self.checker, self.frame, self._todo(), self.state.proven, way=way, limits=self.limits
        )
        self.outcomes.update(found)

    def _todo(self) -> Tensor:
        done = self.state.proven.clone()
        done[list(self.outcomes)] = True
        return (~done).nonzero().squeeze(1)

    def _try_again(self, report: Report) -> None:
        """Sweep once over the witnesses of an earlier check, whatever they were found for."""
        layer = self.checker.layer
        if (report.classes, report.dim) != (layer.classes, layer.dim):
            return
        position = torch.full((layer.classes,), -1, dtype=torch.int64)
        position[layer.active] = torch.arange(self.count)
        targets = position[torch.from_numpy(report.proofs.witness_class)]
        points = torch.from_numpy(report.proofs.witness)
        dtype = self.state.point.dtype
        exact = (points.to(dtype).double() == points).all(1)
        todo = torch.zeros(self.count, dtype=torch.bool)
        todo[self._todo()] = True
        for chosen, as_type in ((exact, dtype), (~exact, torch.float64)):
            use = chosen & (targets >= 0) & todo[targets.clamp_min(0)]
            if bool(use.any()):
                tried = points[use].to(layer.device)
                self._record(targets[use], fit_to_domain(
                    tried, self.checker.low, self.checker.high, as_type
                ))  # fmt: skip

    def _record(self, targets: Tensor, points: Tensor) -> None:
        found = self.checker.witnesses(targets, points)
        if points.dtype == self.state.point.dtype:
            self.limits.advance(self.state.record(targets, points, found))
            return
        # These can't be kept in the sweep's dtype without moving them.
        for at in found.accepted.nonzero().squeeze(1).tolist():
            target = int(targets[at])
            self.outcomes[target] = Outcome(target, points[at], float(found.lead[at]))
            self.potential[target] = False
        self.limits.advance(int(found.accepted.sum()))

    def _sweeps_pay(self) -> Callable[[int, int], bool]:
        """Compare a sweep's yield with what the exact stage would cost for the same classes.

        A sweep costs ``2 A d`` operations a class, an interior point some 40 iterations of
        ``2 m d^2``, at a third of the speed: the ratio is ``120 m d / A``.
        """
        dim = self.checker.layer.dim
        ratio = 120 * working_set_size(dim, self.count) * dim / max(self.count, 1)
        return lambda gained, tried: gained * ratio >= tried

    def report(self, seconds: float) -> Report:
        """Assemble the report, by class ids."""
        return _assemble(self, seconds)


def _assemble(check: _Check, seconds: float) -> Report:
    layer, state = check.checker.layer, check.state
    active = layer.active.numpy()
    status = np.full(layer.classes, Status.EXCLUDED, dtype=np.int8)
    found = np.full(check.count, Status.UNDECIDED, dtype=np.int8)
    found[state.proven.numpy()] = Status.ARGMAXABLE
    lead = np.where(state.proven.numpy(), state.lead.numpy(), np.nan)
    rival = np.where(state.proven.numpy(), -1, state.rival.numpy())
    points: dict[int, Tensor] = {}
    certificates: list[Outcome] = []
    reasons: dict[str, int] = {}
    for target, outcome in sorted(check.outcomes.items()):
        if outcome.point is not None:
            found[target], rival[target] = Status.ARGMAXABLE, -1
            points[target] = outcome.point
        elif outcome.support is not None and outcome.weight is not None:
            found[target] = Status.UNARGMAXABLE
            rival[target] = outcome.support[outcome.weight.argmax()]
            certificates.append(outcome)
        else:
            reasons[outcome.reason] = reasons.get(outcome.reason, 0) + 1
            continue
        lead[target] = outcome.lead
    witness_at = np.flatnonzero(found == Status.ARGMAXABLE)
    witness = state.point[torch.from_numpy(witness_at).to(state.point.device)].double().cpu()
    for place, target in enumerate(witness_at.tolist()):
        if target in points:
            witness[place] = points[target].cpu()
    status[active] = found
    low, high = check.checker.domain.bounds(layer.dim)
    flat_support = [active[o.support] for o in certificates]
    flat_weight = [o.weight for o in certificates if o.weight is not None]
    proofs = Proofs(
        status=status,
        witness_class=active[witness_at],
        witness=witness.numpy(),
        certificate_class=active[np.array([o.target for o in certificates], dtype=np.int64)],
        certificate_offsets=np.cumsum([0, *map(len, flat_support)], dtype=np.int64),
        certificate_support=np.concatenate([np.zeros(0, np.int64), *flat_support]),
        certificate_weight=np.concatenate([np.zeros(0), *flat_weight]),
        domain_low=low,
        domain_high=high,
        min_lead=check.checker.min_lead,
    )
    ids = np.append(active, -1)  # -1 stays -1
    return Report(
        dim=layer.dim,
        domain=check.checker.domain,
        min_lead=check.checker.min_lead,
        status=status,
        lead=_spread(layer.classes, active, lead, np.nan),
        reflections=_spread(layer.classes, active, state.reflections.numpy(), 0),
        rival=_spread(layer.classes, active, ids[rival], -1),
        duplicate_of=_spread(layer.classes, active, ids[check.twins.duplicate_of.numpy()], -1),
        potential=_spread(layer.classes, active, check.potential.numpy(), False),
        names=layer.names,
        proofs=proofs,
        seconds=seconds,
        complete=not check.limits.cut_short,
        notes=_notes(layer, reasons, check.limits.cut_short),
    )


def _spread(classes: int, active: np.ndarray, values: np.ndarray, fill: object) -> np.ndarray:
    """Values of the active classes at their ids, ``fill`` elsewhere."""
    everywhere = np.full(classes, fill, dtype=values.dtype)
    everywhere[active] = values
    return everywhere


def _notes(layer: OutputLayer, reasons: dict[str, int], cut_short: bool) -> tuple[str, ...]:
    notes = []
    if len(layer.active) <= layer.dim:
        notes.append(
            f"No more classes ({len(layer.active)}) than features ({layer.dim}): all are "
            "argmaxable unless rows coincide or depend on each other."
        )
    if cut_short:
        notes.append("The time limit ended the check; what it did not reach is undecided.")
    notes += [f"{count:,} left undecided: {reason}." for reason, count in sorted(reasons.items())]
    return tuple(notes)
