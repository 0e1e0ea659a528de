"""Count the keys of a batch that no query can put first, for each attention layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.attention import verify_keys
from unarg_callback.errors import UnargError
from unarg_callback.geometry.proof import Status
from unarg_callback.search.limits import Limits


@dataclass(frozen=True, eq=False)
class KeyBatch:
    """The keys of some sequences, for one attention layer.

    Args:
        layer: its part of each tag.
        keys: (N, heads, S, d), on the CPU; None if there are none.
        allowed: (N, heads or 1, T, S) bool, which keys each query may see; None for all.
        direction: (heads, d) of additive scores, or None for scaled dot products.
        by_size: whether scores are ranked by their size.
        reason: why there are no keys, or None.
    """

    layer: str
    keys: Tensor | None = None
    allowed: Tensor | None = None
    direction: Tensor | None = None
    by_size: bool = False
    reason: str | None = None


def count_keys(
    batches: Sequence[KeyBatch],
    time_limit: float | None = None,
    stop: Callable[[], bool] | None = None,
) -> dict[str, dict[str, float]]:
    """Count, over sequences and heads, the keys of each layer that no query can put first.

    Args:
        batches: one a layer.
        time_limit: seconds for all, which they get equal parts of; what is left is undecided.
        stop: asked now and then; once it says yes, the rest is undecided.

    Returns:
        By layer: "keys", "never_first" (proven) and "undecided".
    """
    limits = Limits(time_limit, stop=stop)
    counted: dict[str, dict[str, float]] = {}
    for at, batch in enumerate(batches):
        if batch.keys is None:
            continue
        left = limits.remaining() / (len(batches) - at) if limits.limited else None
        counted[batch.layer] = _count(batch, Limits(left, stop=stop))
    return counted


def left_out(
    shape: Iterable[int],
    heads: int,
    queries: int,
    padding: Tensor | None,
    mask: Tensor | None,
    causal: bool,
) -> Tensor | None:
    """(N, heads or 1, T or 1, S) bool, on the CPU: what queries may not see; None for nothing.

    Args:
        shape: N and S.
        heads: of the layer.
        queries: T.
        padding: (N, S), bool or, as ``nn.MultiheadAttention`` takes it, 0 and -inf.
        mask: (T, S), (N * heads, T, S) or (N, heads, T, S), likewise.
        causal: whether query t sees keys 0 to t only.

    Raises:
        UnargError: a mask adds other numbers to scores.
    """
    rows, keys = shape
    out: list[Tensor] = []
    if padding is not None:
        out.append(_barred(padding)[:, None, None, :])
    if mask is not None:
        barred = _barred(mask)
        if barred.dim() == 3:
            barred = barred.reshape(rows, heads, *barred.shape[1:])
        out.append(barred if barred.dim() == 4 else barred[None, None])
    if causal:
        out.append(torch.ones(1, 1, queries, keys, dtype=torch.bool).triu(1))
    found = None
    for part in out:
        found = part if found is None else found | part
    return found


def _barred(mask: Tensor) -> Tensor:
    mask = mask.cpu()
    if mask.dtype == torch.bool:
        return mask
    barred = mask.isneginf()
    if bool(((mask != 0) & ~barred).any()):
        raise UnargError("its float mask adds to scores, so keys aren't all that decides")
    return barred


def _count(batch: KeyBatch, limits: Limits) -> dict[str, float]:
    assert batch.keys is not None
    counts = dict.fromkeys(Status, 0)
    for row, by_head in enumerate(batch.keys):
        for head, keys in enumerate(by_head):
            allowed = None
            if batch.allowed is not None:
                masks = batch.allowed[row if len(batch.allowed) > 1 else 0]
                allowed = masks[head if len(masks) > 1 else 0]
            report = verify_keys(
                keys,
                allowed,
                direction=None if batch.direction is None else batch.direction[head],
                by_size=batch.by_size,
                time_limit=max(limits.remaining(), 1e-9) if limits.limited else None,
                stop=limits.reached,
            )
            for status in Status:
                counts[status] += int((report.status == status).sum())
    return {
        "keys": float(sum(counts.values()) - counts[Status.EXCLUDED]),
        "never_first": float(counts[Status.UNARGMAXABLE]),
        "undecided": float(counts[Status.UNDECIDED]),
    }
