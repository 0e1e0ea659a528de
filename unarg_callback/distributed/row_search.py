"""The search for witnesses of a layer whose rows lie on several ranks, all ranks in step.

Each rank moves the points of its own classes. A block of them from every rank is tried at once, and
whoever wins at a point of another rank keeps it as a witness.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unarg_callback.distributed.row_checker import RowChecker
from unarg_callback.geometry.checker import WitnessCheck
from unarg_callback.search.frame import Frame, frame_of
from unarg_callback.search.limits import Limits
from unarg_callback.search.reflect import SearchState, beginning, reflection
from unarg_callback.search.working_set import exact_cost

_MOST_REFLECTIONS = 100
_MOST_POINTS = 8192
_NUMBERS = 2**22
"""Numbers in a block of points, of all ranks together."""
_CHUNK = 4096


class RowSearch:
    """Braid Reflect over the classes of all ranks. Its methods are collectives.

    Args:
        checker: decides.
        limits: when to stop, by the clock of rank 0.
    """

    def __init__(self, checker: RowChecker, limits: Limits) -> None:
        self.checker, self.limits = checker, limits
        self.shard, self.ranks = checker.shard, checker.shard.ranks
        self.state: SearchState = SearchState.empty(checker)
        """Of this rank's classes; rivals are positions among the classes of all ranks."""
        self.frame: Frame = _common_frame(checker)
        """The same on every rank."""
        self.cut_short = False
        """Whether work was left undone because of the time limit."""
        most = min(_MOST_POINTS, _NUMBERS // self.shard.dim)
        self._block = max(1, most // self.ranks.size)

    def late(self) -> bool:
        """Whether rank 0 is past the deadline."""
        self.cut_short |= self.ranks.broadcast(self.limits.reached())
        return self.cut_short

    def start(self, targets: Tensor) -> None:
        """Begin at whitened rows, pushed to the boundary of a box that holds the origin.

        Not a collective.

        Args:
            targets: (n,) int64 on the CPU, of this rank.
        """
        device = self.shard.layer.device
        for part in targets.to(device).split(_CHUNK):
            self.state.point[part] = beginning(self.checker, self.frame, part)
        self.state.rival[targets] = -1

    def search(self, targets: Tensor, *, tried: bool = False) -> None:
        """Reflect while it pays: see :class:`~unarg_callback.search.stages.Stages`.

        Args:
            targets: (n,) int64 on the CPU, of this rank.
            tried: whether their points have been tried.
        """
        ratio = exact_cost(self.shard.dim, self.shard.total)
        poor = 0
        for step in range(int(tried), _MOST_REFLECTIONS + 1):
            gained, attempted = self.sweep(targets, reflected=step > 0)
            if self.cut_short or not attempted:
                return
            if step:
                poor = 0 if gained * ratio >= attempted else poor + 1
                if poor == 2:
                    return

    def sweep(self, targets: Tensor, *, reflected: bool) -> tuple[int, int]:
        """Try each class that isn't proven once.

        Args:
            targets: (n,) int64 on the CPU, of this rank.
            reflected: at the other side of the hyperplane where it ties with the winner, which was
                found at its point; else at its point.

        Returns:
            How many classes of all ranks were proven, and how many tried.
        """
        state = self.state
        targets = targets[~state.proven[targets]]
        if reflected:
            targets = targets[state.rival[targets] >= 0]
        lengths = self.ranks.gather(len(targets))
        gained = 0
        for at in range(0, max(lengths), self._block):
            if (reflected or at) and self.late():
                break
            part = targets[at : at + self._block]
            part = part[~state.proven[part]]
            points = state.point[part.to(state.point.device)]
            gained += self.attempt(part, self._reflected(part, points) if reflected else points)
        return gained, sum(lengths)

    def attempt(self, targets: Tensor, points: Tensor) -> int:
        """Try a block of points of each rank against the classes of all.

        Args:
            targets: (n,) int64 on the CPU, of this rank.
            points: (n, d) in the sweep's dtype.

        Returns:
            How many classes of all ranks were proven.
        """
        sent = self.ranks.gather((targets + self.shard.first, points.cpu()))
        everyone = torch.cat([positions for positions, _ in sent])
        there = torch.cat([tried for _, tried in sent]).to(points.device)
        found = self.checker.witnesses(everyone, there)
        begin = sum(len(positions) for positions, _ in sent[: self.ranks.rank])
        own = slice(begin, begin + len(targets))
        return sum(self.ranks.gather(self._record(targets, there, found, own)))

    def _record(self, targets: Tensor, points: Tensor, found: WitnessCheck, own: slice) -> int:
        """Keep what concerns this rank's classes; return how many are new."""
        state = self.state
        rival, nobody = found.rival.cpu(), torch.zeros_like(found.accepted[own])
        nowhere = torch.full_like(found.rival[own], -1)
        mine = WitnessCheck(found.accepted[own], found.lead[own], nowhere, nobody, found.lead[own])
        gained = state.record(targets, points[own], mine)
        # Winners are counted over all ranks.
        state.rival[targets] = rival[own]
        winner = self.shard.local(rival)
        lead, accepted = found.rival_lead.cpu(), found.rival_accepted.cpu() & (winner >= 0)
        at = accepted.nonzero().squeeze(1)
        at = at[~state.proven[winner[at]]]
        # The deepest witness of each class.
        at = at[lead[at].argsort(stable=True)]
        deepest = {int(winner[row]): int(row) for row in at}
        rows = torch.tensor(list(deepest.values()), dtype=torch.int64)
        classes = torch.tensor(list(deepest), dtype=torch.int64)
        state.proven[classes] = True
        state.lead[classes] = lead[rows]
        state.point[classes.to(state.point.device)] = points[rows.to(points.device)]
        return gained + len(classes)

    def _reflected(self, part: Tensor, points: Tensor) -> Tensor:
        """Points after one reflection, in the sweep's dtype; rivals' rows come from all ranks."""
        state, sweep, checker = self.state, self.checker.sweep, self.checker
        rivals = state.rival[part]
        wanted = torch.cat(self.ranks.gather(rivals.unique())).unique()
        rows, biases = (table.to(sweep.device) for table in self.shard.fetch(wanted))
        at = torch.searchsorted(wanted, rivals).to(sweep.device)
        own = part.to(sweep.device)
        delta = sweep.rows(own) - (rows[at] - sweep.middle) / sweep.unit
        bias = sweep.biases(own) - (biases[at] - sweep.bias_middle) / sweep.unit
        state.reflections[part] += 1
        return checker.fit(reflection(delta, bias, self.frame.metric, points))


def _common_frame(checker: RowChecker) -> Frame:
    """The frame in which the active rows of all ranks have mean 0 and covariance I."""
    shard, sweep, dim = checker.shard, checker.sweep, checker.shard.dim
    own = torch.zeros(dim + 1, dim, dtype=torch.float64, device=sweep.device)
    for at in range(0, sweep.count, _CHUNK):
        rows = sweep.rows(slice(at, at + _CHUNK))
        own[0] += rows.sum(0)
        own[1:] += rows.T @ rows
    table = shard.ranks.total(own.cpu()) / max(shard.total, 1)
    # Machines may differ in the last bit, or in the sign of a vector: rank 0's counts for all.
    frame = frame_of(table[0], table[1:] - torch.outer(table[0], table[0]))
    frame = shard.ranks.broadcast(frame)
    return Frame(*(part.to(sweep.device) for part in (frame.mean, frame.metric, frame.root)))
