"""One rank's share of the proofs of a layer whose rows lie on several, and how to join them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.errors import UnargError
from unarg_callback.geometry.evidence import Evidence
from unarg_callback.geometry.proof import Proofs, Status


@dataclass(frozen=True, eq=False)
class RowEvidence(Evidence):
    """The proofs of the classes that one rank owns.

    ``active`` holds the A classes of all ranks. ``status``, ``lead`` and ``points`` are those of
    this rank's n classes; the targets of ``certificates`` are numbered among these n, their rivals
    among all A.

    Args:
        first: position of this rank's first class among the A.
    """

    first: int = 0

    def proofs(self) -> Proofs:
        """The proofs of this rank's classes; those of other ranks have the status undecided."""
        status = np.full(self.classes, Status.EXCLUDED, dtype=np.int8)
        status[self.active] = Status.UNDECIDED
        own = self.active[self.first : self.first + len(self.status)]
        status[own] = self.status
        witness_at = np.flatnonzero(self.status == Status.ARGMAXABLE)
        held = self.certificates
        proven = np.flatnonzero(self.status[held.targets] == Status.UNARGMAXABLE)
        parts = [held.at(place) for place in proven.tolist()]
        low, high = self.domain.bounds(self.points.dim)
        supports = _flat([part[0] for part in parts]).astype(np.int64)
        return Proofs(
            status=status,
            witness_class=own[witness_at],
            witness=self.points.exact(torch.from_numpy(witness_at)).numpy(),
            certificate_class=own[held.targets[proven]],
            certificate_offsets=np.cumsum([0, *(len(part[0]) for part in parts)], dtype=np.int64),
            certificate_support=self.active[supports],
            certificate_weight=_flat([part[1] for part in parts]),
            domain_low=low,
            domain_high=high,
            min_lead=self.min_lead,
        )


def joined_proofs(parts: Sequence[Proofs]) -> Proofs:
    """The proofs of a whole layer from those of all its ranks, in their order.

    They take (C, d) float64 for the witnesses: join them where there is room, from the files that
    the ranks have saved.

    Args:
        parts: of one check, by rank.

    Raises:
        UnargError: they aren't of one check.
    """
    if not parts:
        raise UnargError("no proofs to join; expected those of every rank")
    shared = {
        (
            len(part.status),
            part.min_lead,
            part.domain_low.tobytes(),
            part.domain_high.tobytes(),
            (part.status == Status.EXCLUDED).tobytes(),
        )
        for part in parts
    }
    if len(shared) > 1:
        raise UnargError("these proofs belong to different checks; expected one check's, by rank")
    witness_class = _joined(parts, "witness_class")
    certificate_class = _joined(parts, "certificate_class")
    decided = np.concatenate([witness_class, certificate_class])
    if len(np.unique(decided)) < len(decided) or any(
        (np.diff(classes) <= 0).any() for classes in (witness_class, certificate_class)
    ):
        raise UnargError("these proofs overlap or are out of order; expected one a rank, by rank")
    lengths = np.concatenate([np.diff(part.certificate_offsets) for part in parts])
    status = parts[0].status.copy()
    status[witness_class] = Status.ARGMAXABLE
    status[certificate_class] = Status.UNARGMAXABLE
    return Proofs(
        status=status,
        witness_class=witness_class,
        witness=_joined(parts, "witness"),
        certificate_class=certificate_class,
        certificate_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        certificate_support=_joined(parts, "certificate_support"),
        certificate_weight=_joined(parts, "certificate_weight"),
        domain_low=parts[0].domain_low,
        domain_high=parts[0].domain_high,
        min_lead=parts[0].min_lead,
    )


def _joined(parts: Sequence[Proofs], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(part, name) for part in parts])


def _flat(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0), *parts])
