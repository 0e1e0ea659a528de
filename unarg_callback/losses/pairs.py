"""The sum over pairs of classes in both hinge losses, in O(K log K)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unarg_callback.activations.recording import is_readable
from unarg_callback.activations.scores import largest
from unarg_callback.losses.targets import TargetError

Pairs = Literal["ordered", "unordered"]


def within_labels(pairs: Pairs) -> float:
    """How often a pair of labels counts.

    Raises:
        TargetError: ``pairs`` is neither "ordered" nor "unordered".
    """
    if pairs not in ("ordered", "unordered"):
        raise TargetError(f"pairs is {pairs!r}, expected 'ordered' or 'unordered'")
    return 2.0 if pairs == "ordered" else 1.0


def pair_sum(b: Tensor, labels: Tensor, mask: Tensor | None, within: float) -> Tensor:
    """``within * sum_{i<j in P} |b_i - b_j| + sum_{i in P, j in N} max(b_j - b_i, 0)``.

    In ascending order a pair's difference is the sum of the gaps between its two, so each gap
    counts as often as pairs span it. All terms are nonnegative: nothing cancels, and a sum that is
    0 comes out as 0. The gradient counts pairs too; it is 0 between equal values.

    Args:
        b: (..., K) floating point.
        labels: (..., K) bool, P.
        mask: (..., K) bool, labels and all of N; the rest is left out. None takes all.
        within: how often a pair within P counts.

    Returns:
        (...) sums.
    """
    with torch.no_grad():
        values = b.detach()
        if mask is not None:
            # At the upper end what is left out spans no gap.
            top = largest(values.masked_fill(~mask, -torch.inf), -1)
            values = torch.where(mask, values, top)
        order = _order(values)
        ordered = values.gather(-1, order)
        p = labels.gather(-1, order)
        n = ~p if mask is None else (mask & ~labels).gather(-1, order)
        sides = _Sides.of(p, n, b.dtype)
        p, n = p.to(b.dtype), n.to(b.dtype)
        gaps = ordered.diff(dim=-1)
        spans = sides.p_upto * (within * sides.p_after + sides.n_after)
        value = (gaps * spans[..., :-1]).sum(-1)
        slope = _slope(gaps, p, n, sides, within)
        slope = torch.zeros_like(slope).scatter(-1, order, slope)
    # The value without the cancellation of sum(slope * b), and its gradient.
    return value + (slope * (b - b.detach())).sum(-1)


class _Sides(NamedTuple):
    """How many of P are up to a place in ascending order, and how many of P and of N after it."""

    p_upto: Tensor
    p_after: Tensor
    n_after: Tensor

    @classmethod
    def of(cls, p: Tensor, n: Tensor, dtype: torch.dtype) -> _Sides:
        # Of bool, so of integers: CUDA has no deterministic cumulative sum of floating point.
        p_upto, n_upto = (side.cumsum(-1).to(dtype) for side in (p, n))
        return cls(p_upto, p_upto[..., -1:] - p_upto, n_upto[..., -1:] - n_upto)


def _order(values: Tensor) -> Tensor:
    """Ascending order along the last dimension; NumPy sorts several times faster than PyTorch."""
    if is_readable(values):
        return torch.from_numpy(values.numpy().argsort(-1))
    return values.argsort(dim=-1)


def _slope(gaps: Tensor, p: Tensor, n: Tensor, sides: _Sides, within: float) -> Tensor:
    """Derivative by each value in ascending order, with equal values on neither side."""
    p_upto, p_above, n_above = sides
    p_below = p_upto - p
    if not (is_readable(gaps) and bool((gaps > 0).all())):
        edge = torch.ones_like(p[..., :1], dtype=torch.bool)
        rises = gaps > 0
        places = torch.arange(p.shape[-1], device=p.device).expand(p.shape)
        first = torch.where(torch.cat([edge, rises], -1), places, 0).cummax(-1).values
        last = torch.where(torch.cat([rises, edge], -1), places, p.shape[-1])
        last = last.flip(-1).cummin(-1).values.flip(-1)
        p_below = p_below.gather(-1, first)
        p_above, n_above = p_above.gather(-1, last), n_above.gather(-1, last)
    return p * (within * (p_below - p_above) - n_above) + n * p_below
