"""What proves a verdict: a witness or a certificate, and whole collections of them."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unarg_callback.errors import UnargError
from unarg_callback.files import replacing
from unarg_callback.geometry.domain import Domain

_UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy and zipfile raise on files that are damaged or of another kind."""


class Status(IntEnum):
    """What is known of one class; the values are those of a saved proof file."""

    UNDECIDED = 0
    """Neither has been proven. Never counted as either."""
    ARGMAXABLE = 1
    """A witness is known: an input at which the class leads."""
    UNARGMAXABLE = 2
    """A certificate is known: a combination of rivals that no input lets the class beat."""
    EXCLUDED = 3
    """Takes no part."""


@dataclass(frozen=True, eq=False)
class Witness:
    """An input x at which class ``index`` is claimed to lead by more than ``min_lead``.

    Args:
        index: the class.
        point: (d,) float64.
    """

    index: int
    point: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Certificate:
    """Weights over rivals that are claimed to bound every lead of class ``index``.

    With ``lambda >= 0`` and ``s = sum lambda``, the lead of t at x is at most
    ``sum_i lambda_i (z_t - z_i)(x) / s``, since the lead is the smallest of these differences. The
    claim is that the maximum of that bound over the domain is at most ``min_lead``.

    In the free domain the claim is about the exact barycentric coordinates of w_t in ``support``
    (they exist and are >= 0), of which ``weight`` is only the nearest float64.

    Args:
        index: the class t.
        support: (m,) int64, the rivals.
        weight: (m,) float64, lambda.
    """

    index: int
    support: NDArray[np.int64]
    weight: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Proofs:
    """All proofs of one layer, as arrays: what ``--proofs`` saves and anyone can check again.

    Args:
        status: (C,) int8, values of :class:`Status`.
        witness_class: (n,) int64, ascending; one for every argmaxable class.
        witness: (n, d) float64.
        certificate_class: (m,) int64, ascending; one for every unargmaxable class.
        certificate_offsets: (m + 1,) int64 into the two flat arrays.
        certificate_support: flat int64.
        certificate_weight: flat float64.
        domain_low: (d,) float64.
        domain_high: (d,) float64.
        min_lead: what a lead must exceed.
    """

    status: NDArray[np.int8]
    witness_class: NDArray[np.int64]
    witness: NDArray[np.float64]
    certificate_class: NDArray[np.int64]
    certificate_offsets: NDArray[np.int64]
    certificate_support: NDArray[np.int64]
    certificate_weight: NDArray[np.float64]
    domain_low: NDArray[np.float64]
    domain_high: NDArray[np.float64]
    min_lead: float

    @property
    def domain(self) -> Domain:
        """Where the witnesses lie."""
        if np.isinf(self.domain_low).any():
            return Domain.free()
        return Domain.box(self.domain_low, self.domain_high)

    def proof_of(self, index: int) -> Witness | Certificate | None:
        """The proof of one class, or None where it is undecided or excluded."""
        at = int(np.searchsorted(self.witness_class, index))
        if at < len(self.witness_class) and self.witness_class[at] == index:
            return Witness(index, self.witness[at])
        at = int(np.searchsorted(self.certificate_class, index))
        if at < len(self.certificate_class) and self.certificate_class[at] == index:
            span = slice(self.certificate_offsets[at], self.certificate_offsets[at + 1])
            return Certificate(index, self.certificate_support[span], self.certificate_weight[span])
        return None

    def certificates(self) -> list[Certificate]:
        """All certificates, by class."""
        cuts = self.certificate_offsets[1:-1]
        supports = np.split(self.certificate_support, cuts)
        weights = np.split(self.certificate_weight, cuts)
        classes = self.certificate_class.tolist()
        return [
            Certificate(index, support, weight)
            for index, support, weight in zip(classes, supports, weights, strict=False)
        ]

    def save(self, path: str | Path) -> Path:
        """Write an npz file (no pickled objects) and return its path, ``.npz`` added if missing."""
        target = Path(path)
        if target.suffix != ".npz":
            target = target.with_name(target.name + ".npz")
        with replacing(target) as file:
            np.savez_compressed(file, **vars(self))
        return target

    @classmethod
    def load(cls, path: str | Path) -> Proofs:
        """Read a file that :meth:`save` wrote.

        Raises:
            UnargError: the file is not one.
        """
        try:
            with Path(path).open("rb") as file:
                archive = np.load(file, allow_pickle=False)
                arrays = {name: archive[name] for name in cls.__dataclass_fields__}
            proofs = cls(**{**arrays, "min_lead": float(arrays["min_lead"].item())})
        except _UNREADABLE as cause:
            raise UnargError(
                f"{path} can't be read as proofs ({cause}); expected an .npz from --proofs"
            ) from cause
        wrong = proofs._misfit()
        if wrong:
            raise UnargError(f"{path} can't be read as proofs: {wrong}; expected one from --proofs")
        return proofs

    def _misfit(self) -> str:
        """Name an array that has another kind or size than the others ask for, or nothing."""
        witnesses, certificates = len(self.witness_class), len(self.certificate_class)
        terms = len(self.certificate_support)
        expected: dict[str, tuple[str, tuple[int, ...]]] = {
            "status": ("i", (len(self.status),)),
            "witness_class": ("i", (witnesses,)),
            "witness": ("f", (witnesses, len(self.domain_low))),
            "certificate_class": ("i", (certificates,)),
            "certificate_offsets": ("i", (certificates + 1,)),
            "certificate_support": ("i", (terms,)),
            "certificate_weight": ("f", (terms,)),
            "domain_low": ("f", (len(self.domain_low),)),
            "domain_high": ("f", (len(self.domain_low),)),
        }
        for name, (kind, shape) in expected.items():
            array = getattr(self, name)
            if array.dtype.kind != kind or array.shape != shape:
                return f"{name} has dtype {array.dtype} and shape {array.shape}"
        return ""
