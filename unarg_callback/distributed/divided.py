"""One check divided among processes that hold the same layer.

Each rank decides its part of the classes, with all of them as rivals, and then tells the others
what it found. Every rank puts the parts together in the same way, so that all end with the same
verdicts, proofs and report. All of it runs inside :meth:`Ranks.together`: what fails on one rank
fails on all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.geometry.certificates import Certificates
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.compact import CompactPoints
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.report import Reuse
from unarg_callback.search.exact import Outcome
from unarg_callback.search.stages import Stages

T = TypeVar("T")

OTHER_LAYER = "had another layer than rank 0"
"""What a note about that says."""
CONTRADICTION = "two ranks have proofs that contradict each other"
"""Why a class may be undecided."""


def part_of(ranks: Ranks, count: int) -> Tensor:
    """(count,) bool, the classes that this rank decides: every ``ranks.size``-th.

    Rare tokens, which take longest, often stand together: so each rank gets its share of them.

    >>> part_of(Ranks(), 3)
    tensor([True, True, True])
    """
    return torch.arange(count) % ranks.size == ranks.rank


def fingerprint(values: Mapping[str, Any]) -> str:
    """Tell values apart: a digest of tensors and arrays by dtype, shape and bytes, else of text."""
    digest = hashlib.sha256()
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(np.ascontiguousarray(value))
        if not isinstance(value, Tensor):
            digest.update(f"{name}={value!r};".encode("utf-8", "surrogatepass"))
            continue
        digest.update(f"{name}={value.dtype}{tuple(value.shape)};".encode())
        if value.numel():
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def fingerprint_of(layer: OutputLayer) -> str:
    """Tell layers apart, names and excluded classes included."""
    return fingerprint(
        {
            "weight": layer.weight,
            "bias": layer.bias,
            "names": layer.names,
            "excluded": layer.excluded,
        }
    )


@dataclass(frozen=True, eq=False)
class Start(Generic[T]):
    """What each rank has before a check.

    Args:
        layer: this rank's.
        held: tells apart the proofs that it starts from.
        given: whatever rank 0 says for all.
    """

    layer: OutputLayer
    held: str
    given: T


@dataclass(frozen=True, eq=False)
class Agreement(Generic[T]):
    """What all ranks start from.

    Args:
        layer: rank 0's, on this rank's device.
        given: rank 0's.
        notes: a sentence for each rank that had another layer.
        others: ranks that hold other proofs than rank 0.
    """

    layer: OutputLayer
    given: T
    notes: tuple[str, ...] = ()
    others: tuple[int, ...] = ()


def agree(ranks: Ranks, start: Start[T]) -> Agreement[T]:
    """Let all ranks start from what rank 0 has. A collective.

    Args:
        ranks: who takes part.
        start: what this rank has.
    """
    if ranks.alone:
        return Agreement(start.layer, start.given)
    layer = start.layer
    told = ranks.gather((fingerprint_of(layer), start.held, start.given))
    strangers = [rank for rank, (digest, *_) in enumerate(told) if digest != told[0][0]]
    if strangers:
        # A view might travel with all that it is a view of.
        sent = ranks.broadcast(layer.to("cpu").copy() if ranks.first else layer)
        if ranks.rank in strangers:
            layer = sent.to(layer.device)
    notes = tuple(f"Rank {rank} {OTHER_LAYER}." for rank in strangers)
    others = tuple(rank for rank, (_, held, _) in enumerate(told) if held != told[0][1])
    return Agreement(layer, told[0][2], notes, others)


def checker_of(
    ranks: Ranks,
    layer: OutputLayer,
    domain: Domain,
    min_lead: float | None,
    sweep_dtype: torch.dtype,
) -> Checker:
    """A checker that asks the same of every proof on every rank. A collective.

    Args:
        ranks: who takes part.
        layer: as for :class:`Checker`, the same on all ranks, like what follows.
        domain: likewise.
        min_lead: likewise.
        sweep_dtype: likewise.
    """
    checker = Checker(layer, domain, min_lead, sweep_dtype)
    if ranks.alone:
        return checker
    told = ranks.gather((checker.sweep.dtype, checker.min_lead, checker.logit_range))
    if len({dtype for dtype, *_ in told}) > 1:
        # Points that one rank can't hold would be another rank's.
        checker = Checker(layer, domain, min_lead, torch.float64)
    # The last bits of a sum can depend on the device.
    _, checker.min_lead, checker.logit_range = told[0]
    return checker


@dataclass(frozen=True, eq=False)
class Found:
    """What one rank found about its n classes, and about others by the way, in little room.

    Args:
        own: (n,) int64, positions of its classes of which there is something to tell.
        flags: (n,) uint8, a bit for each of ``_FLAGS``.
        lead: (n,) float64.
        rival: (n,) int32.
        reflections: (n,) int32.
        points: where its classes stand that have moved, in order.
        exact: (k,) int64, of these the places of witnesses that the sweep's dtype can't hold.
        exact_lead: (k,) float64.
        certificates: of its classes.
        bound: one float64 for each of them.
        reasons: why other classes of it are undecided.
        others: (m,) int64, classes of other ranks with a witness found by the way.
        others_lead: (m,) float64.
        others_points: their witnesses.
        cut_short: whether the time limit left work undone.
        reuse: its counts.
    """

    own: Tensor
    flags: Tensor
    lead: Tensor
    rival: Tensor
    reflections: Tensor
    points: CompactPoints
    exact: Tensor
    exact_lead: Tensor
    certificates: Certificates
    bound: NDArray[np.float64]
    reasons: dict[int, str]
    others: Tensor
    others_lead: Tensor
    others_points: CompactPoints
    cut_short: bool
    reuse: Reuse


_FLAGS = ("proven", "solved", "measured", "moved", "deepened", "failed")


def _flags(stages: Stages) -> list[Tensor]:
    return [
        stages.state.proven,
        stages.solved,
        stages.measured,
        stages.moved,
        stages.deepened,
        stages.failed,
    ]


def found_by(stages: Stages, reuse: Reuse) -> Found:
    """Take out of the stages what this rank found that the others don't know.

    Args:
        stages: of this rank's part.
        reuse: what it took over.
    """
    state, new = stages.state, ~stages.common
    outcomes = {target: o for target, o in stages.outcomes.items() if new[target]}
    own = (stages.mine & new).nonzero().squeeze(1)
    flags = torch.zeros(len(own), dtype=torch.uint8)
    for bit, flag in enumerate(_flags(stages)):
        flags |= flag[own].to(torch.uint8) << bit
    unit = 1.0 if stages.checker.grid is None else stages.checker.grid.unit
    moved = own[stages.moved[own]]
    place = {target: at for at, target in enumerate(moved.tolist())}
    exact = {target: o.point for target, o in outcomes.items() if o.point is not None}
    others = (state.proven & ~stages.mine & new).nonzero().squeeze(1)
    parts = {
        target: (outcome.support, outcome.weight)
        for target, outcome in outcomes.items()
        if outcome.support is not None and outcome.weight is not None
    }
    certificates = Certificates.of(parts)
    return Found(
        own=own,
        flags=flags,
        lead=state.lead[own],
        rival=state.rival[own].to(torch.int32),
        reflections=state.reflections[own].to(torch.int32),
        points=CompactPoints.pack(
            state.point[moved.to(state.point.device)],
            {place[target]: point for target, point in exact.items()},
            unit,
        ),
        exact=torch.tensor([place[target] for target in exact], dtype=torch.int64),
        exact_lead=torch.tensor([outcomes[t].lead for t in exact], dtype=torch.float64),
        certificates=certificates,
        bound=np.array([outcomes[t].lead for t in certificates.targets.tolist()], np.float64),
        reasons={t: o.reason for t, o in outcomes.items() if not o.settled},
        others=others,
        others_lead=state.lead[others],
        others_points=CompactPoints.pack(state.point[others.to(state.point.device)], {}, unit),
        cut_short=stages.limits.cut_short,
        reuse=reuse,
    )


def share(ranks: Ranks, stages: Stages, reuse: Reuse) -> Reuse:
    """Bring what all ranks found into the stages of each. A collective.

    Afterwards the stages are about all classes, and the same on every rank.

    Args:
        ranks: who takes part.
        stages: of this rank's part.
        reuse: what this rank took over.

    Returns:
        What all ranks took over.
    """
    if ranks.alone:
        return reuse
    parts = ranks.gather(found_by(stages, reuse))
    _merge(stages, parts)
    return _total([part.reuse for part in parts])


def divide_what_is_left(ranks: Ranks, stages: Stages) -> None:
    """Share what the search has found, and divide anew what it left open. A collective.

    A rank may have more of that than others, and classes with a witness are the first choice as
    rivals, whoever found it.

    Args:
        ranks: who takes part.
        stages: of this rank's part.
    """
    if ranks.alone:
        return
    share(ranks, stages, Reuse())
    left = stages.todo()
    stages.common = torch.ones_like(stages.common)
    stages.common[left] = False
    stages.presumed = torch.zeros_like(stages.presumed)
    stages.mine = part_of(ranks, stages.count)
    stages.mine[left] = part_of(ranks, len(left))


def _merge(stages: Stages, parts: list[Found]) -> None:
    """Put the parts in place of what this rank found alone."""
    stages.mine = torch.ones_like(stages.mine)
    common = stages.common.tolist()
    stages.outcomes = {target: o for target, o in stages.outcomes.items() if common[target]}
    for part in parts:
        _take(stages, part)
    _take_by_the_way(stages, parts)
    stages.limits.cut_short = any(part.cut_short for part in parts)
    if not bool(stages.state.proven.all()):
        stages.find_twins()


def _take(stages: Stages, part: Found) -> None:
    """Take over what a rank found about its own classes."""
    state, own = stages.state, part.own
    for bit, flag in enumerate(_flags(stages)):
        flag[own] = (part.flags >> bit & 1).bool()
    state.lead[own] = part.lead
    state.rival[own] = part.rival.long()
    state.reflections[own] = part.reflections.long()
    moved = own[stages.moved[own]]
    points, _ = part.points.unpack(state.point.dtype)
    state.point[moved.to(state.point.device)] = points.to(state.point.device)
    exact = part.points.exact(part.exact)
    for at, point, lead in zip(
        moved[part.exact].tolist(), exact, part.exact_lead.tolist(), strict=True
    ):
        stages.outcomes[at] = Outcome(at, point, lead)
    for place, target in enumerate(part.certificates.targets.tolist()):
        support, weight = part.certificates.at(place)
        stages.outcomes[target] = Outcome(
            target, lead=float(part.bound[place]), support=support.astype(np.int64), weight=weight
        )
    for target, reason in part.reasons.items():
        stages.outcomes[target] = Outcome(target, reason=reason)


def _take_by_the_way(stages: Stages, parts: list[Found]) -> None:
    """Take the witnesses that ranks found for classes of others, where those have none."""
    state, outcomes = stages.state, stages.outcomes
    best: dict[int, tuple[float, CompactPoints, int]] = {}
    for part in parts:
        for at in (~state.proven[part.others]).nonzero().squeeze(1).tolist():
            target, lead = int(part.others[at]), float(part.others_lead[at])
            if lead > best.get(target, (-np.inf,))[0]:
                best[target] = (lead, part.others_points, at)
    for target, (lead, points, at) in best.items():
        outcome = outcomes.pop(target, None)
        if outcome is not None and outcome.point is not None:
            outcomes[target] = outcome
        elif outcome is not None and outcome.settled:
            outcomes[target] = Outcome(target, reason=CONTRADICTION)
        else:
            state.point[target] = points.exact(torch.tensor([at]))[0].to(state.point)
            state.proven[target] = stages.measured[target] = stages.moved[target] = True
            state.lead[target] = lead


def _total(parts: list[Reuse]) -> Reuse:
    """The counts of all; the time is that of the slowest."""
    counts: dict[str, Any] = {
        field.name: sum(getattr(part, field.name) for part in parts)
        for field in fields(Reuse)
        if field.name not in ("warm", "essential_seconds")
    }
    seconds = max(part.essential_seconds for part in parts)
    return Reuse(warm=parts[0].warm, essential_seconds=seconds, **counts)
