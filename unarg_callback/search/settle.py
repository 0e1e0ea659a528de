"""The exact stage: settle what the search left, with each certificate shared among classes."""

from __future__ import annotations

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
    grace: bool = False,
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
        grace: whether the first batch is tried whatever the limits say.

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
    seeds = Seeds(neighbours, known.clone(), rivals, supports or {}, points)
    outcomes = _shared_out(checker, ways[way], seeds, targets, limits, grace)
    left = torch.tensor([t for t, o in outcomes.items() if not o.settled], dtype=torch.int64)
    if len(left) and not limits.reached():
        other: ExactName = "cutting_plane" if way == "interior_point" else "interior_point"
        for outcome in _attempt(ways[other], left, seeds.of(left), limits):
            if outcome.settled:
                outcomes[outcome.target] = outcome
                limits.advance(1)
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
) -> dict[int, Outcome]:
    """Batches that grow; after each, its certificates are offered to all that are left."""
    outcomes: dict[int, Outcome] = {}
    # With the certificates of an earlier check, there is little left to share.
    left, size, fruitless = targets, _FIRST_BATCH if not seeds.supports else _LARGEST_BATCH, 0
    while len(left) and (grace or not limits.reached()):
        batch = seeds.neighbours.spread_out(left, size)
        found = _attempt(way, batch, seeds.of(batch), Limits() if grace else limits)
        grace = False
        for outcome in found:
            outcomes[outcome.target] = outcome
            seeds.known[outcome.target] |= outcome.point is not None
        left = left[~torch.isin(left, batch)]
        for outcome in found:
            if outcome.support is None or fruitless >= _FRUITLESS or not len(left):
                continue
            shared = (share_simplex if checker.domain.is_free else share)(checker, outcome, left)
            outcomes.update({o.target: o for o in shared})
            fruitless = 0 if shared else fruitless + 1
            if shared:
                taken = torch.tensor([o.target for o in shared])
                left = left[~torch.isin(left, taken)]
                limits.advance(len(shared))
        limits.advance(sum(outcome.settled for outcome in found))
        size = min(2 * size, _LARGEST_BATCH)
    return outcomes
