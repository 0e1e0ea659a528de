"""The proofs of many distinct label sets, as they are kept and saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.errors import UnargError
from unarg_callback.label_sets.ledger import Ledger
from unarg_callback.label_sets.proof import Combination, SetCertificate, SetStatus, SetWitness

_VERSION = 1

_DAMAGED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What reading a damaged state may raise."""


@dataclass(frozen=True, eq=False)
class SetEvidence:
    """Proofs of n distinct sets.

    Args:
        sets: (n, K) bool.
        status: (n,) int8, values of :class:`SetStatus`.
        points: (n, d) float64, witnesses; NaN where there is none.
        combinations: by position and sign of the sum of z; also of sets that lack another sign's.
    """

    sets: NDArray[np.bool_]
    status: NDArray[np.int8]
    points: NDArray[np.float64]
    combinations: Mapping[tuple[int, int], Combination]

    @classmethod
    def of(cls, ledger: Ledger) -> SetEvidence:
        """What a ledger has proven; it must not change any more."""
        return cls(ledger.sets, ledger.status, ledger.points, ledger.combinations)

    def proof(self, at: int) -> SetWitness | SetCertificate | None:
        """The proof of the set at a position, or None where it is undecided."""
        if self.status[at] == SetStatus.ATTAINABLE:
            return SetWitness(self.sets[at], self.points[at])
        if self.status[at] != SetStatus.UNATTAINABLE:
            return None
        parts = [self.combinations.get((at, sign)) for sign in (1, -1)]
        return SetCertificate(self.sets[at], tuple(part for part in parts if part is not None))

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins."""
        keys = sorted(self.combinations)
        parts = [self.combinations[key] for key in keys]
        witnessed = self.status == SetStatus.ATTAINABLE
        arrays = {
            "sets": np.packbits(self.sets, axis=1),
            "status": self.status,
            "points": self.points[witnessed],
            "places": np.array(keys, dtype=np.int64).reshape(-1, 2),
            "lengths": np.array([len(part.support) for part in parts], dtype=np.int64),
            "support": np.concatenate([np.zeros(0, np.int64), *(p.support for p in parts)]),
            "weight": np.concatenate([np.zeros(0), *(p.weight for p in parts)]),
            "sign_weight": np.array([part.sign_weight for part in parts], dtype=np.float64),
        }
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        return {"version": _VERSION, "labels": int(self.sets.shape[1]), **tensors}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SetEvidence:
        """Read what :meth:`state_dict` gave; nothing in it is believed.

        Raises:
            UnargError: it can't be read.
        """
        try:
            return cls._read(state)
        except _DAMAGED as cause:
            raise UnargError(
                f"the state of label sets can't be read ({cause}); expected what state_dict gave"
            ) from cause

    @classmethod
    def _read(cls, state: Mapping[str, Any]) -> SetEvidence:
        if state["version"] != _VERSION:
            raise ValueError(f"version {state['version']}")
        array = {
            name: value.cpu().numpy() for name, value in state.items() if torch.is_tensor(value)
        }
        labels = int(state["labels"])
        sets = np.unpackbits(array["sets"], axis=1, count=labels).astype(np.bool_)
        status = array["status"].astype(np.int8)
        found = array["points"].astype(np.float64)
        witnessed = status == SetStatus.ATTAINABLE
        if status.shape != (len(sets),) or found.ndim != 2 or witnessed.sum() != len(found):
            raise ValueError("its arrays don't fit together")
        points = np.full((len(sets), found.shape[1]), np.nan)
        points[witnessed] = found
        ends = array["lengths"].cumsum()
        supports = np.split(array["support"].astype(np.int64), ends)[:-1]
        weights = np.split(array["weight"].astype(np.float64), ends)[:-1]
        combinations = {}
        for (at, sign), support, weight, condition in zip(
            array["places"].tolist(), supports, weights, array["sign_weight"].tolist(), strict=True
        ):
            within = ((support >= 0) & (support < labels)).all()
            if not (0 <= at < len(sets) and within and support.shape == weight.shape):
                raise ValueError("a certificate is for labels that aren't there")
            combinations[at, sign] = Combination(support, weight, condition)
        return cls(sets, status, points, combinations)
