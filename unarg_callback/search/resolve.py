"""Certificates over given supports: what was proven once is proven again by the same rivals.

For a class t and a support S, the certificate over a box with the best bound solves

    min U(lambda) = max_{x in X} sum_i lambda_i (z_t - z_i)(x)   over lambda >= 0, sum lambda = 1

with i in S alone: a problem of d + 1 by some multiple of d + 1, for many classes at once. When a
layer has moved a little, few steps of the interior point find weights that the checker accepts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unarg_callback.geometry.certificates import CertificatePart, CertificateParts
from unarg_callback.geometry.checker import Checker
from unarg_callback.search.exact import Outcome, Window
from unarg_callback.search.interior_point import InteriorPoint
from unarg_callback.search.limits import Limits

_ITERATIONS = 40
_ELEMENTS = 2**20
_LARGEST_BATCH = 256
_SMALLEST_GAP = 1e-13
_KEPT = 3
"""Rivals kept a certificate, in multiples of d + 1: 4 take a third more room for little use."""
_MANY = 4
"""Rivals, in multiples of d + 1, from which it pays to make a certificate smaller."""


def resolve(
    checker: Checker, parts: CertificateParts, limits: Limits | None = None
) -> dict[int, Outcome]:
    """Certify classes anew, each over the support that it has. Over a box only.

    Args:
        checker: decides, for the layer as it is now.
        parts: (support, weight) by class, the most urgent first; the weights are tried as they
            are before anything else.
        limits: when to stop.

    Returns:
        An outcome for each class that could be certified.
    """
    limits = limits or Limits()
    outcomes: dict[int, Outcome] = {}
    # The first may be the most urgent; without a limit all get their turn.
    order = list(parts)
    if not limits.limited:
        order.sort(key=lambda target: len(parts[target][0]))
    at = 0
    while at < len(order) and not (at and limits.reached()):
        # Neighbours in this order have supports of like size, so that padding costs little.
        largest = max(len(parts[target][0]) for target in order[at : at + _LARGEST_BATCH])
        room = _ELEMENTS // (max(largest, 1) * (checker.layer.dim + 1))
        batch = order[at : at + min(_LARGEST_BATCH, max(room, 1))]
        _batch(checker, batch, *_padded(parts, batch), outcomes)
        at += len(batch)
    return outcomes


def slim(checker: Checker, outcomes: dict[int, Outcome]) -> dict[int, Outcome]:
    """Certificates over fewer rivals, for those outcomes that have many. Over a box only.

    The heaviest rivals nearly always do. Few rivals take less room, and less time next time.

    Args:
        checker: decides.
        outcomes: with accepted proofs.

    Returns:
        An outcome for each certificate that could be made smaller.
    """
    corners = checker.layer.dim + 1
    most = _KEPT * corners
    parts: dict[int, CertificatePart] = {}
    for target, outcome in outcomes.items():
        support, weight = outcome.support, outcome.weight
        if support is not None and weight is not None and len(support) > _MANY * corners:
            heaviest = np.sort(np.argsort(-weight, kind="stable")[:most])
            parts[target] = (support[heaviest], weight[heaviest])
    return resolve(checker, parts)


def _padded(parts: CertificateParts, targets: list[int]) -> tuple[Tensor, Tensor]:
    """(n, m) supports, -1 where one is shorter, and weights."""
    widest = max(len(parts[target][0]) for target in targets)
    supports = np.full((len(targets), widest), -1, dtype=np.int64)
    weights = np.zeros((len(targets), widest))
    for row, target in enumerate(targets):
        support, weight = parts[target]
        supports[row, : len(support)] = support
        weights[row, : len(weight)] = weight
    return torch.from_numpy(supports), torch.from_numpy(weights)


def _batch(
    checker: Checker,
    targets: list[int],
    supports: Tensor,
    weights: Tensor,
    outcomes: dict[int, Outcome],
) -> None:
    device = checker.layer.device
    own, supports = torch.tensor(targets, device=device), supports.to(device)
    left = torch.arange(len(targets), device=device)
    left = left[~_offer(checker, own, supports, weights.to(device), outcomes)]
    if not len(left):
        return
    rows, offset = Window.over_box(checker).constraints(own[left], supports[left].clamp_min(0))
    _slacken(rows, offset, supports[left] < 0)
    size = rows.abs().sum(2).mean(1) + offset.abs().mean(1)
    scale = size.clamp_min(torch.finfo(torch.float64).tiny)
    threshold = checker.min_lead / checker.sweep.unit / scale
    problem = InteriorPoint.start(rows / scale[:, None, None], offset / scale[:, None])
    for _ in range(_ITERATIONS):
        moved = problem.step()
        bound = problem.bound()
        # With a lead over all rivals of the support, no weights over them can deny it.
        leaves = ~moved | (problem.lead > threshold)
        leaves |= bound - problem.lead <= (0.1 * threshold).clamp_min(_SMALLEST_GAP)
        ready = (bound <= threshold).nonzero().squeeze(1)
        if len(ready):
            at = left[ready]
            accepted = _offer(checker, own[at], supports[at], problem.weight[ready], outcomes)
            leaves[ready] |= accepted
        keep = (~leaves).nonzero().squeeze(1)
        if not len(keep):
            return
        if len(keep) < len(left):
            problem, left, threshold = problem.keep(keep), left[keep], threshold[keep]


def _slacken(rows: Tensor, offset: Tensor, nobody: Tensor) -> None:
    """Make constraints without a rival so slack that they play no part."""
    beyond = rows.abs().sum(2).amax(1) + offset.abs().amax(1) + 1
    rows[nobody] = 0.0
    offset[nobody] = beyond[:, None].expand_as(offset)[nobody]


def _offer(
    checker: Checker, own: Tensor, supports: Tensor, weights: Tensor, outcomes: dict[int, Outcome]
) -> Tensor:
    """Offer weights to the checker; return (n,) bool, who was accepted, and note the outcomes."""
    weights = torch.where(supports >= 0, weights, 0.0)
    accepted, bounds = checker.certificates(own, supports, weights)
    for at in accepted.nonzero().squeeze(1).tolist():
        used = weights[at] > 0
        outcomes[int(own[at])] = Outcome(
            int(own[at]),
            lead=float(bounds[at]),
            support=supports[at][used].cpu().numpy(),
            weight=weights[at][used].cpu().numpy(),
        )
    return accepted
