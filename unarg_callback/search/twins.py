"""Classes with equal rows: the one case where a certificate can be read off.

Of classes with one row, only the bias tells who is ahead, at every input alike. So a class whose
bias is not the highest of its group, or that shares the highest, never leads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.geometry.layer import OutputLayer

_CHUNK_ELEMENTS = 2**21


@dataclass(frozen=True, eq=False)
class Twins:
    """Groups of equal rows among the active classes.

    Args:
        beaten_by: (A,) int64 on the CPU, a class with the same row and no lower bias, or -1.
        duplicate_of: (A,) int64 on the CPU, lowest other class with the same row and bias, or -1.
    """

    beaten_by: Tensor
    duplicate_of: Tensor

    @classmethod
    def none(cls, count: int) -> Twins:
        """No class has an equal."""
        nobody = torch.full((count,), -1, dtype=torch.int64)
        return cls(nobody, nobody.clone())


def find_twins(layer: OutputLayer) -> Twins:
    """Group the active rows by exact equality (-0.0 equals 0.0)."""
    active = layer.active.to(layer.device)
    twins = Twins.none(len(active))
    hashes = torch.zeros(len(active), dtype=torch.int64)
    chunk = max(1, _CHUNK_ELEMENTS // layer.dim)
    for at in range(0, len(active), chunk):
        hashes[at : at + chunk] = row_hashes(layer.rows(active[at : at + chunk])).cpu()
    _, group, size = torch.unique(hashes, return_inverse=True, return_counts=True)
    suspects = (size[group] > 1).nonzero().squeeze(1)
    by_row: dict[bytes, list[int]] = {}
    for at in suspects.tolist():
        row = layer.rows(active[at : at + 1]).cpu() + 0.0
        by_row.setdefault(row.numpy().tobytes(), []).append(at)
    for members in by_row.values():
        if len(members) > 1:
            bias = layer.biases(active[torch.tensor(members)]).tolist()
            _mark(members, bias, twins.beaten_by, twins.duplicate_of)
    return twins


def row_hashes(rows: Tensor) -> Tensor:
    """Return (n,) int64 hashes of (n, d) float64 rows.

    Equal rows have equal hashes, whatever stands around them, on any machine; -0.0 equals 0.0.
    """
    bits = (rows + 0.0).contiguous().view(torch.int64)
    places = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=torch.int64)
    odd = places * -7046029254386353131 | 1
    mixed = (bits ^ (bits >> 29)) * odd
    return (mixed ^ (mixed >> 32)).sum(1)


def _mark(members: list[int], bias: list[float], beaten_by: Tensor, duplicate_of: Tensor) -> None:
    """Fill in one group; ``members`` ascend."""
    first: dict[float, list[int]] = {}
    for member, value in zip(members, bias, strict=True):
        first.setdefault(value, []).append(member)
    highest = first[max(first)]
    for same in first.values():
        for member in same:
            if len(same) > 1:
                duplicate_of[member] = same[0] if member != same[0] else same[1]
    for member in members:
        others = [m for m in highest[:2] if m != member]
        if others:
            beaten_by[member] = others[0]
