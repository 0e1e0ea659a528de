"""The projection of many rows onto the simplex, in pieces that stay in the processor's cache."""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.activations.threshold import newton_threshold

_LONG = 1024
_BLOCK = 16
_FEW = 3
_ONE_THREAD = 2**17
# PyTorch works on fewer elements than this in one thread. On few cores it costs more than it saves
# to have threads meet after each of many short operations.
_GRAIN = 2**15
_FEW_THREADS = 4
_MANY = 16


def project_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Project each row onto the probability simplex.

    Args:
        x: (R, K) contiguous float32 or float64.

    Returns:
        (R, K) projections, of the dtype of ``x``, and the flat indices of the nonzeros, row by row:
        (N,) int64. It is empty unless rows are long and the nonzeros few. Rows with NaN or +inf,
        and rows of -inf, are NaN.
    """
    none = torch.empty(0, dtype=torch.int64, device=x.device)
    if x.shape[1] < _LONG or x.device.type != "cpu":
        _dense(x, out := torch.empty_like(x))
        return out, none
    out = torch.zeros_like(x)
    found: list[Tensor | None] = []
    start = 0
    for piece in pieces(x, x.shape[1] // _BLOCK):
        support = _by_blocks(piece, out[start : start + len(piece)])
        found.append(None if support is None else support + start * x.shape[1])
        start += len(piece)
    listed = [support for support in found if support is not None]
    return out, (torch.cat(listed) if len(listed) == len(found) else none)


def pieces(x: Tensor, width: int) -> tuple[Tensor, ...]:
    """Split rows into runs short enough to work on at once.

    Args:
        x: (R, ...) rows.
        width: columns worked on at once.

    Returns:
        One or more views. Elsewhere than on the CPU it is one.
    """
    if x.device.type != "cpu":
        return (x,)
    threads = torch.get_num_threads()
    if threads == 1:
        size = _ONE_THREAD
    else:
        # A row too long for one thread had better share its operations with others.
        apart = threads <= _FEW_THREADS and width < _GRAIN
        size = _GRAIN - 1 if apart else max(threads, _MANY) * _GRAIN
    return x.split(max(1, size // width))


def _dense(x: Tensor, out: Tensor, top: Tensor | None = None, lower: Tensor | None = None) -> None:
    start = 0
    for piece in pieces(x, x.shape[1]):
        rows = slice(start, start + len(piece))
        y = piece - (piece.amax(1, keepdim=True) if top is None else top[rows])
        threshold = newton_threshold(y, None if lower is None else lower[rows])
        torch.sub(y, threshold, out=out[rows]).clamp_(min=0)
        start += len(piece)


def _by_blocks(x: Tensor, out: Tensor) -> Tensor | None:
    """Look only where the largest of a block can be in the support; ``out`` is zero before.

    The threshold of any subset of a row is a lower bound of the row's own. That of the maxima of
    all blocks leaves few blocks. Block j has the columns j, j + n, j + 2n, ... for n blocks: their
    maxima are taken along whole runs.

    Returns:
        Flat indices of the nonzeros, or None where blocks were no use.
    """
    columns = x.shape[1]
    blocks = columns // _BLOCK
    whole = blocks * _BLOCK
    highest = x[:, :whole].unflatten(1, (_BLOCK, blocks)).amax(1)
    y = torch.cat([highest, x[:, whole:]], 1)
    top = y.amax(1, keepdim=True)
    lower = newton_threshold(y.sub_(top))
    keep = y[:, :blocks] > lower
    most = int(keep.sum(1).max())
    if most * _BLOCK * _FEW > columns or bool(lower.isnan().any()):
        _dense(x, out, top, lower)
        return None
    found = []
    start = 0
    for piece in pieces(keep, most * _BLOCK + columns - whole):
        rows = slice(start, start + len(piece))
        found.append(_among(piece, x[rows], top[rows], lower[rows], out[rows]) + start * columns)
        start += len(piece)
    return torch.cat(found)


def _among(keep: Tensor, x: Tensor, top: Tensor, lower: Tensor, out: Tensor) -> Tensor:
    """Write the projections, which are 0 outside of the blocks to keep and the columns after them.

    Returns:
        Flat indices of the nonzeros.
    """
    columns, blocks = x.shape[1], keep.shape[1]
    whole = blocks * _BLOCK
    kept, absent = _padded(keep, x.dtype)
    within = (kept[:, :, None] + torch.arange(0, whole, blocks)).flatten(1)
    p = x.gather(1, within)
    p.unflatten(1, (-1, _BLOCK)).add_(absent[:, :, None])
    if whole < columns:
        within = torch.cat([within, torch.arange(whole, columns).expand(len(x), -1)], 1)
        p = torch.cat([p, x[:, whole:]], 1)
    p = p.sub_(top)
    p = p.sub_(newton_threshold(p, lower)).clamp_(min=0).view(-1)
    places = p.nonzero().view(-1)
    row = places.div(within.shape[1], rounding_mode="floor")
    support = within.view(-1)[places] + row * columns
    out.view(-1)[support] = p[places]
    return support


def _padded(keep: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return places where ``keep`` is True, row by row, and 0 for each, -inf for padding."""
    count = keep.sum(1)
    most = int(count.max())
    rows, places = keep.nonzero(as_tuple=True)
    first = count.cumsum(0) - count
    slot = rows * most + torch.arange(len(rows)) - first[rows]
    kept = torch.zeros(len(keep) * most, dtype=torch.int64)
    absent = torch.full((len(keep) * most,), -torch.inf, dtype=dtype)
    kept[slot] = places
    absent[slot] = 0
    return kept.view(-1, most), absent.view(-1, most)
