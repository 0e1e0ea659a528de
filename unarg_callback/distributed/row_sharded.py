"""Verify a layer whose rows lie on several ranks (tensor parallel), without gathering it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.distributed.row_checker import RowChecker
from unarg_callback.distributed.row_evidence import RowEvidence
from unarg_callback.distributed.row_exact import RowExact
from unarg_callback.distributed.row_pool import Finding
from unarg_callback.distributed.row_search import RowSearch
from unarg_callback.distributed.row_twins import RowTwins
from unarg_callback.distributed.shard import Shard
from unarg_callback.errors import UnargError
from unarg_callback.geometry.certificates import CertificateParts, Certificates
from unarg_callback.geometry.compact import CompactPoints
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.report import Report, Reuse
from unarg_callback.search.limits import Limits
from unarg_callback.verification import require_options

MOST_BYTES = 2**26
"""Default of ``most_bytes``: 64 MiB of rows of other ranks at a time."""


def verify_rows(
    local: OutputLayer | None,
    ranks: Ranks,
    domain: Domain | str | float | ArrayLike = "box:100",
    *,
    min_lead: float | None = None,
    time_limit: float | None = None,
    sweep_dtype: torch.dtype = torch.float32,
    most_bytes: int = MOST_BYTES,
    earlier: Report | None = None,
) -> Report:
    """Decide for every class of a layer whose rows are divided among ranks whether it can lead.

    A collective: every rank calls it, with the same options. No rank ever holds the layer. Beside
    its own rows and one point a class of its own, a rank holds blocks of points (at most 2^22
    numbers), ``most_bytes`` of rows of others, and a few times that while it works on them.

    Args:
        local: the rows of this rank, with names and excluded ids counted from 0; classes are
            numbered in the order of ranks. None where a rank has no rows.
        ranks: the processes.
        domain: where x may lie: a :class:`Domain`, its text form, or a radius.
        min_lead: in units of the logits; default 1e-9 of their range over a box, 0 if free.
        time_limit: seconds after which no new work starts, by the clock of rank 0.
        sweep_dtype: float32 or float64, for the search.
        most_bytes: of the rows that are fetched at a time, in float64.
        earlier: this rank's report of the check before, of the same classes in the same domain: its
            proofs are tried first, and none is believed. It counts only if all ranks have one.

    Returns:
        On every rank the report of the whole layer. Only its ``evidence`` differs: each rank has
        the proofs of its own classes, with rivals by their ids in the whole layer
        (:class:`RowEvidence`; :func:`joined_proofs` puts those of all ranks together).

    Raises:
        LayerError: the parts don't make one layer.
        DomainError: the domain doesn't fit it.
        UnargError: an option is out of range, or not the same on every rank.
        RankError: it failed on another rank. Whatever it is that fails on one rank, all raise.

    >>> layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    >>> verify_rows(layer, Ranks()).counts["unargmaxable"]
    1
    """
    begin = time.monotonic()

    def checked() -> Report:
        require_options(
            patience=None,
            time_limit=time_limit,
            exact="interior_point",
            min_lead=min_lead,
            sweep_dtype=sweep_dtype,
        )
        if isinstance(most_bytes, bool) or not isinstance(most_bytes, int) or most_bytes < 1:
            raise UnargError(f"most_bytes is {most_bytes!r}; expected a whole number from 1")
        where = Domain.of(domain)
        bounds = (where.low.tolist(), where.high.tolist())
        given = (bounds, min_lead, time_limit, sweep_dtype, most_bytes)
        if any(other != given for other in ranks.gather(given)):
            raise UnargError(
                "domain, min_lead, time_limit, sweep_dtype or most_bytes differ between ranks; "
                "expected the same on every rank"
            )
        device = torch.device("cpu") if local is None else local.device
        with torch.no_grad(), plain_arithmetic(device):
            checker = RowChecker(Shard(local, ranks), where, min_lead, sweep_dtype)
            check = _Check(checker, Limits(time_limit), most_bytes)
            check.run(earlier)
            return check.report(time.monotonic() - begin)

    return ranks.together(checked)


class _Check:
    """One check, step by step; the methods are collectives."""

    def __init__(self, checker: RowChecker, limits: Limits, most_bytes: int) -> None:
        self.checker, self.shard = checker, checker.shard
        self.ranks = checker.shard.ranks
        self.search = RowSearch(checker, limits)
        self.exact = RowExact(self.search, most_bytes)
        self.twins = RowTwins.of(self.shard)
        self.reuse = Reuse()
        self.age = np.zeros(self.shard.count, dtype=np.int64)
        self.supports: CertificateParts = {}
        """Earlier certificates of this rank's classes whose witness, if any, failed."""

    def run(self, earlier: Report | None) -> None:
        """Do all that can be done within the limits."""
        exact, search = self.exact, self.search
        exact.keep(self.twins.certified(self.checker))
        fits = self.ranks.gather(_fits(earlier, self.checker))
        if earlier is not None and all(fits):
            self._renew(earlier)
        else:
            todo = exact.open()
            search.start(todo)
            search.search(todo)
        if not search.cut_short:
            exact.settle(self.supports)

    def _renew(self, earlier: Report) -> None:
        """Try the proofs of an earlier check, then search from where its points were."""
        evidence, search, exact = earlier.evidence, self.search, self.exact
        self.age = np.asarray(earlier.age[self._ids()]) + 1
        points, apart = evidence.points.unpack(search.state.point.dtype)
        # The box may be another by now.
        search.state.point = self.checker.fit(points.double().to(self.shard.layer.device))
        first = self.shard.first
        own = [
            Finding(at + first, point=point, rounded=search.state.point[at].cpu())
            for at, point in apart.items()
        ]
        offered = self.ranks.gather(own)
        exact.attempt([one for part in offered for one in part])
        was = torch.from_numpy(evidence.status == Status.ARGMAXABLE)
        todo = exact.open()
        _, tried = search.sweep(todo[was[todo]], reflected=False)
        open_now = set(exact.open().tolist())
        supports = self.supports = {
            target: part
            for target in evidence.certificates.targets.tolist()
            if target in open_now
            for part in evidence.certificates.parts([target]).values()
        }
        renewed = exact.renew(supports)
        left = exact.open()
        # What was never tried starts anew; a certificate that failed is a matter for exact means.
        certified = torch.tensor(list(supports), dtype=torch.int64)
        searched = left[~torch.isin(left, certified)]
        fresh = searched[~was[searched]]
        search.start(fresh)
        search.sweep(fresh, reflected=False)
        search.search(searched, tried=True)
        counts = self.ranks.gather((len(searched), len(exact.open())))
        self.reuse = Reuse(
            warm=True,
            kept=0,
            evaluated=tried,
            recertified=renewed,
            searched=sum(count for count, _ in counts),
            solved=sum(count for _, count in counts),
        )

    def report(self, seconds: float) -> Report:
        """The report of the whole layer, with this rank's proofs."""
        exact, state, shard = self.exact, self.search.state, self.shard
        evidence = self._evidence()
        undecided = evidence.status == Status.UNDECIDED
        rival = np.where(undecided, state.rival.numpy(), -1)
        for at, (support, weight) in exact.certificates.items():
            rival[at] = support[weight.argmax()]
        potential = (~state.proven | exact.solved).numpy()
        reasons: dict[str, int] = {}
        for at in np.flatnonzero(undecided).tolist():
            if at in exact.reasons:
                reasons[exact.reasons[at]] = reasons.get(exact.reasons[at], 0) + 1
        age = np.where(undecided, self.age, 0)
        gathered = self._gathered(
            evidence.status, evidence.lead, rival, state.reflections.numpy(), potential, age
        )
        status, lead, rival, reflections, potential, age = gathered
        counts: dict[str, int] = {}
        for part in self.ranks.gather(reasons):
            for reason, count in part.items():
                counts[reason] = counts.get(reason, 0) + count
        ids = np.append(shard.active, -1)  # -1 stays -1
        late = self.search.cut_short and bool((status == Status.UNDECIDED).any())
        everywhere = self._everywhere
        return Report(
            dim=shard.dim,
            domain=self.checker.domain,
            min_lead=self.checker.min_lead,
            scale=self.checker.logit_range,
            status=everywhere(status, Status.EXCLUDED),
            lead=everywhere(lead, np.nan),
            measured=everywhere(np.ones(shard.total, dtype=np.bool_), True),
            reflections=everywhere(reflections, 0),
            rival=everywhere(ids[rival], -1),
            duplicate_of=everywhere(ids[self.twins.twins.duplicate_of.numpy()], -1),
            potential=everywhere(potential, False),
            age=everywhere(age, 0),
            reuse=self.reuse,
            names=shard.names(),
            evidence=evidence,
            seconds=seconds,
            complete=not late,
            notes=self._notes(counts, late),
        )

    def _evidence(self) -> RowEvidence:
        """The proofs of this rank's classes. Not a collective."""
        exact, state, shard, checker = self.exact, self.search.state, self.shard, self.checker
        status = np.where(state.proven.numpy(), Status.ARGMAXABLE, Status.UNDECIDED).astype(np.int8)
        lead = state.lead.numpy().copy()
        for at, proven in exact.leads.items():
            status[at] = Status.ARGMAXABLE if at in exact.points else Status.UNARGMAXABLE
            lead[at] = proven
        lead[status == Status.UNDECIDED] = np.nan
        # What was not renewed in time is worth another try.
        kept = {at: part for at, part in self.supports.items() if status[at] == Status.UNDECIDED}
        unit = 1.0 if checker.grid is None else checker.grid.unit
        return RowEvidence(
            active=shard.active,
            classes=shard.classes,
            domain=checker.domain,
            min_lead=checker.min_lead,
            status=status,
            lead=lead,
            points=CompactPoints.pack(state.point, exact.points, unit),
            certificates=Certificates.of(kept | exact.certificates),
            first=shard.first,
        )

    def _ids(self) -> NDArray[np.int64]:
        """Ids of this rank's active classes in the whole layer."""
        return self.shard.active[self.shard.first : self.shard.first + self.shard.count]

    def _gathered(self, *own: NDArray[Any]) -> list[NDArray[Any]]:
        """(A,) arrays from those of each rank."""
        parts = self.ranks.gather(own)
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _everywhere(self, values: NDArray[Any], fill: object) -> NDArray[Any]:
        """(C,) values by class id, from (A,) by position."""
        result = np.full(self.shard.classes, fill, dtype=values.dtype)
        result[self.shard.active] = values
        result.setflags(write=False)
        return result

    def _notes(self, reasons: dict[str, int], late: bool) -> tuple[str, ...]:
        notes = []
        if late:
            notes.append("The time limit ended the check; what it did not reach is undecided.")
        return (
            *notes,
            *(f"{count:,} left undecided: {why}." for why, count in sorted(reasons.items())),
        )


def _fits(earlier: Report | None, checker: RowChecker) -> bool:
    """Whether an earlier report's proofs are about this rank's classes."""
    if earlier is None or not isinstance(earlier.evidence, RowEvidence):
        return False
    held, shard = earlier.evidence, checker.shard
    return bool(
        held.first == shard.first
        and held.classes == shard.classes
        and np.array_equal(held.active, shard.active)
        and held.points.fits(shard.count, shard.dim)
        and held.domain.is_free == checker.domain.is_free
    )
