"""The exact stage: settle what the search left, with each certificate shared among classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from unarg_callback.geometry.certificates import CertificateParts
from unarg_callback.geometry.checker import Checker
from unarg_callback.search.batched import BatchedInteriorPoint
from unarg_callback.search.certify import certifier_of
from unarg_callback.search.cutting_plane import CuttingPlane
from unarg_callback.search.exact import FAILED, ExactWay, Outcome, Window
from unarg_callback.search.frame import Frame
from unarg_callback.search.limits import Limits
from unarg_callback.search.sharing import share
from unarg_callback.search.simplex import share_simplex
from unarg_callback.search.working_set import Neighbours, Seeds, working_set_size

ExactName = Literal["interior_point", "cutting_plane"]

_FIRST_BATCH = 8
_LARGEST_BATCH = 256
_FRUITLESS = 8
_LITTLE = 2**28
"""Work, in ``n m d^2`` for n classes, below which one large batch costs less than small ones."""


def settle(
    checker: Checker,
    frame: Frame,
    targets: Tensor,
    known: Tensor,
    *,
    way: ExactName = "interior_point",
    limits: Limits | None = None,
    neighbours: Neighbours | None = None,
    supports: CertificateParts | None = None,
    points: Tensor | None = None,
    begin: Callable[[Tensor], Tensor] | None = None,
    grace: bool = False,
    most: int | None = None,
) -> dict[int, Outcome]:
    """Settle classes exactly, each by one of the exact ways or by a neighbour's certificate.

    What the chosen way can't settle for numerical reasons is tried once more by the other.

    Args:
        checker: decides.
        frame: whitened.
        targets: (n,) int64 on the CPU.
        known: (A,) bool on the CPU, classes known to be argmaxable: the first choice as rivals.
        way: which exact way comes first.
        limits: when to stop.
        neighbours: nearest rows in the frame, if there are any already.
        supports: of earlier certificates, by class: rivals to start with.
        points: (A, d) in the sweep's dtype, where the search tried each class last.
        begin: takes (n,) targets and returns (n, d), where the search for them begins.
        grace: whether the first batch is tried whatever the limits say.
        most: how many to solve for; the others are settled by what these share, or not at all.

    Returns:
        An outcome for each target that was tried.
    """
    limits = limits or Limits()
    if not len(targets):
        return {}
    window, certifier = Window.of(checker, frame), certifier_of(checker, frame)
    ways: dict[ExactName, ExactWay] = {
        "interior_point": BatchedInteriorPoint(checker, window, certifier),
        "cutting_plane": CuttingPlane(checker, window, certifier),
    }
    neighbours = neighbours or Neighbours(checker.sweep, frame)
    rivals = working_set_size(checker.layer.dim, checker.sweep.count)
    seeds = Seeds(neighbours, known.clone(), rivals, supports or {}, points, begin)
    outcomes = _shared_out(checker, ways[way], seeds, targets, limits, grace, most)
    left = torch.tensor([t for t, o in outcomes.items() if not o.settled], dtype=torch.int64)
    if len(left) and not limits.reached():
        other: ExactName = "cutting_plane" if way == "interior_point" else "interior_point"
        for outcome in _attempt(ways[other], left, seeds.of(left), limits):
            if outcome.settled:
                outcomes[outcome.target] = outcome
    return outcomes


def _attempt(way: ExactWay, targets: Tensor, rivals: Tensor, limits: Limits) -> list[Outcome]:
    """Settle a batch; whatever goes wrong in a solver costs that batch its verdicts, no more."""
    try:
        return way.settle(targets, rivals, limits)
    except Exception as cause:  # A solver of any kind, out of memory included.
        reason = f"{FAILED} ({type(cause).__name__}: {cause})"
        return [Outcome(target, reason=reason) for target in targets.tolist()]


def _shared_out(
    checker: Checker,
    way: ExactWay,
    seeds: Seeds,
    targets: Tensor,
    limits: Limits,
    grace: bool,
    most: int | None,
) -> dict[int, Outcome]:
    """Batches that grow; after each, its certificates are offered to all that are left."""
    outcomes: dict[int, Outcome] = {}
    left, fruitless = targets, 0
    large = _gains_little(checker, seeds, len(targets), grace)
    size = _LARGEST_BATCH if large else _FIRST_BATCH
    room = len(targets) if most is None else most
    while len(left) and room and (grace or not limits.reached()):
        batch = seeds.neighbours.densest(left, min(size, room))
        room -= len(batch)
        found = _attempt(way, batch, seeds.of(batch), limits.without_end() if grace else limits)
        grace = False
        for outcome in found:
            outcomes[outcome.target] = outcome
            seeds.known[outcome.target] |= outcome.point is not None
        left = left[~torch.isin(left, batch)]
        gained = False
        for outcome in found:
            if outcome.support is None or fruitless >= _FRUITLESS or not len(left):
                continue
            shared = (share_simplex if checker.domain.is_free else share)(checker, outcome, left)
            outcomes.update({o.target: o for o in shared})
            fruitless = 0 if shared else fruitless + 1
            if shared:
                gained = True
                taken = torch.tensor([o.target for o in shared])
                left = left[~torch.isin(left, taken)]
                limits.advance(len(shared))
        # Small batches are for sharing; where nothing is to share, large ones cost less.
        size = min(2 * size, _LARGEST_BATCH) if gained else _LARGEST_BATCH
    return outcomes


def _gains_little(checker: Checker, seeds: Seeds, count: int, grace: bool) -> bool:
    """Whether there is little to gain by sharing before all of a large batch are solved."""
    if seeds.supports:
        # With the certificates of an earlier check, there is little left to share.
        return True
    # In the free domain each certificate is a linear programme of its own.
    work = count * seeds.count * (checker.layer.dim + 1) ** 2
    # Past the deadline a small batch has to do.
    return work < _LITTLE and not grace and not checker.domain.is_free
