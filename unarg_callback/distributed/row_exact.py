"""The exact stage of a layer whose rows lie on several ranks.

The ranks take a batch of classes that are still open, wherever their rows lie, fetch the rows of
their likely rivals, and divide the classes among them. Each settles its own against the rows that
were fetched. A certificate found there holds; a witness is tried against the classes of all ranks,
and where it loses, the winners are fetched and the class is tried once more.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from unarg_callback.distributed.row_pool import Finding, Pool
from unarg_callback.distributed.row_search import RowSearch
from unarg_callback.geometry.certificates import CertificatePart, CertificateParts
from unarg_callback.search.exact import DEADLINE, NUMERICAL
from unarg_callback.search.limits import Limits
from unarg_callback.search.working_set import working_set_size

_BATCH = 512
_ROUNDS = 24
_CUTS = 32
_AHEAD = 64
_CHUNK = 4096
_UNKNOWN = 1e12
"""More than any distance in the whitened frame, and little enough to keep the order of these."""

ROUNDS = f"its witnesses were beaten {_ROUNDS} times by classes of other ranks"
ROOM = "its rivals take more room than the rows fetched may"
"""Why a class may be undecided, besides the reasons of :mod:`unarg_callback.search.exact`."""


class RowExact:
    """What has been proven exactly, of this rank's classes. Its methods are collectives.

    Args:
        search: what the search has found.
        most_bytes: of the rows that are fetched at a time, in float64. The working memory of the
            exact stage is a few times as much.
    """

    def __init__(self, search: RowSearch, most_bytes: int) -> None:
        self.search, self.shard = search, search.shard
        self.ranks, self.checker = search.ranks, search.checker
        self.most_rows = max(16, most_bytes // (8 * (self.shard.dim + 1)))
        self.points: dict[int, Tensor] = {}
        """(d,) float64 witnesses that the sweep's dtype can't hold, by position on this rank."""
        self.certificates: dict[int, CertificatePart] = {}
        """Supports, positions among the classes of all ranks, and weights; likewise."""
        self.leads: dict[int, float] = {}
        """The lead proven by either; likewise."""
        self.reasons: dict[int, str] = {}
        """Why a class was given up; likewise."""
        self.solved = torch.zeros(self.shard.count, dtype=torch.bool)
        """(n,) bool on the CPU, classes whose witness was found here and is in the state."""

    def open(self) -> Tensor:
        """(n,) int64 on the CPU, classes of this rank without an accepted proof. No collective."""
        done = self.search.state.proven.clone()
        done[list(self.leads)] = True
        return (~done).nonzero().squeeze(1)

    def renew(self, parts: CertificateParts) -> int:
        """Certify classes anew over the rivals that they had.

        Args:
            parts: of this rank's classes, by position on this rank; supports are positions among
                the classes of all ranks.

        Returns:
            How many classes of all ranks were certified.
        """
        held = dict(parts)
        renewed = 0
        while not self.search.late():
            own = self._fitting(held)
            offered = {at + self.shard.first: held.pop(at) for at in own}
            sent: list[CertificateParts] = self.ranks.gather(offered)
            asked = {target: part for parts in sent for target, part in parts.items()}
            if not asked:
                break
            wanted = [np.array(list(asked)), *(part[0] for part in asked.values())]
            pool = Pool.fetched(self.search, _positions(*wanted).unique())
            limits = self._limits()
            mine = {target: asked[target] for target in self._share(list(asked))}
            found = self.ranks.gather(pool.resolve(mine, limits))
            renewed += self.keep([one for part in found for one in part])
        return renewed

    def settle(self, supports: CertificateParts) -> None:
        """Settle what is open, up to the limits.

        Args:
            supports: of earlier certificates, as for :meth:`renew`.
        """
        while True:
            given_up = list(self.reasons)
            left = self.open()
            left = left[~torch.isin(left, torch.tensor(given_up, dtype=torch.int64))]
            everyone = torch.cat(self.ranks.gather(left + self.shard.first))
            if not len(everyone) or self.search.late():
                return
            self._batch(everyone[:_BATCH], supports)

    def _batch(self, batch: Tensor, supports: CertificateParts) -> None:
        """Settle the first of these classes, as many as there is room for."""
        points = self._last_points(batch)
        first = self.shard.first
        own = {at + first: supports[at] for at in self._own(batch) if at in supports}
        sent = self.ranks.gather(own)
        earlier = {target: part for parts in sent for target, part in parts.items()}
        batch, pool = self._pool(batch, points, earlier)
        last = dict(zip(batch.tolist(), points, strict=False))
        todo = batch
        for _ in range(_ROUNDS):
            limits = self._limits()
            mine = torch.tensor(self._share(todo.tolist()), dtype=torch.int64)
            tried = [last[target] for target in mine.tolist()]
            found = self.ranks.gather(pool.settle(mine, tried, earlier, limits))
            findings = {one.target: one for part in found for one in part}
            for target in todo.tolist():
                findings.setdefault(target, Finding(target, reason=DEADLINE))
            self.keep(list(findings.values()))
            lost = self.attempt([one for one in findings.values() if one.point is not None])
            if not lost:
                return
            reason = DEADLINE if self.search.late() else ""
            if not reason:
                pool, todo, dropped = self._extended(pool, lost)
                self._give_up(dropped)
            if reason or not len(todo):
                self._give_up({one.target: reason for one in lost} if reason else {})
                return
            last = {one.target: one.rounded for one in lost if one.rounded is not None}
        self._give_up(dict.fromkeys(todo.tolist(), ROUNDS))

    def _pool(
        self, batch: Tensor, points: Tensor, earlier: CertificateParts
    ) -> tuple[Tensor, Pool]:
        """The classes that there is room for, and a pool of them and their likely rivals."""
        rivals = [self._nearest(batch)]
        if self.shard.total > 1:
            ahead = min(_AHEAD, self.shard.total - 1)
            rivals.insert(0, self.checker.sweep.strongest(batch, points, ahead)[0])
        rows = torch.cat(rivals, 1)
        chosen: set[int] = set()
        for at, target in enumerate(batch.tolist()):
            wanted = [target, *earlier[target][0].tolist()] if target in earlier else [target]
            wanted += [position for position in rows[at].tolist() if position >= 0]
            grown = chosen.union(wanted)
            # The other half is for the rivals that turn out to matter.
            if len(grown) > self.most_rows // 2:
                if at == 0:
                    chosen = set(list(dict.fromkeys(wanted))[: self.most_rows // 2])
                    at = 1
                batch = batch[:at]
                break
            chosen = grown
        return batch, Pool.fetched(self.search, torch.tensor(sorted(chosen), dtype=torch.int64))

    def _nearest(self, batch: Tensor) -> Tensor:
        """(n, k) positions of the nearest rows in the whitened frame, argmaxable ones first."""
        size = self.ranks.size
        width = working_set_size(self.shard.dim, self.shard.total)
        # A seed that is missing only costs time.
        most = width if size == 1 else min(width, math.ceil(2 * width / size))
        rows, _ = self.shard.fetch(batch)
        found = self.ranks.gather(self._nearest_here(batch, rows, most))
        distance = torch.cat([part[0] for part in found], 1)
        position = torch.cat([part[1] for part in found], 1)
        best = distance.topk(min(width, distance.shape[1]), dim=1, largest=False)
        nearest = position.gather(1, best.indices)
        return torch.where(torch.isfinite(best.values), nearest, -1)

    def _nearest_here(self, batch: Tensor, rows: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """(n, k) scores and positions of this rank's nearest rows: proven classes have low ones."""
        sweep, frame = self.checker.sweep, self.search.frame
        centred = (rows.to(sweep.device) - sweep.middle) / sweep.unit
        targets = ((centred - frame.mean) @ frame.root).float()
        own = self.shard.local(batch).to(sweep.device)
        scores = torch.empty(len(batch), 0, dtype=torch.float64, device=sweep.device)
        places = torch.empty(len(batch), 0, dtype=torch.int64, device=sweep.device)
        for at in range(0, sweep.count, _CHUNK):
            span = slice(at, at + _CHUNK)
            here = ((sweep.rows(span) - frame.mean) @ frame.root).float()
            distance = torch.cdist(targets, here, compute_mode="use_mm_for_euclid_dist").square()
            proven = self.search.state.proven[span].to(sweep.device)
            score = distance.double() + torch.where(proven, 0.0, _UNKNOWN)
            inside = ((own >= at) & (own < at + len(here))).nonzero().squeeze(1)
            score[inside, own[inside] - at] = math.inf
            ids = torch.arange(at, at + len(here), device=sweep.device).expand(len(batch), -1)
            scores, places = torch.cat([scores, score], 1), torch.cat([places, ids], 1)
            best = scores.topk(min(most, scores.shape[1]), dim=1, largest=False)
            scores, places = best.values, places.gather(1, best.indices)
        return scores.cpu(), (places + self.shard.first).cpu()

    def _last_points(self, batch: Tensor) -> Tensor:
        """(n, d) in the sweep's dtype, where each of these classes stands; on every rank."""
        own = torch.zeros(len(batch), self.shard.dim, dtype=torch.float64)
        at = self.shard.local(batch)
        here = at >= 0
        held = self.search.state.point
        own[here] = held[at[here].to(held.device)].double().cpu()
        return self.ranks.total(own).to(held.device, held.dtype)

    def attempt(self, candidates: list[Finding]) -> list[Finding]:
        """Try witnesses against all classes; return those that lost."""
        accepted: set[int] = set()
        device = self.checker.sweep.device
        for rounded in (True, False):
            left = [one for one in candidates if one.target not in accepted]
            if not left:
                break
            targets = torch.tensor([one.target for one in left])
            given = [one.rounded if rounded else one.point for one in left]
            points = torch.stack([point for point in given if point is not None]).to(device)
            found = self.checker.witnesses(targets, points)
            for at in found.accepted.nonzero().squeeze(1).tolist():
                accepted.add(left[at].target)
                self._keep_point(left[at].target, points[at], float(found.lead[at]), rounded)
        return [one for one in candidates if one.target not in accepted]

    def _keep_point(self, target: int, point: Tensor, lead: float, rounded: bool) -> None:
        state, at = self.search.state, target - self.shard.first
        if not 0 <= at < self.shard.count:
            return
        if rounded:
            state.point[at], state.lead[at] = point.to(state.point), lead
            state.proven[at] = self.solved[at] = True
        else:
            self.points[at], self.leads[at] = point.cpu(), lead

    def _extended(self, pool: Pool, lost: list[Finding]) -> tuple[Pool, Tensor, dict[int, str]]:
        """A pool with the classes that won, who is to be tried against it, and who is not."""
        targets = torch.tensor([one.target for one in lost])
        points = torch.stack([one.point for one in lost if one.point is not None])
        ids, above = self.checker.double.strongest(
            targets, points.to(self.checker.sweep.device), _CUTS
        )
        beats = above >= -self.checker.min_lead
        again, dropped = [], {}
        wanted: list[Tensor] = []
        room = self.most_rows - len(pool)
        for at, target in enumerate(targets.tolist()):
            new = pool.missing(ids[at][beats[at]])
            if len(new) and sum(map(len, wanted)) + len(new) <= room:
                again.append(target)
                wanted.append(new)
            else:
                dropped[target] = ROOM if len(new) else NUMERICAL
        if again:
            pool = pool.with_more(torch.cat(wanted).unique())
        return pool, torch.tensor(again, dtype=torch.int64), dropped

    def keep(self, findings: list[Finding]) -> int:
        """Note certificates, and reasons where there is nothing; return how many certificates."""
        certified = 0
        for one in findings:
            at = one.target - self.shard.first
            certified += one.support is not None
            if not 0 <= at < self.shard.count:
                continue
            if one.support is not None and one.weight is not None:
                self.certificates[at] = (one.support, one.weight)
                self.leads[at] = one.lead
            elif one.point is None:
                self.reasons[at] = one.reason
        return certified

    def _give_up(self, reasons: dict[int, str]) -> None:
        self.keep([Finding(target, reason=reason) for target, reason in reasons.items()])

    def _limits(self) -> Limits:
        """What rank 0 has left of its time. A collective."""
        remaining = self.ranks.broadcast(self.search.limits.remaining())
        return Limits(None if math.isinf(remaining) else remaining)

    def _share(self, targets: list[int]) -> list[int]:
        """Those that this rank works on."""
        return targets[self.ranks.rank :: self.ranks.size]

    def _own(self, batch: Tensor) -> list[int]:
        """Positions on this rank of those of a batch that it holds."""
        at = self.shard.local(batch)
        return [int(one) for one in at[at >= 0].tolist()]

    def _fitting(self, held: CertificateParts) -> list[int]:
        """The first of these certificates whose rows take no more than a rank's share of room."""
        room = self.most_rows // self.ranks.size
        chosen: list[int] = []
        for at, (support, _) in held.items():
            room -= 1 + len(support)
            if room < 0 and chosen:
                break
            chosen.append(at)
        return chosen


def _positions(*parts: np.ndarray) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.int64))
