"""What proves that a class can, or can't, be among the K best.

**Witness**: an input at which fewer than K rivals are ``min_lead`` or less below the class.

**Certificate**: some sets of rivals, each with weights that certify that the class doesn't lead all
of them by more than ``min_lead``, such that no K - 1 rivals have one in each set. At every input
each set has a rival that is not beaten, so those that aren't beaten hit every set: there are K or
more. For K = 1 one set will do, the certificate of an unargmaxable class.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Certificate
from unarg_callback.geometry.rounding import SMALLEST_NORMAL, gamma, plain_arithmetic
from unarg_callback.top_k.hitting import GivenUpError, hitting_set

_TILE = 65_536


class Reach(IntEnum):
    """What is known of one class."""

    UNDECIDED = 0
    """Neither has been proven."""
    REACHABLE = 1
    """An input is known at which it is among the K best."""
    UNREACHABLE = 2
    """It is proven that there is none."""
    EXCLUDED = 3
    """Takes no part."""


@dataclass(frozen=True, eq=False)
class TopKWitness:
    """An input at which a class is claimed to be among the K best.

    Args:
        index: the class.
        point: (d,) float64.
    """

    index: int
    point: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TopKCertificate:
    """Certificates of one class whose supports no K - 1 rivals hit.

    Args:
        index: the class.
        parts: the certificates.
    """

    index: int
    parts: tuple[Certificate, ...]


def unbeaten(checker: Checker, target: int, point: Tensor) -> int:
    """Most rivals that the target doesn't beat by more than ``min_lead`` at a point.

    A computed ``(w_t - w_i) . x + b_t - b_i`` is off by at most ``gamma(d + 4)`` times the sum of
    the absolute values of its terms, and d + 4 underflows; who is that close is counted.

    Args:
        checker: of the layer and domain.
        target: a position among the active classes.
        point: (d,) float64.

    Returns:
        Their number; all of them where the point is outside of the domain.
    """
    layer, active = checker.layer, checker.sweep.active
    if not bool(((point >= checker.low) & (point <= checker.high)).all()):
        return checker.sweep.count
    own = active[target : target + 1]
    row, bias = layer.rows(own), layer.biases(own)
    tiny = (layer.dim + 4) * SMALLEST_NORMAL[torch.float64]
    total = 0
    for start in range(0, checker.sweep.count, _TILE):
        ids = active[start : start + _TILE]
        rows, biases = layer.rows(ids), layer.biases(ids)
        lead = (row @ point + bias) - (rows @ point + biases)
        size = (row.abs() + rows.abs()) @ point.abs() + bias.abs() + biases.abs()
        close = ~(lead - gamma(layer.dim + 8) * size - tiny > checker.min_lead)
        total += int(close.sum())
    # The target is no rival of its own, and never beats itself.
    return total - 1


def check_top_k_proof(
    layer: OutputLayer,
    k: int,
    domain: Domain | str | float | ArrayLike,
    proof: TopKWitness | TopKCertificate,
    min_lead: float | None = None,
) -> Reach:
    """Check one proof from the layer and the domain alone, in float64 with rounding bounds.

    Args:
        layer: the layer.
        k: K.
        domain: where the input may lie.
        proof: a witness or a certificate, by class ids.
        min_lead: as for :func:`~unarg_callback.verify`.

    Returns:
        The status that it proves, ``UNDECIDED`` where it is refused.
    """
    with torch.no_grad(), plain_arithmetic(layer.device):
        checker = Checker(layer, Domain.of(domain), min_lead, torch.float64)
        position = {int(index): at for at, index in enumerate(layer.active.tolist())}
        if proof.index not in position:
            return Reach.UNDECIDED
        target = position[proof.index]
        if isinstance(proof, TopKWitness):
            point = torch.from_numpy(np.array(proof.point, dtype=np.float64)).to(layer.device)
            fits = point.shape == (layer.dim,)
            reached = fits and unbeaten(checker, target, point) < k
            return Reach.REACHABLE if reached else Reach.UNDECIDED
        holds = all(_holds(checker, position, target, part) for part in proof.parts)
        return Reach.UNREACHABLE if holds and not _can_hit(proof, k - 1) else Reach.UNDECIDED


def _can_hit(proof: TopKCertificate, size: int) -> bool:
    """Whether so many rivals hit each support, as far as can be told."""
    supports = [
        frozenset(np.asarray(part.support)[np.asarray(part.weight) > 0].tolist())
        for part in proof.parts
    ]
    try:
        return hitting_set(supports, size) is not None
    except GivenUpError:
        return True


def _holds(checker: Checker, position: dict[int, int], target: int, part: Certificate) -> bool:
    ids = [int(i) for i in part.support]
    weight = np.array(part.weight, dtype=np.float64)
    if weight.shape != (len(ids),) or not ids or any(i not in position for i in ids):
        return False
    support = np.array([position[i] for i in ids], dtype=np.int64)
    return checker.certificate(target, support, weight)[0]
