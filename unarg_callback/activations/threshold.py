"""The threshold tau of the projection onto the simplex: ``p = max(y - tau, 0)`` with sum 1."""

from __future__ import annotations

import torch
from torch import Tensor

_NEWTON_STEPS = 40
# A sum that is this many roundings above 1 is as good as 1.
_ROUNDINGS = 2


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


def lower_bound(y: Tensor) -> Tensor:
    """Bound thresholds from below.

    Args:
        y: (R, K) scores whose row maxima are 0, floating point.

    Returns:
        (R, 1): the threshold if all scores were in the support, or -1.
    """
    return y.sum(1, keepdim=True).sub_(1).div_(y.shape[1]).clamp_(min=-1)


def newton_projection(
    y: Tensor, threshold: Tensor, out: Tensor, few: int = 0
) -> tuple[Tensor, Tensor | None]:
    """Project by Newton's method (Michelot 1986) from below, without a sort.

    ``f(t) = sum max(y - t, 0)`` is convex, so the steps rise to the root of ``f(t) = 1`` and end
    when they leave the support as it is: after fewer than 10 for all but contrived inputs. Rows
    that aren't done by then are sorted. A row that is done is left alone, so that its bits don't
    depend on the rows beside it.

    Args:
        y: (R, K) scores whose row maxima are 0, floating point; -inf never takes part.
        threshold: (R, 1) bounds below the thresholds to start from.
        out: (R, K) replaced by the projections.
        few: return once no more rows than these are left to do.

    Returns:
        (R, 1) thresholds, and None, or, with rows left, (R, 1) how far the sums of their
        projections are above 1, and 0 for rows that are done. Their thresholds are bounds still.
    """
    # An operation on a number takes longer, as it makes a tensor of it each time.
    zero, one = y.new_zeros(()), y.new_ones(())
    enough = _ROUNDINGS * torch.finfo(y.dtype).eps
    for _ in range(_NEWTON_STEPS):
        total = torch.sub(y, threshold, out=out).relu_().sum(1, keepdim=True)
        excess = torch.threshold_(total.sub_(one), enough, 0.0)
        many = int(excess.count_nonzero())
        if many <= few:
            return threshold, excess if many else None
        count = out.gt_(zero).sum(1, keepdim=True)
        before, threshold = threshold, torch.addcdiv(threshold, excess, count)
        if torch.equal(before, threshold):
            break
    else:
        threshold = torch.where(excess > 0, sorted_threshold(y), threshold)
    torch.sub(y, threshold, out=out).relu_()
    return threshold, None
