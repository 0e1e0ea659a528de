"""Certificates of the free domain: a simplex of rivals with the class's row inside."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.search.exact import Outcome
from unarg_callback.search.frame import Frame
from unarg_callback.search.linear_program import LinearProgram

_SECONDS = 30.0
_POSITIVE = 1e-11


def simplex_certificate(
    checker: Checker, frame: Frame, target: int, rivals: NDArray[np.int64]
) -> Outcome | None:
    """Find at most d + 1 of the rivals whose simplex holds the target's row.

    A vertex of ``{lambda >= 0 : sum lambda_i (w_i - w_t) = 0, sum lambda_i = 1}`` has d + 1 nonzero
    entries at most. The vertex with the largest ``sum lambda_i b_i`` gives the best bound; where
    that ties or fails, the one of the nearest rivals gives the best conditioned simplex.

    Args:
        checker: decides.
        frame: whitens, for conditioning.
        target: the class.
        rivals: (m,) int64 to choose from.
    """
    device = checker.layer.device
    ids = torch.from_numpy(rivals).to(device)
    rows = checker.sweep.rows(ids) - checker.sweep.rows(torch.tensor([target], device=device))
    moved = (rows @ frame.root).cpu().numpy()
    bias = checker.sweep.biases(ids).cpu().numpy()
    objectives = [(moved**2).sum(axis=1)]
    if np.ptp(bias) > 0:
        objectives.insert(0, -bias / np.ptp(bias))
    equations = np.vstack([moved.T, np.ones(len(rivals))])
    size = np.abs(equations).max(axis=1).clip(1e-300)
    right = np.append(np.zeros(checker.layer.dim), 1.0) / size
    for cost in objectives:
        program = LinearProgram(cost, np.zeros(len(rivals)), np.full(len(rivals), np.inf))
        program.add_rows(equations / size[:, None], right, right)
        found = program.solve(_SECONDS)
        if found is None:
            return None
        used = found.value > _POSITIVE
        if not 0 < used.sum() <= checker.layer.dim + 1:
            continue
        support, weight = rivals[used], found.value[used]
        accepted, bound = checker.certificate(target, support, weight)
        if accepted:
            return Outcome(target, lead=bound, support=support, weight=weight / weight.sum())
    return None


def barycentric_weights(
    checker: Checker, target: int, support: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(m,) float64, about the barycentric coordinates of a class's row among its support."""
    rows = checker.sweep.rows(torch.from_numpy(support).to(checker.layer.device))
    own = checker.sweep.rows(torch.tensor([target], device=checker.layer.device))
    matrix = torch.cat([(rows - own).T, torch.ones_like(rows[:, :1]).T]).cpu().numpy()
    size = np.abs(matrix).max(axis=1, initial=0.0).clip(1e-300)
    right = np.append(np.zeros(checker.layer.dim), 1.0) / size
    weight = np.linalg.lstsq(matrix / size[:, None], right, rcond=None)[0].clip(0.0)
    return np.asarray(weight / weight.sum())


def share_simplex(checker: Checker, certificate: Outcome, targets: Tensor) -> list[Outcome]:
    """Certify all targets whose rows lie in the simplex of an accepted certificate.

    Args:
        checker: decides.
        certificate: with a support of d + 1 rivals.
        targets: (n,) int64 on the CPU.
    """
    assert certificate.support is not None
    if len(certificate.support) != checker.layer.dim + 1:
        return []
    device = checker.layer.device
    support = torch.from_numpy(certificate.support).to(device)
    vertices = checker.sweep.rows(support)
    matrix = torch.cat([vertices.T, torch.ones_like(vertices[:1, :1]).expand(1, len(support))])
    inverse = torch.linalg.pinv(matrix)
    outcomes: list[Outcome] = []
    for part in targets[~torch.isin(targets, support.cpu())].split(4096):
        rows = checker.sweep.rows(part.to(device))
        weight = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1) @ inverse.T
        for at in (weight > 0).all(1).nonzero().squeeze(1).tolist():
            target = int(part[at])
            proposal = np.asarray(weight[at].cpu())
            accepted, bound = checker.certificate(target, certificate.support, proposal)
            if accepted:
                outcomes.append(
                    Outcome(target, lead=bound, support=certificate.support, weight=proposal)
                )
    return outcomes
