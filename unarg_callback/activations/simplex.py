"""The projection of many rows onto the simplex."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.activations.blocks import (
    WIDE,
    block_maxima,
    block_thresholds,
    project_by_blocks,
)
from unarg_callback.activations.pieces import pieces
from unarg_callback.activations.threshold import lower_bound, newton_projection

# Once at most one in so many rows of a piece is left to do, those of all pieces are put together.
_LEFT = 5


def project_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Project each row onto the probability simplex.

    Args:
        x: (R, K) contiguous float32 or float64.

    Returns:
        (R, K) projections, of the dtype of ``x``, and the flat indices of the nonzeros, row by row:
        (N,) int64. It is empty unless rows are long and the nonzeros few. Rows with NaN or +inf,
        and rows of -inf, are NaN.
    """
    long = x.shape[1] >= WIDE and x.device.type == "cpu"
    highest = block_maxima(x) if long else x
    top = torch.cat([piece.amax(1, keepdim=True) for piece in pieces(highest, highest.shape[1])])
    undefined = ~top.isfinite()
    if undefined.any():
        # Something easy in their place, as NaN would stop neither loops nor sorts.
        easy = torch.full_like(x[:1], -2)
        easy[:, 0] = 0
        p, support = project_rows(torch.where(undefined, easy, x))
        return p.masked_fill_(undefined, torch.nan), support
    lower = None
    if long:
        lower, above = block_thresholds(_less(highest, top))
        found = None if above is None else project_by_blocks(x, top, lower, above)
        if found is not None:
            return found
    return _project_whole(x, top, lower), torch.empty(0, dtype=torch.int64, device=x.device)


def _less(x: Tensor, top: Tensor) -> Tensor:
    """Subtract the maxima in place."""
    cut = pieces(x, x.shape[1])
    for piece, highest in zip(cut, top.split(len(cut[0])), strict=True):
        piece.sub_(highest)
    return x


def _project_whole(x: Tensor, top: Tensor, lower: Tensor | None) -> Tensor:
    """Project with all columns; ``top`` has the maxima, ``lower`` bounds of the thresholds."""
    out = torch.empty_like(x)
    cut = pieces(x, x.shape[1])
    buffer = torch.empty_like(cut[0])
    few = len(buffer) // _LEFT if len(cut) > 1 else 0
    bounds, left = [], []
    start = 0
    for piece in cut:
        rows = slice(start, start + len(piece))
        y = torch.sub(piece, top[rows], out=buffer[: len(piece)])
        bound = lower_bound(y)
        if lower is not None:
            bound = torch.maximum(bound, lower[rows])
        bound, excess = newton_projection(y, bound, out[rows], few)
        bounds.append(bound)
        left.append(torch.zeros_like(bound) if excess is None else excess)
        start = rows.stop
    rest = torch.cat(left).view(-1).nonzero().view(-1)
    if len(rest):
        bound = torch.cat(bounds)
        for some in pieces(rest, x.shape[1]):
            y = x.index_select(0, some).sub_(top.index_select(0, some))
            newton_projection(y, bound.index_select(0, some), p := torch.empty_like(y))
            out.index_copy_(0, some, p)
    return out
