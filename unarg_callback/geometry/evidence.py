"""The proofs of one check in the compact form in which the next check can start from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.geometry.certificates import Certificates
from unarg_callback.geometry.compact import CompactPoints
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.proof import Proofs, Status


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of each of the A active classes, and by what proof.

    Args:
        active: (A,) int64, class ids, ascending.
        classes: C.
        domain: where the witnesses lie.
        min_lead: what a lead must exceed.
        status: (A,) int8, values of :class:`Status`.
        lead: (A,) float64: a lower bound on the witness's lead, an upper bound on every lead of an
            unargmaxable class, else NaN.
        points: a point a class; it is a witness where ``status`` says so.
        certificates: one for each unargmaxable class, and perhaps others.
    """

    active: NDArray[np.int64]
    classes: int
    domain: Domain
    min_lead: float
    status: NDArray[np.int8]
    lead: NDArray[np.float64]
    points: CompactPoints
    certificates: Certificates

    def proofs(self) -> Proofs:
        """The proofs by class ids, for anyone to check: float64, twice the size of W or more."""
        status = np.full(self.classes, Status.EXCLUDED, dtype=np.int8)
        status[self.active] = self.status
        witness_at = np.flatnonzero(self.status == Status.ARGMAXABLE)
        held = self.certificates
        proven = self.status[held.targets] == Status.UNARGMAXABLE
        parts = [held.at(place) for place in np.flatnonzero(proven).tolist()]
        low, high = self.domain.bounds(self.points.dim)
        return Proofs(
            status=status,
            witness_class=self.active[witness_at],
            witness=self.points.exact(torch.from_numpy(witness_at)).numpy(),
            certificate_class=self.active[held.targets[proven]],
            certificate_offsets=np.cumsum([0, *(len(part[0]) for part in parts)], dtype=np.int64),
            certificate_support=self.active[_joined([part[0] for part in parts], np.int64)],
            certificate_weight=_joined([part[1] for part in parts], np.float64),
            domain_low=low,
            domain_high=high,
            min_lead=self.min_lead,
        )

    @property
    def nbytes(self) -> int:
        """Bytes that the proofs take in this form."""
        arrays = (self.active, self.status, self.lead)
        return sum(a.nbytes for a in arrays) + self.points.nbytes + self.certificates.nbytes


def _joined(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)
