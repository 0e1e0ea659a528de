"""Decide for many label sets at once whether a head can output them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.label_sets import cutting_plane, interior, starts
from unarg_callback.label_sets.checker import SetChecker
from unarg_callback.label_sets.evidence import SetEvidence
from unarg_callback.label_sets.head import LabelHead, LabelSetError, as_sets
from unarg_callback.label_sets.ledger import Ledger
from unarg_callback.label_sets.problem import Problem
from unarg_callback.label_sets.proof import Combination, SetCertificate, SetStatus, SetWitness
from unarg_callback.label_sets.renewal import renew
from unarg_callback.label_sets.report import LabelSetReport, SetReuse
from unarg_callback.search.limits import Limits
from unarg_callback.verification import require_options

Given = Tensor | NDArray[Any] | Iterable[Iterable[int]]
"""Label sets: multi-hot (n, K), or lists of label ids."""


def verify_label_sets(
    head: LabelHead,
    sets: Given,
    domain: Domain | str | float | ArrayLike = "box:100",
    *,
    min_margin: float | None = None,
    time_limit: float | None = None,
    activations: Tensor | ArrayLike | None = None,
) -> LabelSetReport:
    """Decide for every label set whether some input of the domain makes the head output it.

    A set S is attainable if at some x of the domain each logit is on its side of the rule's
    threshold by more than ``min_margin``; ``label_sets/problem.py`` has the inequalities. It is
    unattainable if no x does that: a set that is only ever put out with a logit at the threshold
    counts as out of reach.

    Args:
        head: weight, bias and rule.
        sets: multi-hot (n, K) or lists of label ids; equal ones are worked on once.
        domain: where x may lie: a :class:`~unarg_callback.Domain`, its text form, or a radius.
        min_margin: in units of the logits; default over a box 1e-9 of the size of the least label
            against thresholds, of the median one (and of a K-th of the gap) for the other rules, so
            that rescaling a head changes no verdict; 0 if free.
        time_limit: seconds after which no new work starts; what is left is undecided.
        activations: (n, d) inputs that were seen; each may settle the set that it puts out.

    Returns:
        A report with a checked proof behind every verdict.

    Raises:
        DomainError: the domain doesn't fit the head.
        LabelSetError: sets or activations don't.
        UnargError: another argument is out of range.

    >>> head = LabelHead([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> report = verify_label_sets(head, [[0, 1], [0, 1, 2], [2]])
    >>> [SetStatus(value).name for value in report.status]
    ['UNATTAINABLE', 'ATTAINABLE', 'UNATTAINABLE']
    """
    return run(
        head, sets, Domain.of(domain), min_margin, time_limit, activations=activations, held=None
    )[0]


def run(
    head: LabelHead,
    sets: Given,
    domain: Domain,
    min_margin: float | None,
    time_limit: float | None,
    *,
    activations: Tensor | ArrayLike | None,
    held: SetEvidence | None,
    notes: tuple[str, ...] = (),
    stop: Callable[[], bool] | None = None,
) -> tuple[LabelSetReport, SetEvidence]:
    """One check, from what is held if anything is; see :func:`verify_label_sets`."""
    begin = time.monotonic()
    require_options(patience=None, time_limit=time_limit, exact="interior_point")
    if not isinstance(head, LabelHead):
        raise UnargError(f"head is a {type(head).__name__}; expected a LabelHead")
    wanted = as_sets(sets, head.labels)
    distinct, position = _distinct(wanted)
    seen = None if activations is None else _points(activations, head.dim)
    with torch.no_grad(), plain_arithmetic(torch.device("cpu")):
        limits = Limits(time_limit, stop=stop)
        ledger = Ledger(Problem(head, domain, min_margin), distinct, limits)
        reuse = SetReuse() if held is None else SetReuse(True, *renew(ledger, held))
        if seen is not None:
            for start in range(0, len(seen), ledger.batch):
                ledger.harvest(seen[start : start + ledger.batch])
        starts.search(ledger)
        _settle_exactly(ledger)
    evidence = SetEvidence.of(ledger)
    undecided = bool((ledger.status == SetStatus.UNDECIDED).any())
    report = LabelSetReport(
        rule=str(head.rule),
        dim=head.dim,
        domain=domain,
        min_margin=ledger.problem.min_margin,
        scale=ledger.problem.scale,
        evidence=evidence,
        position=position,
        distinct_margin=ledger.margin,
        names=head.names,
        seconds=time.monotonic() - begin,
        complete=not (limits.cut_short and undecided),
        reuse=reuse,
        notes=(*notes, *_reasons(ledger)),
    )
    return report, evidence


def check_label_set_proof(
    head: LabelHead,
    domain: Domain | str | float | ArrayLike,
    proof: SetWitness | SetCertificate,
    min_margin: float | None = None,
) -> tuple[SetStatus, float]:
    """Check one proof from the head and the domain alone, in float64 with rounding bounds.

    Args:
        head: the head.
        domain: where the input may lie.
        proof: a witness or a certificate.
        min_margin: as for :func:`verify_label_sets`.

    Returns:
        The status that it proves (``UNDECIDED`` where it is refused), and its bound on the margin.
    """
    refused = SetStatus.UNDECIDED, float("nan")
    problem = Problem(head, Domain.of(domain), min_margin)
    given: object = proof
    if not isinstance(given, SetWitness | SetCertificate):
        return refused
    labels = np.asarray(proof.labels, dtype=np.bool_)
    if labels.shape != (head.labels,):
        return refused
    if isinstance(proof, SetWitness):
        point = np.array(proof.point, dtype=np.float64)[None]
        if point.shape != (1, head.dim):
            return refused
        accepted, margin = SetChecker(problem).margins(labels[None], point)
        return (SetStatus.ATTAINABLE if accepted[0] else SetStatus.UNDECIDED), float(margin[0])
    ledger = Ledger(problem, labels[None], Limits())
    if ledger.status[0] == SetStatus.UNDECIDED:
        if len(proof.combinations) != len(problem.signs):
            return refused
        for sign, part in zip(problem.signs, proof.combinations, strict=True):
            if not _fits(part, head.labels):
                return refused
            ledger.spread(np.zeros(1, dtype=np.int64), sign, part)
    status = SetStatus(ledger.status[0])
    return (status, float(ledger.margin[0])) if status == SetStatus.UNATTAINABLE else refused


def _fits(part: Combination, labels: int) -> bool:
    support = np.asarray(part.support)
    return bool(
        support.ndim == 1
        and np.asarray(part.weight).shape == support.shape
        and len(np.unique(support)) == len(support)
        and ((support >= 0) & (support < labels)).all()
    )


def _settle_exactly(ledger: Ledger) -> None:
    for sign in ledger.problem.signs:
        ledger.rule_out_sign(sign)
        interior.settle(ledger, sign, ledger.missing(sign))
    cutting_plane.settle(ledger, ledger.open())


def _distinct(sets: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Different sets in the order in which they come first, and which of them each one is."""
    packed = np.packbits(sets, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = first.argsort()
    return sets[first[order]], order.argsort()[inverse.reshape(-1)]


def _points(activations: Tensor | ArrayLike, dim: int) -> NDArray[np.float64]:
    if isinstance(activations, Tensor):
        activations = activations.detach().cpu().double().numpy()
    try:
        points = np.asarray(activations, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise LabelSetError(f"activations are no numbers ({cause}); expected (n, {dim})") from cause
    if points.ndim != 2 or points.shape[1] != dim:
        raise LabelSetError(f"activations have shape {points.shape}; expected (n, {dim})")
    return points[np.isfinite(points).all(1)]


def _reasons(ledger: Ledger) -> list[str]:
    counts: dict[str, int] = {}
    for at, reason in ledger.reasons.items():
        if ledger.status[at] == SetStatus.UNDECIDED:
            counts[reason] = counts.get(reason, 0) + 1
    return [f"{count:,} left undecided: {reason}." for reason, count in sorted(counts.items())]
