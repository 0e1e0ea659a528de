"""Keys under additive scores ``v . tanh(q + k_j)`` (Laha et al. 2018, Eq. 22).

Each term rises with ``k_jw`` where v_w > 0, falls where v_w < 0, whatever q is. So key i scores at
least as much as key j for every query if ``v_w (k_iw - k_jw) >= 0`` for all w, and then j can't be
first. The condition is also necessary for one key to do so alone: towards infinity in all other
coordinates only term w is left to tell them apart. That several keys together keep one from the
first place isn't looked for: what has neither a key above it nor a query that puts it first stays
undecided.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.attention.report import KeyReport
from unarg_callback.geometry.proof import Status
from unarg_callback.search.limits import Limits

_STEPS = 150
_RATE = 0.1
_SOFTNESS = 0.1
_MOST_ENTRIES = 2**22
"""Of the arrays of targets, keys and features that the search works with."""


def verify_additive(
    keys: Tensor, direction: Tensor, views: NDArray[np.bool_], *, limits: Limits
) -> KeyReport:
    """Decide for each key whether some query puts it first, as far as can be told.

    Args:
        keys: (S, d).
        direction: (d,), v.
        views: (V, S) bool, the different sets of keys that a query may see.
        limits: when to stop.
    """
    k, v = keys.detach().cpu().double(), direction.detach().cpu().double()
    above = _dominated(k, v)
    status = np.full(len(k), Status.UNDECIDED, dtype=np.int8)
    status[~views.any(0)] = Status.EXCLUDED
    beaten = ((views.astype(np.int64) @ above.T.astype(np.int64)) > 0) | ~views
    status[(status == Status.UNDECIDED) & beaten.all(0)] = Status.UNARGMAXABLE
    # With fewer rivals it is easier: of the views that hold a key, one of the smallest.
    rivals = {
        j: min((view for view in views if view[j]), key=lambda view: int(view.sum()))
        for j in np.flatnonzero(status == Status.UNDECIDED).tolist()
    }
    witness = np.full(tuple(k.shape), np.nan)
    several = max(_MOST_ENTRIES // max(k.numel(), 1), 1)
    for start in range(0, len(rivals), several):
        if limits.reached():
            break
        targets = list(rivals)[start : start + several]
        among = torch.from_numpy(np.stack([rivals[j] for j in targets]))
        queries, first = _climb(k, v, torch.tensor(targets), among, limits)
        for j, query, found in zip(targets, queries.numpy(), first.tolist(), strict=True):
            if found:
                status[j], witness[j] = Status.ARGMAXABLE, query
    return KeyReport(status, not limits.cut_short, dominated_by=above, witness=witness)


def _dominated(k: Tensor, v: Tensor) -> NDArray[np.bool_]:
    """(S, S) bool, whether column i scores at least as much as row j for every query.

    Comparisons of the numbers as they are, so exact.
    """
    rising, falling = k[:, v > 0], k[:, v < 0]
    above = torch.ones(len(k), len(k), dtype=torch.bool)
    for row, up, down in zip(above, rising, falling, strict=True):
        torch.logical_and((rising >= up).all(-1), (falling <= down).all(-1), out=row)
    return above.fill_diagonal_(False).numpy()


def _climb(
    k: Tensor, v: Tensor, targets: Tensor, among: Tensor, limits: Limits
) -> tuple[Tensor, Tensor]:
    """Look for a query a target by gradient ascent on a smooth lead, with Adam's steps.

    Returns:
        (N, d) queries, and (N,) whether each puts its target first.
    """
    rivals = among.clone()
    rivals[torch.arange(len(targets)), targets] = False
    # Where tanh is steepest for the target's own coordinates.
    queries = -k[targets]
    first = torch.zeros(len(targets), dtype=torch.bool)
    left = torch.arange(len(targets))
    mean, square = torch.zeros_like(queries), torch.zeros_like(queries)
    error = _error(v)
    for step in range(1, _STEPS + 1):
        lead, grad = _leads(queries[left], k, v, targets[left], rivals[left])
        first[left] = lead > error
        still = lead <= error
        left, grad = left[still], grad[still]
        if not len(left) or limits.reached():
            break
        mean[left] = 0.9 * mean[left] + 0.1 * grad
        square[left] = 0.99 * square[left] + 0.01 * grad**2
        scale = (square[left] / (1 - 0.99**step)).sqrt() + 1e-12
        queries[left] += _RATE * mean[left] / (1 - 0.9**step) / scale
    return queries, first


def _leads(
    q: Tensor, k: Tensor, v: Tensor, targets: Tensor, rivals: Tensor
) -> tuple[Tensor, Tensor]:
    """(N,) leads of targets over their rivals, and (N, d) gradients of a smooth lead."""
    hidden = (q[:, None] + k).tanh()
    scores = hidden @ v
    among = scores.masked_fill(~rivals, -torch.inf)
    lead = scores.gather(1, targets[:, None])[:, 0] - among.amax(1)
    slope = (1 - hidden**2) * v
    own = slope[torch.arange(len(targets)), targets]
    share = torch.where(rivals.any(1, keepdim=True), (among / _SOFTNESS).softmax(1), 0)
    return lead, own - (share[:, None] @ slope)[:, 0]


def _error(v: Tensor) -> float:
    """Bound on the error of a computed lead.

    ``|x| (1 - tanh(x)^2) < 1/2``, so rounding q + k moves tanh by less than u / 2; a library's tanh
    is within 4u, and d products and sums are within (d + 1) u |v|_1. A lead has two scores; twice
    that again leaves room for an accumulation in another order.
    """
    unit = float(np.finfo(np.float64).eps)
    return 4 * (v.numel() + 6) * unit * float(v.abs().sum())
