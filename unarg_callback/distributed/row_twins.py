"""Equal rows on any two ranks: found by hashes, and by comparison with one row of each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unarg_callback.distributed.row_checker import RowChecker
from unarg_callback.distributed.row_pool import Finding
from unarg_callback.distributed.shard import Shard
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.search.twins import Twins, find_twins, row_hashes

_CHUNK = 4096
_NUMBERS = 2**22
"""In the rows that are fetched, or certified, at once."""


@dataclass(frozen=True, eq=False)
class RowTwins:
    """Equal rows among the classes of all ranks.

    Args:
        twins: of all A classes.
        biases: (A,) float64 on the CPU, of those that have an equal; 0 elsewhere.
    """

    twins: Twins
    biases: Tensor

    @classmethod
    def of(cls, shard: Shard) -> RowTwins:
        """Group the active rows of all ranks. A collective.

        Hashes tell who may be equal to whom. Of each group the first row is fetched, and the owners
        compare theirs with it, number by number. (Where two different rows had one hash, an equal
        of the second would be missed; the stages after this need no twins to be right.)
        """
        hashes = torch.cat(shard.ranks.gather(_hashes(shard)))
        _, group, size = torch.unique(hashes, return_inverse=True, return_counts=True)
        suspects = (size[group] > 1).nonzero().squeeze(1)
        _, group = torch.unique(group[suspects], return_inverse=True)
        groups = int(group.max()) + 1 if len(suspects) else 0
        first = torch.full((groups,), shard.total, dtype=torch.int64)
        first = first.scatter_reduce(0, group, suspects, "amin")
        equal = torch.zeros(len(suspects), dtype=torch.float64)
        at_once = _at_once(shard)
        for at in range(0, groups, at_once):
            rows, _ = shard.fetch(first[at : at + at_once])
            equal += shard.ranks.total(_compared(shard, suspects, group - at, rows))
        members, group = suspects[equal > 0], group[equal > 0]
        return cls._marked(shard, members, group)

    @classmethod
    def _marked(cls, shard: Shard, members: Tensor, group: Tensor) -> RowTwins:
        own = torch.zeros(len(members), dtype=torch.float64)
        at = shard.local(members)
        here = (at >= 0).nonzero().squeeze(1)
        own[here] = shard.layer.biases(shard.layer.active[at[here]]).cpu()
        bias = shard.ranks.total(own)
        found, biases = Twins.none(shard.total), torch.zeros(shard.total, dtype=torch.float64)
        if len(members):
            # The number of its group stands for each row.
            among = find_twins(OutputLayer(group.double()[:, None], bias))
            biases[members] = bias
            for there, here in (
                (found.beaten_by, among.beaten_by),
                (found.duplicate_of, among.duplicate_of),
            ):
                there[members] = torch.where(here >= 0, members[here.clamp_min(0)], -1)
        return cls(found, biases)

    def certified(self, checker: RowChecker) -> list[Finding]:
        """Certificates of this rank's classes that have an equal with at least their bias.

        Not a collective: the rival's row is the class's own.

        Args:
            checker: of all ranks; a checker over the pairs decides.
        """
        shard = checker.shard
        beaten = self.twins.beaten_by[shard.first : shard.first + shard.count]
        targets = (beaten >= 0).nonzero().squeeze(1)
        findings: list[Finding] = []
        for own in targets.split(_at_once(shard)) if len(targets) else ():
            rivals, count = beaten[own], len(own)
            ids = shard.layer.active[own]
            rows, biases = shard.layer.rows(ids), shard.layer.biases(ids)
            theirs = self.biases[rivals].to(biases)
            pairs = OutputLayer(torch.cat([rows, rows]), torch.cat([biases, theirs]))
            judge = Checker(pairs, checker.domain, checker.min_lead, torch.float64)
            for at, bound in _accepted(judge, count):
                target, rival = int(own[at]) + shard.first, int(rivals[at])
                findings.append(
                    Finding(target, bound, support=np.array([rival]), weight=np.ones(1))
                )
        return findings


def _at_once(shard: Shard) -> int:
    return max(1, _NUMBERS // shard.dim)


def _accepted(judge: Checker, count: int) -> list[tuple[int, float]]:
    """Which of the first classes are certified by the one that stands ``count`` places on."""
    if judge.domain.is_free:
        said = [judge.certificate(at, np.array([at + count]), np.ones(1)) for at in range(count)]
        return [(at, bound) for at, (accepted, bound) in enumerate(said) if accepted]
    targets = torch.arange(count, device=judge.layer.device)
    ones = torch.ones(count, 1, dtype=torch.float64, device=judge.layer.device)
    accepted, bounds = judge.certificates(targets, targets[:, None] + count, ones)
    return [(at, float(bounds[at])) for at in accepted.nonzero().squeeze(1).tolist()]


def _hashes(shard: Shard) -> Tensor:
    """(n,) int64 on the CPU, of this rank's rows."""
    parts = [row_hashes(shard.layer.rows(ids)).cpu() for ids in shard.layer.active.split(_CHUNK)]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *parts])


def _compared(shard: Shard, suspects: Tensor, group: Tensor, rows: Tensor) -> Tensor:
    """(n,) 1 where a row of this rank equals that of its group's first, among some groups."""
    equal = torch.zeros(len(suspects), dtype=torch.float64)
    at = shard.local(suspects)
    here = ((at >= 0) & (group >= 0) & (group < len(rows))).nonzero().squeeze(1)
    for part in here.split(_CHUNK):
        own = shard.layer.rows(shard.layer.active[at[part]]).cpu()
        equal[part] = (own == rows[group[part]]).all(1).double()
    return equal
