"""The projection onto the probability simplex as a differentiable function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from unarg_callback.activations.pieces import pieces
from unarg_callback.activations.recording import is_recorded, is_traced, is_wrapped
from unarg_callback.activations.simplex import project_rows
from unarg_callback.activations.threshold import sorted_threshold


def project(y: Tensor, dim: int = -1) -> Tensor:
    """Project onto the probability simplex along one dimension: ``argmin_p |p - y|^2``.

    The Jacobian is ``diag(1_S) - 1_S 1_S^T / |S|`` on the support S (Martins & Astudillo 2016,
    section 2.5), so the vector-Jacobian product costs what the support costs.

    Args:
        y: float32 or float64, of one or more dimensions; -inf stays out of the support.
        dim: the dimension of the classes.

    Returns:
        Same shape and dtype. Where a row has NaN or +inf, or nothing above -inf, it is NaN, and its
        gradient 0.
    """
    if not is_traced() and y.numel() == 0:
        return y.clone()
    moved = y.movedim(dim, -1)
    if is_recorded(moved):
        return plain_projection(moved).movedim(-1, dim)
    rows = moved.reshape(-1, moved.shape[-1]).contiguous()
    projected, _ = _Projection.apply(rows)
    return projected.view(moved.shape).movedim(-1, dim)


def plain_projection(y: Tensor) -> Tensor:
    """Project along the last dimension with operations that every tracer and exporter knows.

    Args:
        y: (..., K) float32 or float64.

    Returns:
        As :func:`project` does.
    """
    y = y - y.amax(-1, keepdim=True).detach()
    with torch.no_grad():
        support = y > sorted_threshold(y)
        count = support.sum(-1, keepdim=True)
        undefined = count == 0
    threshold = (torch.where(support, y, 0).sum(-1, keepdim=True) - 1) / count.clamp_min(1)
    inside = torch.where(support, y - threshold, 0).clamp_min(0)
    return torch.where(undefined, torch.nan, inside)


class _Projection(Function):
    """Rows to projections and the flat indices of their nonzeros, as ``project_rows``."""

    @staticmethod
    def forward(y: Tensor) -> tuple[Tensor, Tensor]:
        return project_rows(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> Tensor | None:
        p, support = ctx.saved_tensors
        return None if grad is None else _Tangent.apply(grad, p, support)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None) -> tuple[Tensor | None, None]:
        p, support = ctx.saved_tensors
        return None if tangent is None else _Tangent.apply(tangent, p, support), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], y: Tensor) -> tuple[tuple[Tensor, Tensor], Any]:
        batched = y.movedim(in_dims[0], 0)
        p, support = _Projection.apply(batched.flatten(0, 1).contiguous())
        return (p.view(batched.shape), support), (0, None)


class _Tangent(Function):
    """``v - mean of v over the support`` on each row's support, 0 elsewhere: its own adjoint."""

    @staticmethod
    def forward(v: Tensor, p: Tensor, support: Tensor) -> Tensor:
        if is_wrapped(v):  # As torch.autograd.grad(is_grads_batched=True) does.
            inside = (p > 0).to(v.dtype)
            kept = v * inside
            return kept - inside * (kept.sum(1, True) / inside.sum(1, True).clamp_min(1))
        return _listed(v, support) if len(support) else _masked(v, p)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Tangent.apply(grad, *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return _Tangent.apply(tangent, *ctx.saved_tensors)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], v: Tensor, p: Tensor, support: Tensor
    ) -> tuple[Tensor, int]:
        v, p = (
            x.expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0)
            for x, at in zip((v, p), in_dims[:2], strict=True)
        )
        none = support.new_empty(0)
        flat = _Tangent.apply(v.flatten(0, 1), p.flatten(0, 1), none)
        return flat.view(v.shape), 0


def _masked(v: Tensor, p: Tensor) -> Tensor:
    out = torch.empty_like(v)
    zero, one = v.new_zeros(()), v.new_ones(())
    width = v.shape[1]
    cut = pieces(v, width)
    buffer = torch.empty_like(cut[0])
    for grad, projected, target in zip(cut, pieces(p, width), pieces(out, width), strict=True):
        inside = torch.gt(projected, zero, out=buffer[: len(grad)])
        kept = torch.mul(grad, inside, out=target)
        count = torch.maximum(inside.sum(1, keepdim=True), one)
        target.addcmul_(inside, kept.sum(1, keepdim=True).div_(count), value=-1)
    return out


def _listed(v: Tensor, support: Tensor) -> Tensor:
    rows, columns = v.shape
    row = support // columns
    kept = v.reshape(-1).index_select(0, support)
    total = kept.new_zeros(rows).index_add_(0, row, kept)
    count = torch.bincount(row, minlength=rows)
    out = torch.zeros(rows * columns, dtype=v.dtype)
    out.index_copy_(0, support, kept.sub_(total.div_(count).index_select(0, row)))
    return out.view(rows, columns)
