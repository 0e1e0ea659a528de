"""What a proof file claims, and which of its claims hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unarg_callback.recheck.errors import InexactError, RecheckError, WrongProofError
from unarg_callback.recheck.layer import ExactLayer
from unarg_callback.recheck.proof_file import KEYS, read_proof_file

UNDECIDED, ARGMAXABLE, UNARGMAXABLE, EXCLUDED = 0, 1, 2, 3

_FLOATS = {"witness", "certificate_weight", "domain_low", "domain_high", "min_lead"}
_OWED = (("witness_class", ARGMAXABLE), ("certificate_class", UNARGMAXABLE))

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Summary:
    """What was accepted: counts, and the exact figure behind every verdict.

    Args:
        argmaxable: classes with an accepted witness.
        unargmaxable: classes with an accepted certificate.
        undecided: classes that claim nothing.
        excluded: classes that take no part.
        wrong: why each other class's proof doesn't hold, by class, ascending.
        leads: exact lead of each accepted witness, None where the class has no rival.
        bounds: exact upper bound of each accepted certificate.
        redone: products ``w . x + b`` that were computed exactly.
    """

    argmaxable: int
    unargmaxable: int
    undecided: int
    excluded: int
    wrong: dict[int, str]
    leads: dict[int, Fraction | None] = field(repr=False)
    bounds: dict[int, Fraction] = field(repr=False)
    redone: int

    @property
    def first_wrong(self) -> WrongProofError | None:
        """The lowest class whose proof doesn't hold."""
        return next((WrongProofError(index, why) for index, why in self.wrong.items()), None)


def check_proofs(
    proofs: str | Path | Mapping[str, Any],
    weight: ArrayLike,
    bias: ArrayLike | None,
    excluded: Iterable[int] = (),
) -> Summary:
    """Check every proof of a file, and that the file holds exactly the proofs it owes.

    Args:
        proofs: an npz file, or its arrays by name.
        weight: (C, d).
        bias: (C,) or None.
        excluded: ids that take no part.

    Raises:
        WrongProofError: a proof is wrong, missing or too many; it is that of the lowest such class.
        RecheckError: the file can't be read, or is of another layer.
    """
    summary = examine(proofs, ExactLayer(weight, bias, excluded))
    if summary.first_wrong is not None:
        raise summary.first_wrong
    return summary


def examine(proofs: str | Path | Mapping[str, Any], layer: ExactLayer) -> Summary:
    """Check every proof of a file, and say which hold.

    Args:
        proofs: an npz file, or its arrays by name.
        layer: that they are about.

    Raises:
        RecheckError: the file can't be read, or is of another layer.
    """
    if isinstance(proofs, (str, Path)):
        arrays = read_proof_file(proofs, layer.classes, layer.dim)
    else:
        arrays = {key: np.asarray(value) for key, value in proofs.items()}
    _require_frame(arrays, layer)
    wrong = _unowed(arrays, layer)
    leads, redone = _witnesses(arrays, layer, wrong)
    bounds = _certificates(arrays, layer, wrong)
    status = arrays["status"].tolist()
    return Summary(
        argmaxable=len(leads),
        unargmaxable=len(bounds),
        undecided=sum(s == UNDECIDED and t not in wrong for t, s in enumerate(status)),
        excluded=sum(s == EXCLUDED and t not in wrong for t, s in enumerate(status)),
        wrong=dict(sorted(wrong.items())),
        leads=leads,
        bounds=bounds,
        redone=redone,
    )


def _require_frame(arrays: Arrays, layer: ExactLayer) -> None:
    """Shapes and types, the domain and min_lead: what has to hold before anything can be read."""
    missing = [key for key in KEYS if key not in arrays]
    if missing:
        raise RecheckError(f"the proofs lack {', '.join(missing)}")
    count, entries = arrays["witness_class"].size, arrays["certificate_support"].size
    certificates = arrays["certificate_class"].size
    shapes = {
        "status": (layer.classes,),
        "domain_low": (layer.dim,),
        "domain_high": (layer.dim,),
        "witness_class": (count,),
        "witness": (count, layer.dim),
        "certificate_class": (certificates,),
        "certificate_offsets": (certificates + 1,),
        "certificate_support": (entries,),
        "certificate_weight": (entries,),
        "min_lead": (),
    }
    for key, shape in shapes.items():
        array = arrays[key]
        if array.shape != shape:
            raise RecheckError(
                f"{key} has shape {array.shape}, not {shape}, which goes with a layer of "
                f"{layer.classes} classes x {layer.dim} features"
            )
        if key in _FLOATS and array.dtype != np.float64:
            raise RecheckError(f"{key} has dtype {array.dtype}, not float64")
        if key not in _FLOATS and array.dtype.kind not in "iu":
            raise RecheckError(f"{key} has dtype {array.dtype}, not integers")
    values = set(arrays["status"].tolist())
    if not values <= {UNDECIDED, ARGMAXABLE, UNARGMAXABLE, EXCLUDED}:
        raise RecheckError(f"status has values {sorted(values)[:9]}; expected 0 to 3")
    offsets = arrays["certificate_offsets"].tolist()
    if offsets[0] != 0 or offsets[-1] != entries or sorted(offsets) != offsets:
        raise RecheckError(f"certificate_offsets do not cut {entries} entries into certificates")
    low, high = arrays["domain_low"], arrays["domain_high"]
    free = bool((low == -np.inf).all() and (high == np.inf).all())
    boxed = bool(np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all())
    if not (free or boxed):
        raise RecheckError("domain_low and domain_high are neither a box nor all of R^d")
    if not (np.isfinite(arrays["min_lead"]) and arrays["min_lead"] >= 0):
        raise RecheckError(f"min_lead is {arrays['min_lead']}; expected a number from 0")


def _unowed(arrays: Arrays, layer: ExactLayer) -> dict[int, str]:
    """Classes with another number of proofs than the one that their status owes, and why."""
    status = arrays["status"]
    wrong = {
        index: "excluded in the file or in the layer, not in both"
        for index in layer.excluded ^ set(np.flatnonzero(status == EXCLUDED).tolist())
    }
    for key, value in _OWED:
        have = arrays[key].tolist()
        owed, given = set(np.flatnonzero(status == value).tolist()), set(have)
        if len(have) != len(given):
            seen: set[int] = set()
            for index in have:
                if index in seen:
                    wrong.setdefault(index, f"twice in {key}")
                seen.add(index)
        for index in owed - given:
            wrong.setdefault(index, f"status {value} without an entry in {key}")
        for index in given - owed:
            wrong.setdefault(index, f"in {key} without status {value}")
    return wrong


def _witnesses(
    arrays: Arrays, layer: ExactLayer, wrong: dict[int, str]
) -> tuple[dict[int, Fraction | None], int]:
    """Leads of the witnesses that hold; the reasons of others are added to ``wrong``."""
    classes, points = arrays["witness_class"], arrays["witness"]
    min_lead = Fraction(float(arrays["min_lead"]))
    # Comparing floats is exact.
    low, high = arrays["domain_low"], arrays["domain_high"]
    inside = (np.isfinite(points) & (points >= low) & (points <= high)).all(1)
    known = np.array([index not in wrong for index in classes.tolist()], dtype=bool)
    for index in classes[known & ~inside].tolist():
        wrong[index] = "its witness lies outside the domain"
    tried = known & inside
    leads, redone = layer.leads(classes[tried].tolist(), points[tried])
    held: dict[int, Fraction | None] = {}
    for index, lead in zip(classes[tried].tolist(), leads, strict=True):
        if lead is not None and lead <= min_lead:
            wrong[index] = f"its witness leads by {_shown(lead)}, not above min_lead"
        else:
            held[index] = lead
    return held, redone


def _certificates(arrays: Arrays, layer: ExactLayer, wrong: dict[int, str]) -> dict[int, Fraction]:
    """Bounds of the certificates that hold; the reasons of others are added to ``wrong``."""
    offsets = arrays["certificate_offsets"].tolist()
    min_lead = Fraction(float(arrays["min_lead"]))
    box = arrays["domain_low"], arrays["domain_high"]
    free = bool(np.isinf(box[0]).any())
    takes_part = np.zeros(layer.classes, dtype=bool)
    takes_part[layer.active] = True
    held = {}
    for n, index in enumerate(arrays["certificate_class"].tolist()):
        if index in wrong:
            continue
        span = slice(offsets[n], offsets[n + 1])
        ids = arrays["certificate_support"][span].tolist()
        weight = arrays["certificate_weight"][span]
        problem = _unusable(index, ids, weight, takes_part)
        if problem:
            wrong[index] = problem
            continue
        used = weight > 0
        support = np.array(ids, dtype=np.int64)[used]
        try:
            bound = (
                layer.free_bound(index, support, weight[used])
                if free
                else layer.box_bound(index, support, weight[used], *box)
            )
        except InexactError as cause:
            wrong[index] = f"its certificate proves nothing: {cause}"
            continue
        if bound > min_lead:
            wrong[index] = f"its certificate bounds the lead by {_shown(bound)}, above min_lead"
        else:
            held[index] = bound
    return held


def _unusable(
    index: int, support: list[int], weight: NDArray[np.float64], takes_part: NDArray[np.bool_]
) -> str:
    """Why a certificate can't be one, whatever its rows are; empty if it can."""
    if index in support:
        return "its certificate rests on the class itself"
    for rival in sorted(set(support)):
        if not (0 <= rival < len(takes_part) and takes_part[rival]):
            return f"its certificate rests on {rival}, which takes no part"
    if not np.isfinite(weight).all():
        return "its certificate has a weight that is NaN or infinite"
    if (weight < 0).any():
        return "its certificate has a negative weight"
    return "" if (weight > 0).any() else "its certificate has no weight"


def _shown(value: Fraction) -> str:
    """A few digits of a fraction that may be beyond float64."""
    try:
        near = float(value)
    except OverflowError:
        return f"{'-' if value < 0 else ''}more than 1e308"
    return f"{near:g}"
