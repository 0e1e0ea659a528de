"""One certificate proves many: carry its weights over to other classes.

With weights lambda that certify t over rivals S, M = [W_S'; 1'] and D = diag(lambda),

    lambda_u = lambda + D M' (M D M')^-1 [w_u - w_t; 0]

has the same sum and combines S to w_u just as lambda combines it to w_t: among the weights that do,
the nearest to lambda in the norm of D^-1. Where none is negative, and the biases allow it, u is
certified. One factorisation serves all u.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.search.exact import Outcome


def share(checker: Checker, certificate: Outcome, targets: Tensor) -> list[Outcome]:
    """Certify as many targets as one accepted certificate allows.

    Args:
        checker: decides.
        certificate: an outcome with support and weight.
        targets: (n,) int64 on the CPU, undecided classes.

    Returns:
        An outcome for each target certified.
    """
    assert certificate.support is not None
    assert certificate.weight is not None
    device = checker.layer.device
    everyone = targets[~torch.isin(targets, torch.from_numpy(certificate.support))]
    support = torch.from_numpy(certificate.support).to(device)
    weight = torch.from_numpy(certificate.weight).to(device)
    # Differences to w_t keep the columns of one size, whatever offset the rows share.
    origin = checker.sweep.rows(torch.tensor([certificate.target], device=device))
    vertices = checker.sweep.rows(support) - origin
    matrix = torch.cat([vertices, torch.ones_like(vertices[:, :1])], dim=1)
    size = matrix.abs().amax(0).clamp_min(torch.finfo(torch.float64).tiny)
    matrix = matrix / size
    normal = matrix.T @ (matrix * weight[:, None])
    carry = torch.linalg.pinv(normal, hermitian=True, rtol=1e-14) @ (matrix * weight[:, None]).T
    outcomes: list[Outcome] = []
    for part in everyone.split(4096):
        moved = checker.sweep.rows(part.to(device)) - origin
        moved = torch.cat([moved, torch.zeros_like(moved[:, :1])], dim=1) / size
        shared = weight + moved @ carry
        # Rounding can leave a zero weight a hair below zero.
        shared = torch.where(shared > -1e-12, shared.clamp_min(0), shared)
        at = (shared >= 0).all(1).nonzero().squeeze(1)
        if not len(at):
            continue
        own = part[at.cpu()]
        supports = support.expand(len(at), -1)
        accepted, bound = checker.certificates(own.to(device), supports, shared[at])
        for row in accepted.nonzero().squeeze(1).tolist():
            used = (shared[at[row]] > 0).cpu().numpy()
            outcomes.append(
                Outcome(
                    int(own[row]),
                    lead=float(bound[row]),
                    support=certificate.support[used],
                    weight=np.asarray(shared[at[row]].cpu())[used],
                )
            )
    return outcomes
