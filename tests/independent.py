"""An independent checker of proof files: exact arithmetic, and no code of the package.

Every float is an integer times a power of two, so the claims of a proof file are statements about
integers and are decided as such, without a tolerance. Floating point is used in one place only: to
tell, with an a-priori error bound, which rivals can't be the runner-up at a witness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from operator import mul
from pathlib import Path
from typing import Any, NoReturn

import flint
import numpy as np
from numpy.typing import ArrayLike, NDArray

UNDECIDED, ARGMAXABLE, UNARGMAXABLE, EXCLUDED = 0, 1, 2, 3

_KEYS = (
    "status",
    "witness_class",
    "witness",
    "certificate_class",
    "certificate_offsets",
    "certificate_support",
    "certificate_weight",
    "domain_low",
    "domain_high",
    "min_lead",
)
_TILE = 256
_PRIME = 2**61 - 1


@dataclass(frozen=True)
class Summary:
    """What was accepted: counts, and the exact figure behind every verdict.

    Args:
        argmaxable: classes with an accepted witness.
        unargmaxable: classes with an accepted certificate.
        undecided: classes without a proof.
        excluded: classes that take no part.
        leads: exact lead of each witness, None where the class has no rival.
        bounds: exact upper bound of each certificate.
        redone: products ``w . x + b`` that were computed exactly.
    """

    argmaxable: int
    unargmaxable: int
    undecided: int
    excluded: int
    leads: dict[int, Fraction | None] = field(repr=False)
    bounds: dict[int, Fraction] = field(repr=False)
    redone: int


class InexactError(ArithmeticError):
    """The support and weights of a free certificate show no exact combination."""


def integers(values: ArrayLike) -> tuple[NDArray[Any], int]:
    """Python integers n and an exponent e with ``values == n * 2**e`` exactly.

    >>> integers([0.75, -2.0])
    (array([3, -8], dtype=object), -2)
    """
    fraction, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    mantissa = (fraction * 2.0**53).astype(np.int64)
    # Float32 values have 29 trailing zeros here: dropping them keeps the integers short.
    low_bit = np.where(mantissa == 0, 1, mantissa & -mantissa)
    mantissa //= low_bit
    place = exponent.astype(np.int64) - 53 + np.frexp(low_bit.astype(np.float64))[1] - 1
    used = place[mantissa != 0]
    base = int(used.min()) if used.size else 0
    shift = np.where(mantissa == 0, 0, place - base)
    return np.left_shift(mantissa.astype(object), shift.astype(object)), base


def power(exponent: int) -> Fraction:
    """``2**exponent`` exactly."""
    return Fraction(2) ** exponent


class ExactLayer:
    """A layer as integers: ``W = rows * 2**row_exponent``, ``b = biases * 2**bias_exponent``.

    Args:
        weight: (C, d) finite in every class that takes part.
        bias: (C,), (C, 1), (1, C) or None.
        excluded: ids that take no part.
    """

    def __init__(
        self, weight: ArrayLike, bias: ArrayLike | None, excluded: Iterable[int] = ()
    ) -> None:
        self.weight = np.array(weight, dtype=np.float64)
        self.classes, self.dim = self.weight.shape
        self.bias = np.zeros(self.classes) if bias is None else np.array(bias, np.float64).ravel()
        if self.bias.shape != (self.classes,):
            raise AssertionError(f"bias has {self.bias.size} entries for {self.classes} classes")
        self.excluded = frozenset(int(i) for i in excluded)
        out = sorted(self.excluded)
        self.weight[out] = 0.0
        self.bias[out] = 0.0
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise AssertionError("the layer has NaN or inf in a class that takes part")
        self.active = np.setdiff1d(np.arange(self.classes), out)
        self.rows, self.row_exponent = integers(self.weight)
        self.biases, self.bias_exponent = integers(self.bias)

    def difference(self, index: int, rival: int, point: ArrayLike) -> Fraction:
        """``z_index - z_rival`` at a point, exactly."""
        steps, exponent = integers(point)
        return self._difference(index, rival, steps.tolist(), exponent)

    def lead(self, index: int, point: ArrayLike) -> Fraction | None:
        """Exact lead of a class at a point; None if it has no rival."""
        return self.leads([index], np.asarray(point, dtype=np.float64)[None])[0][0]

    def leads(
        self, classes: Iterable[int], points: NDArray[np.float64]
    ) -> tuple[list[Fraction | None], int]:
        """Exact leads of n classes at (n, d) points, and how many rivals were compared exactly."""
        ids = np.asarray(list(classes), dtype=np.int64)
        found: list[Fraction | None] = []
        redone = 0
        for start in range(0, len(ids), _TILE):
            tile, inputs = ids[start : start + _TILE], points[start : start + _TILE]
            doubtful = self._doubtful(tile, inputs)
            for index, point, rivals in zip(tile.tolist(), inputs, doubtful, strict=True):
                steps, exponent = integers(point)
                entries = steps.tolist()
                gaps = [self._difference(index, rival, entries, exponent) for rival in rivals]
                found.append(min(gaps, default=None))
                redone += len(gaps)
        return found, redone

    def box_bound(
        self,
        index: int,
        support: NDArray[np.int64],
        weight: NDArray[np.floating],
        low: NDArray[Any],
        high: NDArray[Any],
    ) -> Fraction:
        """``max over the box of sum_i lambda_i (z_index - z_i) / sum lambda``, exactly."""
        lam, _ = integers(weight)
        total = sum(lam.tolist())
        corners, corner_exponent = integers(np.stack([low, high]))
        slope = total * self.rows[index] - lam @ self.rows[support]
        over_box = sum(np.maximum(corners[0] * slope, corners[1] * slope).tolist())
        offset = total * self.biases[index] - lam @ self.biases[support]
        bound = over_box * power(self.row_exponent + corner_exponent)
        bound += int(offset) * power(self.bias_exponent)
        return bound / total

    def free_bound(
        self, index: int, support: NDArray[np.int64], weight: NDArray[np.floating]
    ) -> Fraction:
        """``sum_i mu_i (b_index - b_i)`` for exact barycentric coordinates mu of the class's row.

        The coordinates solve ``sum mu = 1``, ``sum mu_i w_i = w_index`` in rational numbers. Where
        they aren't unique, the lightest rivals that are affinely dependent on heavier ones keep
        their stored weight, or else none.

        Raises:
            InexactError: no such coordinates >= 0 were found.
        """
        stored, _ = integers(weight)
        order = np.argsort(-weight, kind="stable")
        ids, lam = support[order], [int(n) for n in stored[order]]
        columns = [[*self.rows[i].tolist(), 1] for i in ids.tolist()]
        target = [*self.rows[index].tolist(), 1]
        basis = _pivots(columns)
        lines = _pivots([[columns[j][k] for j in basis] for k in range(self.dim + 1)])
        rest = sorted(set(range(len(lam))) - set(basis))
        problem = "no combination of the support equals the class's row"
        for kept in ([lam[j] for j in rest], [0] * len(rest)):
            total = sum(lam)
            needed = [
                total * target[k]
                - sum(weight_j * columns[j][k] for weight_j, j in zip(kept, rest, strict=True))
                for k in range(self.dim + 1)
            ]
            mu = _solve([[columns[j][k] for j in basis] for k in lines], [needed[k] for k in lines])
            if any(
                sum((columns[j][k] * m for j, m in zip(basis, mu, strict=True)), flint.fmpq(0))
                != needed[k]
                for k in set(range(self.dim + 1)) - set(lines)
            ):
                continue
            if any(m < 0 for m in mu):
                problem = "an exact barycentric coordinate is negative"
                continue
            gaps = (self.biases[index] - self.biases[ids]).tolist()
            shares = [*zip(mu, basis, strict=True), *zip(kept, rest, strict=True)]
            ratio = sum((share * gaps[j] for share, j in shares), flint.fmpq(0)) / total
            return Fraction(int(ratio.p), int(ratio.q)) * power(self.bias_exponent)
        raise InexactError(problem)

    def _difference(self, index: int, rival: int, steps: list[int], exponent: int) -> Fraction:
        slope = (self.rows[index] - self.rows[rival]).tolist()
        product = sum(map(mul, slope, steps)) * power(self.row_exponent + exponent)
        offset = int(self.biases[index] - self.biases[rival])
        return product + offset * power(self.bias_exponent)

    def _doubtful(self, classes: NDArray[np.int64], points: NDArray[np.float64]) -> list[list[int]]:
        """For each class and point, all rivals that could be the highest, by exact logits.

        ``fl(w . x + b)`` is within ``E = gamma(d + 1) (max|w_k| sum|x_k| + |b|)`` plus d underflows
        of ``w . x + b`` (Higham 2002, section 3.1), so a rival more than 2 E below the highest
        float is below the highest rival. The factors that follow cover the rounding of E itself.
        """
        unit = 2.0**-53 * (self.dim + 4)
        with np.errstate(over="ignore", invalid="ignore"):
            logits = points @ self.weight[self.active].T + self.bias[self.active]
            reach = np.abs(points).sum(1) * np.abs(self.weight).max() + np.abs(self.bias).max()
            error = (unit / (1 - unit)) * reach * (1 + 2.0**-20) + (self.dim + 4) * 2.0**-1000
        own = np.searchsorted(self.active, classes)
        lines = np.arange(len(classes))
        logits[lines, own] = -np.inf
        # Where something overflows, E does too, no comparison holds and every rival is doubtful.
        with np.errstate(invalid="ignore"):
            clear = logits < (logits.max(1) - 3 * error)[:, None]
        clear[lines, own] = True
        at, rival = np.nonzero(~clear)
        found: list[list[int]] = [[] for _ in classes]
        for line, i in zip(at.tolist(), self.active[rival].tolist(), strict=True):
            found[line].append(i)
        return found


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
        AssertionError: a proof is wrong, missing or too many; names the class and the reason.
    """
    if isinstance(proofs, (str, Path)):
        with np.load(proofs, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    else:
        arrays = {key: np.asarray(value) for key, value in proofs.items()}
    missing = [key for key in _KEYS if key not in arrays]
    if missing:
        _refuse(f"the file lacks {missing}")
    layer = ExactLayer(weight, bias, excluded)
    min_lead = _check_frame(arrays, layer)
    leads, redone = _check_witnesses(arrays, layer, min_lead)
    bounds = _check_certificates(arrays, layer, min_lead)
    status = arrays["status"]
    return Summary(
        argmaxable=int((status == ARGMAXABLE).sum()),
        unargmaxable=int((status == UNARGMAXABLE).sum()),
        undecided=int((status == UNDECIDED).sum()),
        excluded=int((status == EXCLUDED).sum()),
        leads=leads,
        bounds=bounds,
        redone=redone,
    )


def _refuse(reason: str, index: int | None = None) -> NoReturn:
    raise AssertionError(reason if index is None else f"class {index}: {reason}")


def _check_frame(arrays: Mapping[str, NDArray[Any]], layer: ExactLayer) -> Fraction:
    """Check shapes, types, domain and min_lead, and that each class has the proof it owes."""
    status = arrays["status"]
    count, entries = arrays["witness_class"].size, arrays["certificate_support"].size
    certificates = arrays["certificate_class"].size
    shapes = {
        "status": (layer.classes,),
        "witness_class": (count,),
        "witness": (count, layer.dim),
        "certificate_class": (certificates,),
        "certificate_offsets": (certificates + 1,),
        "certificate_support": (entries,),
        "certificate_weight": (entries,),
        "domain_low": (layer.dim,),
        "domain_high": (layer.dim,),
        "min_lead": (),
    }
    floats = {"witness", "certificate_weight", "domain_low", "domain_high", "min_lead"}
    for key, shape in shapes.items():
        if arrays[key].shape != shape:
            _refuse(f"{key} has shape {arrays[key].shape}, not {shape}")
        if key in floats and arrays[key].dtype != np.float64:
            _refuse(f"{key} has dtype {arrays[key].dtype}, not float64")
        if key not in floats and arrays[key].dtype.kind not in "iu":
            _refuse(f"{key} has dtype {arrays[key].dtype}, not integers")
    if not set(status.tolist()) <= {UNDECIDED, ARGMAXABLE, UNARGMAXABLE, EXCLUDED}:
        _refuse(f"status has values {sorted(set(status.tolist()))}")
    wrong = layer.excluded ^ set(np.flatnonzero(status == EXCLUDED).tolist())
    if wrong:
        _refuse("excluded in the file or in the layer, not in both", min(wrong))
    for key, value in (("witness_class", ARGMAXABLE), ("certificate_class", UNARGMAXABLE)):
        have, owed = arrays[key].tolist(), set(np.flatnonzero(status == value).tolist())
        twice = {i for i in have if have.count(i) > 1} if len(have) != len(set(have)) else set()
        if twice:
            _refuse(f"twice in {key}", min(twice))
        if owed - set(have):
            _refuse(f"status {value} without an entry in {key}", min(owed - set(have)))
        if set(have) - owed:
            _refuse(f"in {key} without status {value}", min(set(have) - owed))
    offsets = arrays["certificate_offsets"].tolist()
    if offsets[0] != 0 or offsets[-1] != entries or sorted(offsets) != offsets:
        _refuse(f"certificate_offsets do not cut {entries} entries into certificates")
    low, high = arrays["domain_low"], arrays["domain_high"]
    free = bool((low == -np.inf).all() and (high == np.inf).all())
    boxed = bool(np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all())
    if not (free or boxed):
        _refuse("domain_low and domain_high are neither a box nor all of R^d")
    if not (np.isfinite(arrays["min_lead"]) and arrays["min_lead"] >= 0):
        _refuse(f"min_lead is {arrays['min_lead']}")
    return Fraction(float(arrays["min_lead"]))


def _check_witnesses(
    arrays: Mapping[str, NDArray[Any]], layer: ExactLayer, min_lead: Fraction
) -> tuple[dict[int, Fraction | None], int]:
    classes, points = arrays["witness_class"].tolist(), arrays["witness"]
    low, high = arrays["domain_low"], arrays["domain_high"]
    # Comparing floats is exact.
    inside = (np.isfinite(points) & (points >= low) & (points <= high)).all(1)
    if not inside.all():
        _refuse("its witness lies outside the domain", classes[int(np.argmin(inside))])
    leads, redone = layer.leads(classes, points)
    for index, lead in zip(classes, leads, strict=True):
        if lead is not None and lead <= min_lead:
            _refuse(f"its witness leads by {float(lead):g}, not above min_lead", index)
    return dict(zip(classes, leads, strict=True)), redone


def _check_certificates(
    arrays: Mapping[str, NDArray[Any]], layer: ExactLayer, min_lead: Fraction
) -> dict[int, Fraction]:
    low, high = arrays["domain_low"], arrays["domain_high"]
    free = bool(np.isinf(low).any())
    offsets = arrays["certificate_offsets"].tolist()
    takes_part = set(layer.active.tolist())
    bounds = {}
    for n, index in enumerate(arrays["certificate_class"].tolist()):
        span = slice(offsets[n], offsets[n + 1])
        support = arrays["certificate_support"][span].astype(np.int64)
        weight = arrays["certificate_weight"][span]
        if index in support:
            _refuse("its certificate rests on the class itself", index)
        strangers = set(support.tolist()) - takes_part
        if strangers:
            _refuse(f"its certificate rests on {min(strangers)}, which takes no part", index)
        if not np.isfinite(weight).all():
            _refuse("its certificate has a weight that is NaN or infinite", index)
        if (weight < 0).any():
            _refuse("its certificate has a negative weight", index)
        if not (weight > 0).any():
            _refuse("its certificate has no weight", index)
        used = weight > 0
        support, weight = support[used], weight[used]
        try:
            bound = (
                layer.free_bound(index, support, weight)
                if free
                else layer.box_bound(index, support, weight, low, high)
            )
        except InexactError as cause:
            _refuse(f"its certificate proves nothing: {cause}", index)
        if bound > min_lead:
            _refuse(f"its certificate bounds the lead by {float(bound):g}, above min_lead", index)
        bounds[index] = bound
    return bounds


def _pivots(columns: list[list[int]]) -> list[int]:
    """Indices of columns independent of those before them, modulo a prime.

    Columns that are independent modulo a prime are independent; the few that an unlucky prime
    leaves out could only make a right proof fail, never a wrong one pass.
    """
    if not columns or not columns[0]:
        return []
    flat = [columns[j][k] % _PRIME for k in range(len(columns[0])) for j in range(len(columns))]
    reduced, rank = flint.nmod_mat(len(columns[0]), len(columns), flat, _PRIME).rref()
    found: list[int] = []
    for line in range(rank):
        start = found[-1] + 1 if found else 0
        found.append(next(j for j in range(start, len(columns)) if int(reduced[line, j])))
    return found


def _solve(matrix: list[list[int]], right: list[int]) -> list[flint.fmpq]:
    """Exact rational solution of a square nonsingular system."""
    if not matrix:
        return []
    solution = flint.fmpz_mat(matrix).solve(flint.fmpz_mat([[n] for n in right]))
    return [solution[k, 0] for k in range(len(matrix))]
