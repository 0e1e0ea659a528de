"""Which columns of long rows can hold nonzeros of the projection onto the simplex."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.activations.pieces import pieces
from unarg_callback.activations.threshold import lower_bound, newton_projection

# Rows of fewer columns aren't worth cutting into blocks.
WIDE = 256

_BLOCK = 16
# Beyond this share of a row the columns that are left cost more than the row.
_SHARE = 1 / 10
# From here on it pays to have threads meet once for one operation on everything.
_SHARED = 2**19


def block_maxima(x: Tensor) -> Tensor:
    """Return the largest of each block of 16 columns.

    Of n blocks block j has the columns j, j + n, j + 2n, ...: maxima are taken along whole runs.

    Args:
        x: (R, K) with K >= 16, floating point.

    Returns:
        (R, n + rest): the maxima of ``n = K // 16`` blocks, and the columns after them as they are.
    """
    blocks = x.shape[1] // _BLOCK
    whole = blocks * _BLOCK
    cut = (x,) if x.numel() > _SHARED else pieces(x, x.shape[1])
    highest = torch.cat([piece[:, :whole].unflatten(1, (_BLOCK, blocks)).amax(1) for piece in cut])
    return highest if whole == x.shape[1] else torch.cat([highest, x[:, whole:]], 1)


def block_thresholds(highest: Tensor) -> tuple[Tensor, Tensor | None]:
    """Bound the thresholds of rows by those of their blocks' maxima.

    The threshold of any subset of a row is a lower bound of the row's own, and no block whose
    maximum is below it has a nonzero.

    Args:
        highest: (R, n) as :func:`block_maxima` returns, less the row's maximum.

    Returns:
        (R, 1) lower bounds, and the rows and columns of the maxima above them, (N, 2) int64, row by
        row, or None where these are too many to be of use.
    """
    lower = None
    if highest.shape[1] >= WIDE:
        lower, _ = block_thresholds(block_maxima(highest))
    cut = pieces(highest, highest.shape[1])
    buffer = torch.empty_like(cut[0])
    found = []
    above: list[Tensor] | None = []
    left = int(_SHARE * highest.numel())
    start = 0
    for piece in cut:
        p = buffer[: len(piece)]
        bound = lower_bound(piece) if lower is None else lower[start : start + len(piece)]
        found.append(newton_projection(piece, bound, p)[0])
        left -= int(p.count_nonzero()) if above is not None else 0
        # A limit for all pieces together, so that how many there are makes no difference.
        if above is not None and left >= 0:
            places = p.nonzero()
            places[:, 0] += start
            above.append(places)
        else:
            above = None
        start += len(piece)
    return torch.cat(found), None if above is None else torch.cat(above)


def project_by_blocks(
    x: Tensor, top: Tensor, lower: Tensor, above: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Project rows whose nonzeros are in few blocks.

    Args:
        x: (R, K) contiguous float32 or float64, finite or -inf.
        top: (R, 1) the rows' maxima.
        lower: (R, 1) bounds of the thresholds, as :func:`block_thresholds` returns.
        above: (N, 2) the blocks above them, as it returns.

    Returns:
        (R, K) projections and the flat indices of their nonzeros, (M,) int64, row by row, or None
        where a row has too many.
    """
    columns = x.shape[1]
    row, places, y = _columns_above(x, top, lower, above)
    count = torch.bincount(row, minlength=len(x))
    most = int(count.max())
    if most > max(_BLOCK, _SHARE * columns):
        return None
    # One short row for each, filled up with -inf.
    first = count.cumsum(0).sub_(count)
    slot = torch.arange(len(row)).sub_(first.index_select(0, row)).add_(row, alpha=most)
    table = y.new_full((len(x) * most,), -torch.inf).index_copy_(0, slot, y).view(-1, most)
    cut = pieces(table, most)
    projected = []
    for piece, bound in zip(cut, lower.split(len(cut[0])), strict=True):
        newton_projection(piece, bound, p := torch.empty_like(piece))
        # The definition on the support: exact for scores that are, so that ties at it stay out.
        size = p.gt_(0).sum(1, keepdim=True)
        threshold = torch.where(p > 0, piece, 0).sum(1, keepdim=True).sub_(1).div_(size)
        projected.append(torch.sub(piece, threshold, out=p).relu_())
    p = torch.cat(projected).view(-1).index_select(0, slot)
    inside = p.nonzero().view(-1)
    support = places.index_select(0, inside)
    out = torch.zeros_like(x)
    out.view(-1).index_copy_(0, support, p.index_select(0, inside))
    return out, support


def _columns_above(
    x: Tensor, top: Tensor, lower: Tensor, above: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, flat indices and scores, less the row's maximum, of what is above ``lower``."""
    columns = x.shape[1]
    blocks = columns // _BLOCK
    rest = columns > blocks * _BLOCK
    steps = torch.arange(0, blocks * _BLOCK, blocks)
    found = []
    for piece in pieces(above, _BLOCK):
        row, block = piece.unbind(1)
        column = block[:, None] + steps
        if rest:
            alone = block[:, None] >= blocks
            column = torch.where(alone, block[:, None] + blocks * (_BLOCK - 1), column)
        flat = column.add_(row[:, None], alpha=columns).view(-1)
        y = x.view(-1).index_select(0, flat).view(-1, _BLOCK).sub_(top.index_select(0, row))
        inside = y > lower.index_select(0, row)
        if rest:
            inside[:, 1:] &= ~alone
        kept = inside.view(-1).nonzero().view(-1)
        row = row.index_select(0, kept.div(_BLOCK, rounding_mode="floor"))
        found.append((row, flat.index_select(0, kept), y.view(-1).index_select(0, kept)))
    rows, places, scores = (torch.cat(parts) for parts in zip(*found, strict=True))
    return rows, places, scores
