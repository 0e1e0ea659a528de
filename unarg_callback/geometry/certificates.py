"""Certificates of many classes in flat arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

CertificatePart: TypeAlias = tuple[NDArray[np.integer[Any]], NDArray[np.float64]]
"""Support and weight."""

CertificateParts: TypeAlias = Mapping[int, CertificatePart]
"""(support, weight) by target."""


@dataclass(frozen=True, eq=False)
class Certificates:
    """Weights over rivals for some of the A active classes, back to back in flat arrays.

    Args:
        targets: (m,) int64, ascending positions among the active classes.
        offsets: (m + 1,) int64 into the two flat arrays.
        support: flat int32, positions of rivals.
        weight: flat float64.
    """

    targets: NDArray[np.int64]
    offsets: NDArray[np.int64]
    support: NDArray[np.int32]
    weight: NDArray[np.float64]

    @classmethod
    def of(cls, parts: CertificateParts) -> Certificates:
        """Put (support, weight) of each target together."""
        targets = sorted(parts)
        supports = [parts[target][0] for target in targets]
        return cls(
            np.array(targets, dtype=np.int64),
            np.cumsum([0, *map(len, supports)], dtype=np.int64),
            np.concatenate([np.zeros(0, np.int32), *supports]).astype(np.int32),
            np.concatenate([np.zeros(0), *(parts[target][1] for target in targets)]),
        )

    def fits(self, count: int) -> bool:
        """Whether these can be certificates among ``count`` active classes."""
        offsets, targets = self.offsets, self.targets
        return bool(
            len(offsets) == len(targets) + 1
            and len(self.support) == len(self.weight)
            and offsets[0] == 0
            and offsets[-1] == len(self.support)
            and (np.diff(offsets) > 0).all()
            and (np.diff(targets) > 0).all()
            and not (np.repeat(targets, np.diff(offsets)) == self.support).any()
            and all(((a >= 0) & (a < count)).all() for a in (targets, self.support))
        )

    def __len__(self) -> int:
        return len(self.targets)

    def at(self, place: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Support and weight of the certificate at a place."""
        span = slice(self.offsets[place], self.offsets[place + 1])
        return self.support[span], self.weight[span]

    def parts(self, targets: Iterable[int]) -> CertificateParts:
        """(support, weight) of each of the targets that has a certificate."""
        wanted = np.fromiter(targets, dtype=np.int64)
        places = np.searchsorted(self.targets, wanted)
        inside = places < len(self.targets)
        inside[inside] = self.targets[places[inside]] == wanted[inside]
        return {
            target: self.at(place)
            for target, place in zip(wanted[inside].tolist(), places[inside].tolist(), strict=True)
        }

    @property
    def nbytes(self) -> int:
        """Bytes that the arrays take."""
        return sum(array.nbytes for array in vars(self).values())
