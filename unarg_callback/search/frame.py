"""Centre and whiten: the frame in which a row is nearly always its own witness."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unarg_callback.geometry.leaders import LeadEvaluator

_CHUNK = 4096
_CUTOFF = 1e-12


@dataclass(frozen=True, eq=False)
class Frame:
    """An affine change of rows and inputs that keeps every verdict.

    Subtracting ``mean`` from every row changes no lead. With ``S`` the covariance of the rows,
    whitened rows are ``root' (w_i - mean)`` and the input is ``x = root y``; steps in y are
    steps in x under the metric ``S^-1``, which is all that a search needs.

    Args:
        mean: (d,) float64, of the evaluator's rows.
        metric: (d, d) float64, ``S^-1`` (pseudo-inverse where the rows do not span R^d), or the
            identity.
        root: (d, d) float64, a square root of it: ``metric = root root'``.
    """

    mean: Tensor
    metric: Tensor
    root: Tensor

    def start(self, rows: Tensor) -> Tensor:
        """(n, d) points x at which y is the whitened row, from (n, d) rows of the evaluator."""
        return (rows - self.mean) @ self.metric


def raw_frame(dim: int, device: torch.device) -> Frame:
    """Return the paper's frame: rows as they are."""
    eye = torch.eye(dim, dtype=torch.float64, device=device)
    return Frame(torch.zeros(dim, dtype=torch.float64, device=device), eye, eye)


def whitening_frame(evaluator: LeadEvaluator) -> Frame:
    """Return the frame in which the active rows have mean 0 and covariance I."""
    dim, count = evaluator.layer.dim, evaluator.count
    total = torch.zeros(dim, dtype=torch.float64, device=evaluator.device)
    second = torch.zeros(dim, dim, dtype=torch.float64, device=evaluator.device)
    for at in range(0, count, _CHUNK):
        rows = evaluator.rows(slice(at, at + _CHUNK))
        total += rows.sum(0)
        second += rows.T @ rows
    mean = total / max(count, 1)
    return frame_of(mean, second / max(count, 1) - torch.outer(mean, mean))


def frame_of(mean: Tensor, covariance: Tensor) -> Frame:
    """Return the frame in which rows with these moments have mean 0 and covariance I.

    Args:
        mean: (d,) float64.
        covariance: (d, d) float64, positive semidefinite.
    """
    # Features first in units of their own, so that the cutoff means the same for each.
    deviation = covariance.diagonal().clamp_min(0).sqrt()
    unit = torch.where(deviation > 0, 1 / deviation, 0.0)
    values, vectors = torch.linalg.eigh(covariance * unit[:, None] * unit)
    keep = values > _CUTOFF * values[-1].clamp_min(torch.finfo(torch.float64).tiny)
    inverse = torch.where(keep, 1 / values.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    root = (vectors * inverse.sqrt()) * unit[:, None]
    return Frame(mean, root @ root.T, root)
