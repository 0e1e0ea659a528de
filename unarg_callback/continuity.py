"""What is kept from one update of a layer to the next, in memory and in a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.errors import DomainError, UnargError
from unarg_callback.geometry.certificates import Certificates
from unarg_callback.geometry.compact import CompactPoints
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.evidence import Evidence
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.report import Report

_VERSION = 1

DAMAGED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What reading a damaged state may raise."""


@dataclass(frozen=True)
class Shape:
    """What must be the same for proofs of one layer to be of use for another.

    Args:
        classes: C.
        dim: d.
        excluded: ids.
        names: digest of the names, empty without.
    """

    classes: int
    dim: int
    excluded: tuple[int, ...]
    names: str

    @classmethod
    def of(cls, layer: OutputLayer) -> Shape:
        """Return the shape of a layer."""
        digest = ""
        if layer.names is not None:
            text = "\0".join(layer.names).encode("utf-8", "surrogatepass")
            digest = hashlib.sha256(text).hexdigest()
        return cls(layer.classes, layer.dim, layer.excluded, digest)

    def difference(self, other: Shape) -> str | None:
        """Say what of ``other`` is not as it was, or None."""
        if (self.classes, self.dim) != (other.classes, other.dim):
            return f"the layer was {self.classes} x {self.dim} and is {other.classes} x {other.dim}"
        if self.excluded != other.excluded:
            return "other classes are excluded than before"
        return None if self.names == other.names else "the classes have other names than before"


@dataclass(frozen=True, eq=False)
class Held:
    """What is kept from one update to the next.

    Args:
        layer: a copy of the layer that the evidence is about; None where it isn't known.
        shape: of that layer.
        evidence: its proofs. Without the layer they are only proposals.
        age: (A,) int16, updates since each class was last decided.
        waiting: (A,) int16, updates since each undecided class was last tried to the end.
        failed: (A,) bool, undecided classes whose earlier proof no longer holds.
        resting: (A,) int8, updates until a larger lead of the class may be looked for again.
        report: what the update found; None where the state was loaded.
        mark: the same on all ranks that did the update together, and on no other.
    """

    layer: OutputLayer | None
    shape: Shape
    evidence: Evidence
    age: NDArray[np.int16]
    waiting: NDArray[np.int16]
    failed: NDArray[np.bool_]
    resting: NDArray[np.int8]
    report: Report | None = None
    mark: str = ""

    @property
    def urgency(self) -> Tensor:
        """(A,) int64: how long each class has waited, with a start for proofs that failed."""
        return torch.from_numpy(self.waiting.astype(np.int64) + 2 * self.failed)

    def is_for(self, domain: Domain) -> bool:
        """Whether the proofs are for this domain: for the same bounds, in whatever form."""
        dim = self.shape.dim
        pairs = zip(self.evidence.domain.bounds(dim), domain.bounds(dim), strict=True)
        return all(np.array_equal(one, other) for one, other in pairs)

    def proposals(self, domain: Domain) -> Held:
        """Return the same for another domain: nothing is known there, but all may be tried.

        A certificate of the free domain has another form than one of a box, and is left out.

        Args:
            domain: where the layer's input may lie now.
        """
        evidence = self.evidence
        if evidence.domain.is_free != domain.is_free:
            evidence = replace(evidence, certificates=Certificates.of({}))
        return replace(self, layer=None, report=None, evidence=evidence)

    @property
    def nbytes(self) -> int:
        """Bytes that all of it takes."""
        arrays = (self.age, self.waiting, self.failed, self.resting)
        tensors = () if self.layer is None else (self.layer.weight, self.layer.bias)
        size = sum(t.numel() * t.dtype.itemsize for t in tensors if t is not None)
        return size + self.evidence.nbytes + sum(array.nbytes for array in arrays)

    def to(self, device: torch.device) -> Held:
        """Return the same with the layer on another device; everything else lies on the CPU."""
        if self.layer is None or self.layer.device == device:
            return self
        return replace(self, layer=self.layer.to(device))

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins. The layer isn't among them: a checkpoint has a newer one."""
        points, certificates = self.evidence.points, self.evidence.certificates
        low, high = self.evidence.domain.bounds(self.shape.dim)
        arrays = {
            "status": self.evidence.status,
            "support": certificates.support,
            "weight": certificates.weight,
            "targets": certificates.targets,
            "offsets": certificates.offsets,
            "age": self.age,
            "waiting": self.waiting,
            "failed": self.failed,
            "resting": self.resting,
            "low": low,
            "high": high,
        }
        return {
            "version": _VERSION,
            "classes": self.shape.classes,
            "dim": self.shape.dim,
            "excluded": list(self.shape.excluded),
            "names": self.shape.names,
            "min_lead": float(self.evidence.min_lead),
            "unit": float(points.unit),
            "half": points.half,
            "odd": points.odd,
            "full": points.full,
            **{name: torch.from_numpy(np.array(array)) for name, array in arrays.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Held:
        """Inverse of :meth:`state_dict`, but for the layer.

        Nothing in it is believed: without a layer, the next update checks every proof.

        Args:
            state: what was saved.

        Raises:
            UnargError: it can't be used; the message says why.
        """
        try:
            return cls._read(state)
        except (*DAMAGED, DomainError) as cause:
            raise UnargError(f"the saved state is damaged ({type(cause).__name__}: {cause})") from (
                cause
            )

    @classmethod
    def _read(cls, state: Mapping[str, Any]) -> Held:
        if state["version"] != _VERSION:
            raise UnargError(f"the saved state has version {state['version']!r}, not {_VERSION}")
        shape = Shape(
            int(state["classes"]),
            int(state["dim"]),
            tuple(int(i) for i in state["excluded"]),
            str(state["names"]),
        )
        if not isinstance(state["half"], Tensor) or shape.classes - len(shape.excluded) != len(
            state["half"]
        ):
            raise ValueError(f"no points for {shape.classes} classes")
        active = np.setdiff1d(np.arange(shape.classes), shape.excluded)
        count, dim = len(active), shape.dim
        certificates = Certificates(
            targets=_array(state, "targets", np.int64),
            offsets=_array(state, "offsets", np.int64),
            support=_array(state, "support", np.int32),
            weight=_array(state, "weight", np.float64),
        )
        points = CompactPoints(
            float(state["unit"]), state["half"].cpu(), state["odd"].cpu(), state["full"].cpu()
        )
        if not (points.fits(count, dim) and certificates.fits(count)):
            raise ValueError("arrays that don't fit together")
        status = _array(state, "status", np.int8, count)
        return cls(
            layer=None,
            shape=shape,
            evidence=Evidence(
                active=active,
                classes=shape.classes,
                domain=_domain(
                    _array(state, "low", np.float64, dim), _array(state, "high", np.float64, dim)
                ),
                min_lead=float(state["min_lead"]),
                status=status,
                lead=np.full(count, np.nan),
                points=points,
                certificates=certificates,
            ),
            age=_array(state, "age", np.int16, count).clip(0),
            waiting=_array(state, "waiting", np.int16, count).clip(0),
            failed=_array(state, "failed", np.bool_, count),
            resting=_array(state, "resting", np.int8, count),
        )


def _domain(low: NDArray[np.float64], high: NDArray[np.float64]) -> Domain:
    """The domain with these bounds, (d,) each; a :class:`DomainError` if no domain has them."""
    if np.isneginf(low).all() and np.isposinf(high).all():
        return Domain.free()
    return Domain.box(low, high)


def _array(
    state: Mapping[str, Any], name: str, dtype: type, count: int | None = None
) -> NDArray[Any]:
    array: NDArray[Any] = state[name].cpu().numpy()
    if array.dtype != dtype or array.ndim != 1 or (count is not None and len(array) != count):
        raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")
    return array
