"""The threshold tau of the projection onto the simplex: ``p = max(y - tau, 0)`` with sum 1."""

from __future__ import annotations

import torch
from torch import Tensor

_NEWTON_STEPS = 40


def sorted_threshold(y: Tensor) -> Tensor:
    """Threshold by sorting, the definition word for word; exact for every input.

    Args:
        y: (..., K) scores, floating point; -inf never takes part.

    Returns:
        (..., 1) thresholds; NaN where a row has NaN or +inf, or is -inf throughout.
    """
    ordered = y.sort(dim=-1, descending=True).values
    rank = torch.arange(1, y.shape[-1] + 1, device=y.device, dtype=y.dtype)
    excess = ordered.cumsum(-1) - 1
    count = (rank * ordered > excess).sum(-1, keepdim=True)
    threshold = excess.gather(-1, (count - 1).clamp_min(0)) / count
    return threshold.masked_fill(count == 0, torch.nan)


def newton_threshold(y: Tensor, lower: Tensor | None = None) -> Tensor:
    """Threshold by Newton's method (Michelot 1986) from below, without a sort.

    ``f(t) = sum max(y - t, 0)`` is convex, so the steps rise to the root of ``f(t) = 1`` and end
    once they leave the support as it is: after fewer than 10 for all but contrived inputs. Rows
    that aren't done by then are sorted.

    Args:
        y: (R, K) scores whose row maxima are 0, floating point; -inf never takes part.
        lower: (R, 1) a bound below the thresholds to start from.

    Returns:
        (R, 1) thresholds; NaN where a row has NaN.
    """
    if lower is None:
        lower = ((y.sum(-1, keepdim=True) - 1) / y.shape[-1]).clamp_(min=-1)
    threshold, count = lower, None
    above = torch.empty_like(y)
    for _ in range(_NEWTON_STEPS):
        torch.sub(y, threshold, out=above).clamp_(min=0)
        total = above.sum(-1, keepdim=True)
        now = above.gt_(0).sum(-1, keepdim=True)
        threshold = threshold + (total - 1) / now
        if count is not None and torch.equal(now, count):
            return threshold
        count = now
    return sorted_threshold(y)
