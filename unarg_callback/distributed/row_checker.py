"""The checker's view of a layer whose rows lie on several ranks: leads over all of them.

Each rank computes the logits of its own rows, and one all-reduced maximum tells every rank who is
ahead at each point. Whatever decides what happens next is a reduced value, the same bit for bit on
every rank.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from unarg_callback.distributed.shard import Shard
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.compact import Grid
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.leaders import Ends, LeadEvaluator, Leads
from unarg_callback.geometry.rounding import SMALLEST_NORMAL, float32_products_are_ieee

_POINTS = 512
_LOGITS = 2**21


class RowEvaluator(LeadEvaluator):
    """Leads over the classes of all ranks; products run where each rank's rows lie.

    ``rows``, ``biases`` and ``count`` are those of this rank; targets and rivals of
    :meth:`leads` and :meth:`strongest` are positions among the A classes of all ranks. These two
    and the constructor are collectives, to be called with equal arguments on every rank.

    **Error.** Rows are centred and scaled by what all ranks have in common, so that each logit is
    the one that a single process would compute, up to the order of its sum; and the largest norm,
    entry and bias in the bound are those of all ranks. A maximum adds no rounding. So the bounds of
    :class:`LeadEvaluator` hold as they are. A product that isn't a number counts as the highest
    where it is a rival's and as the lowest where it is the target's.

    Args:
        shard: this rank's rows.
        dtype: float32 or float64.
        ends: over all ranks.
    """

    def __init__(self, shard: Shard, dtype: torch.dtype, ends: Ends) -> None:
        self.shard = shard
        super().__init__(shard.layer, dtype, ends)
        own = torch.tensor(self._largest_norm, dtype=torch.float64, device="cpu")
        self._largest_norm = float(shard.ranks.maximum(own))

    def strongest(self, targets: Tensor, points: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """See :class:`LeadEvaluator`; both results on the CPU."""
        own = self.shard.local(targets)
        width = min(count, self.shard.total - 1)
        at_once = max(1, _LOGITS // max(self.count, 1))

        most = min(width, self.count)
        parts = [
            self._strongest(part.to(self.device), there, most)
            for part, there in zip(own.split(at_once), points.split(at_once), strict=True)
            if self.count
        ]
        ids = torch.cat([torch.zeros(0, most, dtype=torch.int64), *(p[0].cpu() for p in parts)])
        logits = torch.cat(
            [torch.zeros(0, most, dtype=torch.float64), *(p[1].double().cpu() for p in parts)]
        )
        mine = torch.full((len(own),), -math.inf, dtype=torch.float64)
        here = own >= 0
        mine[here] = self._logits(own[here], points[here.to(points.device)])[0].cpu()
        told = self.shard.ranks.gather((ids + self.shard.first, logits, mine))
        found = [part for part in told if part[0].shape[1]]
        ids, logits = torch.cat([p[0] for p in found], 1), torch.cat([p[1] for p in found], 1)
        best, order = logits.topk(width, dim=1)
        mine = torch.stack([part[2] for part in found]).amax(0)
        return ids.gather(1, order), (best - mine[:, None]) * self.unit

    def _leads(self, targets: Tensor, points: Tensor) -> Leads:
        own = self.shard.local(targets)
        ranks, count = self.shard.ranks, len(targets)
        table = torch.full((ranks.size + 3, count), -math.inf, dtype=torch.float64)
        tile_max = torch.empty(count, 0, dtype=self.dtype, device=self.device)
        if self.count:
            spans = (slice(at, at + _POINTS) for at in range(0, count, _POINTS))
            tile_max = torch.cat([self._tile_maxima(own[span], points[span]) for span in spans])
            table[ranks.rank] = _number(tile_max.amax(1), math.inf)
        here = own >= 0
        logits, *errors = self._logits(own[here], points[here.to(points.device)])
        table[ranks.size, here] = _number(logits, -math.inf)
        table[ranks.size + 1, here] = _number(errors[0], math.inf)
        # What beats a target of unknown logit leads by nobody knows how much.
        unknown = torch.where(torch.isnan(logits), math.inf, errors[1])
        table[ranks.size + 2, here] = _number(unknown, math.inf)
        table = ranks.maximum(table)
        heights, (mine, error, rival_error) = table[: ranks.size], table[ranks.size :]
        lead = mine - heights.amax(0)
        rival = torch.full((count,), -1, dtype=torch.int64)
        rival_lead = torch.full((count,), math.nan, dtype=torch.float64)
        losing = (~(lead > 0)).nonzero().squeeze(1)
        if len(losing) and self.shard.total > 1:
            found = self._best(own, points, losing, tile_max, heights[:, losing], mine[losing])
            rival[losing], rival_lead[losing] = found
        unit, least = self.unit, SMALLEST_NORMAL[torch.float64]
        fields = (
            lead * unit,
            error * unit + least,
            rival,
            rival_lead * unit,
            rival_error * unit + least,
        )
        return Leads(*(field.to(self.device) for field in fields))

    def _logits(self, own: Tensor, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n,) float64 logits of this rank's targets, and the two bounds on their leads."""
        at = own.to(self.device)
        rows = self.rows(at)
        logits = (rows.to(self.dtype) * points).sum(1).double() + self._bias[at].double()
        return logits, *self._errors(at, rows, points)

    def _best(
        self,
        own: Tensor,
        points: Tensor,
        losing: Tensor,
        tile_max: Tensor,
        heights: Tensor,
        mine: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(k,) who wins where the target does not, and its lead over everybody else."""
        ranks = self.shard.ranks
        order = torch.arange(ranks.size)[:, None].expand_as(heights)
        # Of equals the first, as if all rows were in one place.
        holder = torch.where(heights == heights.amax(0), order, ranks.size).amin(0)
        others = heights.scatter(0, holder[None], -math.inf).amax(0)
        elsewhere = torch.maximum(others, mine)

        table = torch.full((2, len(losing)), -math.inf, dtype=torch.float64)
        here = (holder == ranks.rank).nonzero().squeeze(1)
        if self.count and len(here):
            at = losing[here].to(self.device)
            winner, lead = self._winners(
                own.to(self.device)[at], points[at], tile_max[at], elsewhere[here].to(self.device)
            )
            table[0, here] = (winner + self.shard.first).double().cpu()
            table[1, here] = _number(lead, -math.inf)
        winner, lead = ranks.maximum(table)
        return winner.clamp_min(-1).long(), lead


class RowChecker(Checker):
    """Decides candidate witnesses against the classes of all ranks.

    The constructor and :meth:`witnesses` are collectives, to be called with equal arguments on
    every rank. Certificates are decided by a :class:`Checker` over the rows that they name.

    Args:
        shard: this rank's rows.
        domain: where the input may lie.
        min_lead: what a lead must exceed, as for :class:`Checker`.
        sweep_dtype: float32 or float64.

    Raises:
        DomainError: as for :class:`Checker`; on every rank.
    """

    def __init__(
        self, shard: Shard, domain: Domain, min_lead: float | None, sweep_dtype: torch.dtype
    ) -> None:
        self.shard = shard
        self.layer = shard.layer
        self.domain = domain
        device = shard.layer.device
        low, high = domain.bounds(shard.dim)
        self.low, self.high = (torch.from_numpy(bound).to(device) for bound in (low, high))
        self.grid = Grid.of(self.low, self.high)
        usable = float32_products_are_ieee(device) and self._holds_float32_points()
        in_float32 = all(shard.ranks.gather(usable)) and sweep_dtype == torch.float32
        self._ends = self._within(common_ends(shard), min_lead)
        self.sweep: RowEvaluator = RowEvaluator(
            shard, torch.float32 if in_float32 else torch.float64, self._ends
        )
        self._double: RowEvaluator | None = None
        self.min_lead = self._required(min_lead)

    @property
    def double(self) -> RowEvaluator:
        """The float64 evaluator, built when first needed. A collective then."""
        if self._double is None:
            same = self.sweep.dtype == torch.float64
            self._double = (
                self.sweep if same else RowEvaluator(self.shard, torch.float64, self._ends)
            )
        return self._double

    @cached_property
    def logit_range(self) -> float:
        """See :class:`Checker`; over all ranks. A collective at first."""
        if not self.shard.total or self.domain.is_free:
            return float("inf") if self.shard.total else 0.0
        top, bottom = self._logit_ends()
        own = torch.tensor([top, -bottom], dtype=torch.float64, device="cpu")
        top, below = self.shard.ranks.maximum(own).tolist()
        return float((top + below) * self.sweep.unit)


def common_ends(shard: Shard) -> Ends:
    """The ends of columns and biases over all ranks. A collective."""
    dim, ends = shard.dim, Ends.of(shard.layer)
    own = torch.cat([-ends.low, ends.high, -ends.bias_low[None], ends.bias_high[None]])
    table = shard.ranks.maximum(own)
    return Ends(-table[:dim], table[dim : 2 * dim], -table[-2], table[-1])


def _number(values: Tensor, otherwise: float) -> Tensor:
    """Values on the CPU in float64, with NaN replaced."""
    values = values.double().cpu()
    return torch.where(torch.isnan(values), otherwise, values)
