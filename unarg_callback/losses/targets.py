"""Class indices, label sets or distributions as targets; which rows count, and reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unarg_callback.activations.recording import is_readable
from unarg_callback.activations.scores import ScoresError, checked, largest, returned

Empty = Literal["ignore", "error"]
Reduction = Literal["mean", "sum", "none"]


class TargetError(ScoresError):
    """Targets, weights or options of a loss do not fit."""


@dataclass(frozen=True)
class Problem:
    """Scores and targets as a loss computes with them; classes along the last dimension.

    Attributes:
        z: (..., K) scores, float32 or float64, none of them -inf;
            0 in rows that don't count.
        eta: (..., K) target distributions; 0 outside of ``mask`` and in rows that don't count.
        mask: (..., K) classes that take part: those at -inf don't. None if all do.
        weight: (...) weights; 0 for rows that don't count.
        impossible: (...) rows that have a label at -inf: their loss is infinite.
    """

    z: Tensor
    eta: Tensor
    mask: Tensor | None
    weight: Tensor
    impossible: Tensor

    def reduce(self, loss: Tensor, reduction: Reduction, like: Tensor) -> Tensor:
        """Weigh (...) losses and sum them up; "mean" divides by the sum of the weights.

        Where no row counts the mean is 0.

        Raises:
            TargetError: the reduction is unknown.
        """
        check_options("ignore", reduction)
        loss = torch.where(self.impossible, torch.inf, loss)
        weighted = torch.where(self.weight > 0, loss * self.weight, 0)
        if reduction == "mean":
            total = self.weight.sum()
            weighted = weighted.sum() / torch.where(total > 0, total, 1)
        elif reduction == "sum":
            weighted = weighted.sum()
        return returned(weighted, like)


def check_options(empty: Empty, reduction: Reduction) -> None:
    """Raise TargetError where an option is none of those that there are."""
    if empty not in ("ignore", "error"):
        raise TargetError(f"empty is {empty!r}, expected 'ignore' or 'error'")
    if reduction not in ("mean", "sum", "none"):
        raise TargetError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")


def at_least_zero(loss: Tensor) -> Tensor:
    """Take what rounding left below 0 for 0, with the gradient as it is."""
    return torch.where(loss < 0, loss - loss.detach(), loss)


def problem(
    z: Tensor,
    target: Tensor,
    *,
    dim: int,
    mask: Tensor | None,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    ignore_index: int,
    empty: Empty,
) -> Problem:
    """Bring scores and targets into one form; the losses' docstrings describe the arguments.

    Raises:
        TargetError: targets or weights don't fit, or a row has no label and ``empty`` is "error".
        ScoresError: scores, dimension or mask don't fit together.
    """
    scores = checked(z, dim, mask).movedim(dim, -1)
    check_options(empty, "none")
    ignored, share = _share(target, z, scores, dim, ignore_index)
    part = None if mask is None else mask.expand(z.shape).movedim(dim, -1)
    if part is not None:
        share = share.masked_fill(~part, 0)
    size = share.sum(-1, keepdim=True)
    counted = size > 0
    if empty == "error" and is_readable(size) and bool((~(counted[..., 0] | ignored)).any()):
        raise TargetError(
            "a row has no label that takes part: its target distribution is undefined; leave such "
            "rows out, or let them be ignored with empty='ignore'"
        )
    eta = share / torch.where(counted, size, 1)
    rows = _row_weight(eta, counted[..., 0], weight, sample_weight)
    impossible = torch.zeros_like(rows, dtype=torch.bool)
    if not (is_readable(counted) and bool(counted.all())):
        scores = torch.where(counted, scores, 0)
    # The lowest score alone tells that no class has to be taken out.
    empty_batch = scores.numel() == 0
    if part is None and is_readable(scores) and (empty_batch or bool(scores.amin() > -torch.inf)):
        return Problem(scores, eta, None, rows, impossible)
    outside = scores.isneginf() if part is None else part & scores.isneginf()
    impossible = (outside & (eta > 0)).any(-1)
    part = ~outside if part is None else part & ~outside
    scores = torch.where(part, scores, _highest(scores, part))
    return Problem(scores, eta.masked_fill(~part, 0), part, rows, impossible)


def _highest(scores: Tensor, part: Tensor) -> Tensor:
    top = largest(scores.detach().masked_fill(~part, -torch.inf), -1)
    return torch.where(top.isneginf(), 0, top)


def _share(
    target: Tensor, z: Tensor, scores: Tensor, dim: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return which rows are to be ignored, and a nonnegative share for each class."""
    rows = scores.shape[:-1]
    whole = not target.is_floating_point() and target.dtype != torch.bool
    if target.shape == rows and whole:
        ignored = target == ignore_index
        index = torch.where(ignored, 0, target)
        bad = (index < 0) | (index >= scores.shape[-1])
        if is_readable(bad) and bool(bad.any()):
            raise TargetError(
                f"a class index is {int(index[bad][0])}, expected 0 to {scores.shape[-1] - 1}, or "
                f"{ignore_index} for a row to ignore"
            )
        share = torch.zeros_like(scores).scatter(-1, index.long().unsqueeze(-1), 1)
        return ignored, share.masked_fill(ignored.unsqueeze(-1), 0)
    if target.shape != z.shape:
        raise TargetError(
            f"targets have shape {tuple(target.shape)} and dtype {target.dtype}; expected class "
            f"indices of shape {tuple(rows)}, or label sets or distributions of shape "
            f"{tuple(z.shape)}"
        )
    share = target.movedim(dim, -1).to(scores.dtype)
    checks = target.dtype != torch.bool and is_readable(share) and share.numel() > 0
    if checks and not bool(share.amin() >= 0):
        raise TargetError("targets have negative values or NaN, expected 0 and above")
    return torch.zeros(rows, dtype=torch.bool, device=z.device), share


def _row_weight(
    eta: Tensor, counted: Tensor, weight: Tensor | None, sample_weight: Tensor | None
) -> Tensor:
    rows = counted.to(eta.dtype)
    if weight is not None:
        if weight.shape != eta.shape[-1:]:
            raise TargetError(
                f"weight has shape {tuple(weight.shape)}, expected ({eta.shape[-1]},), one a class"
            )
        rows = rows * (eta.detach() * weight.to(eta.dtype)).sum(-1)
    if sample_weight is not None:
        if sample_weight.shape != rows.shape:
            raise TargetError(
                f"sample_weight has shape {tuple(sample_weight.shape)}, expected "
                f"{tuple(rows.shape)}, one a row"
            )
        rows = rows * sample_weight.to(eta.dtype)
    return rows
