"""Decide for every class whether some input makes it one of the K best."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from unarg_callback.errors import UnargError
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Certificate, Status
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.report import Report
from unarg_callback.search.limits import Limits
from unarg_callback.top_k.proof import Reach, TopKCertificate, TopKWitness
from unarg_callback.top_k.search import TopKSearch
from unarg_callback.verification import verify


@dataclass(frozen=True, eq=False)
class TopKReport:
    """Which classes can be among the K best.

    Args:
        k: K.
        status: (C,) int8, values of :class:`Reach`.
        argmax: the report for K = 1, which has the proofs of the argmaxable classes: who can be the
            best can be among the K best.
        proofs: of the others, by class.
        seconds: wall time, that of ``argmax`` left out.
        complete: False if a time limit cut the check short.
    """

    k: int
    status: NDArray[np.int8]
    argmax: Report
    proofs: dict[int, TopKWitness | TopKCertificate] = field(repr=False)
    seconds: float
    complete: bool

    @property
    def counts(self) -> dict[str, int]:
        """How many classes have each status."""
        return {one.name.lower(): int((self.status == one).sum()) for one in Reach}

    def ids(self, status: Reach) -> NDArray[np.int64]:
        """Ids of the classes with a status, ascending."""
        return np.flatnonzero(self.status == status)

    def summary(self) -> str:
        """One line."""
        counts = self.counts
        cut = "" if self.complete else "; cut short by the time limit"
        return (
            f"among the {self.k} best: {counts['reachable']:,} can be, "
            f"{counts['unreachable']:,} provably never, {counts['undecided']:,} undecided{cut}"
        )

    def table(self, limit: int = 20) -> str:
        """The summary, and a line for each class that isn't known to be reachable.

        Args:
            limit: most lines.
        """
        shown = np.concatenate([self.ids(Reach.UNREACHABLE), self.ids(Reach.UNDECIDED)])
        listed = self.argmax.listing(
            shown, "status", lambda index: Reach(self.status[index]).name.lower(), limit
        )
        return "\n".join([self.summary(), *listed])


def verify_top_k(
    layer: OutputLayer,
    k: int,
    domain: Domain | str | float | ArrayLike = "box:100",
    *,
    report: Report | None = None,
    min_lead: float | None = None,
    time_limit: float | None = None,
    progress: bool = False,
) -> TopKReport:
    """Decide for every class whether some input of the domain makes it one of the K best.

    Class t is among the K best at x if it leads all rivals but at most K - 1 by more than
    ``min_lead``. The least number of rivals that are not beaten anywhere is hard to find in general
    (the densest hemisphere problem): the work grows steeply with K and d, and what takes too long
    is undecided. :mod:`unarg_callback.top_k.proof` says what counts as a proof.

    Args:
        layer: the output layer.
        k: K, from 1.
        domain: where x may lie.
        report: of :func:`~unarg_callback.verify` for this layer and domain, if there is one.
        min_lead: as for :func:`~unarg_callback.verify`.
        time_limit: seconds; what is left is undecided.
        progress: show a bar on stderr.

    Raises:
        DomainError: the domain doesn't fit the layer.
        UnargError: k is no whole number from 1, or the report is about something else.

    >>> layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [-0.1, 0.0]])
    >>> [verify_top_k(layer, k).counts["unreachable"] for k in (1, 2)]
    [1, 0]
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise UnargError(f"k is {k!r}; expected a whole number from 1")
    within = Domain.of(domain)
    if report is None:
        report = verify(layer, within, min_lead=min_lead, time_limit=time_limit, progress=progress)
    if (report.classes, report.dim) != (layer.classes, layer.dim):
        raise UnargError(
            f"the report is about {report.classes} classes x {report.dim} features; expected "
            f"{layer.classes} x {layer.dim}, as the layer has"
        )
    begin = time.monotonic()
    limits = Limits(time_limit)
    status = np.full(layer.classes, Reach.UNDECIDED, dtype=np.int8)
    status[report.status == Status.ARGMAXABLE] = Reach.REACHABLE
    status[report.status == Status.EXCLUDED] = Reach.EXCLUDED
    left = np.flatnonzero(status == Reach.UNDECIDED)
    proofs: dict[int, TopKWitness | TopKCertificate] = {}
    with torch.no_grad(), plain_arithmetic(layer.device):
        checker = Checker(layer, within, report.min_lead, torch.float64)
        active = layer.active.cpu().numpy()
        search = TopKSearch(checker, k, limits) if len(left) else None
        for index in tqdm(left.tolist(), disable=not progress, unit="class", desc=f"top {k}"):
            if search is None or limits.reached():
                break
            proof = search.settle(int(np.searchsorted(active, index)))
            if proof is not None:
                proofs[index] = _by_ids(proof, active)
                reached = isinstance(proof, TopKWitness)
                status[index] = Reach.REACHABLE if reached else Reach.UNREACHABLE
    undecided = bool((status == Reach.UNDECIDED).any())
    complete = report.complete and not (limits.cut_short and undecided)
    return TopKReport(k, status, report, proofs, time.monotonic() - begin, complete)


def _by_ids(
    proof: TopKWitness | TopKCertificate, active: NDArray[np.int64]
) -> TopKWitness | TopKCertificate:
    """The same proof with class ids in place of positions."""
    index = int(active[proof.index])
    if isinstance(proof, TopKWitness):
        return TopKWitness(index, proof.point)
    parts = (Certificate(index, active[part.support], part.weight) for part in proof.parts)
    return TopKCertificate(index, tuple(parts))
