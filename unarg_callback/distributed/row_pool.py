"""Some rows of a layer that lies on several ranks, fetched to settle some classes among them.

Whatever is proven of a class against the rows of a pool alone is an upper bound on its leads over
all classes: a certificate found there holds as it is, a witness has to be tried against the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.distributed.row_search import RowSearch
from unarg_callback.geometry.certificates import CertificatePart, CertificateParts
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.search.exact import Outcome
from unarg_callback.search.frame import Frame
from unarg_callback.search.limits import Limits
from unarg_callback.search.resolve import resolve, slim
from unarg_callback.search.settle import settle


class Pool:
    """Rows of chosen classes, the same on every rank.

    Args:
        search: holds the checker and the frame.
        positions: (P,) int64 on the CPU, ascending, among the classes of all ranks.
        rows: (P, d) float64 on the CPU.
        biases: (P,) float64 on the CPU.
        known: (P,) bool on the CPU, classes known to be argmaxable.
    """

    def __init__(
        self, search: RowSearch, positions: Tensor, rows: Tensor, biases: Tensor, known: Tensor
    ) -> None:
        self.search, self.positions = search, positions
        self.rows, self.biases, self.known = rows, biases, known

    @classmethod
    def fetched(cls, search: RowSearch, positions: Tensor) -> Pool:
        """Return the pool of these classes. A collective.

        Args:
            search: holds the checker and the frame.
            positions: (P,) int64 on the CPU, ascending, the same on every rank.
        """
        rows, biases = search.shard.fetch(positions)
        at = search.shard.local(positions)
        here = at >= 0
        proven = torch.zeros(len(positions), dtype=torch.float64)
        proven[here] = search.state.proven[at[here]].double()
        known = search.ranks.total(proven) > 0
        return cls(search, positions, rows, biases, known)

    def __len__(self) -> int:
        return len(self.positions)

    def with_more(self, positions: Tensor) -> Pool:
        """Return a pool of these and of others. A collective.

        Args:
            positions: (n,) int64 on the CPU, none of them here, the same on every rank.
        """
        new = Pool.fetched(self.search, positions.sort().values)
        order = torch.cat([self.positions, new.positions]).argsort()
        return Pool(
            self.search,
            torch.cat([self.positions, new.positions])[order],
            torch.cat([self.rows, new.rows])[order],
            torch.cat([self.biases, new.biases])[order],
            torch.cat([self.known, new.known])[order],
        )

    def at(self, positions: Tensor) -> Tensor:
        """(n,) int64, where classes of the pool stand in it."""
        return torch.searchsorted(self.positions, positions)

    def missing(self, positions: Tensor) -> Tensor:
        """The positions that are not in the pool, each once."""
        positions = positions.unique()
        return positions[~torch.isin(positions, self.positions)]

    @cached_property
    def checker(self) -> Checker:
        """Decides among the rows of the pool, by the ``min_lead`` of the whole."""
        whole = self.search.checker
        device = whole.layer.device
        layer = OutputLayer(self.rows.to(device), self.biases.to(device))
        return Checker(layer, whole.domain, whole.min_lead, whole.sweep.dtype)

    @cached_property
    def frame(self) -> Frame:
        """The whitening frame of the whole layer, in the units of this checker."""
        return converted(self.search.frame, self.search.checker, self.checker)

    def settle(
        self, targets: Tensor, points: list[Tensor], supports: CertificateParts, limits: Limits
    ) -> list[Finding]:
        """Settle classes against the pool. Not a collective.

        Args:
            targets: (n,) int64 on the CPU, positions among all classes.
            points: (d,) in the sweep's dtype, where each was tried last.
            supports: of earlier certificates, by position.
            limits: when to stop.
        """
        if not len(targets):
            return []
        own = self.at(targets)
        tried = torch.zeros(len(self), self.rows.shape[1], dtype=self.checker.sweep.dtype)
        tried[own] = torch.stack(points).to(tried)
        found = settle(
            self.checker,
            self.frame,
            own,
            self.known,
            limits=limits,
            supports=self.inside(supports),
            points=tried.to(self.checker.layer.device),
        )
        if not self.checker.domain.is_free:
            found.update(slim(self.checker, found))
        return [Finding.of(self, outcome) for outcome in found.values()]

    def resolve(self, parts: CertificateParts, limits: Limits) -> list[Finding]:
        """Certify classes anew over the rivals they had. Not a collective.

        Args:
            parts: earlier certificates, by position among all classes.
            limits: when to stop.
        """
        parts = self.inside(parts)
        if not self.checker.domain.is_free:
            found = resolve(self.checker, parts, limits)
            return [Finding.of(self, outcome) for outcome in found.values()]
        findings = []
        for place, (support, weight) in parts.items():
            rivals = support.astype(np.int64)
            accepted, bound = self.checker.certificate(place, rivals, weight)
            if accepted:
                outcome = Outcome(place, lead=bound, support=rivals, weight=weight)
                findings.append(Finding.of(self, outcome))
        return findings

    def inside(self, parts: CertificateParts) -> CertificateParts:
        """Certificates by places in the pool, without rivals that are not in it."""
        kept: dict[int, CertificatePart] = {}
        for target, (support, weight) in parts.items():
            rivals = torch.from_numpy(support.astype("int64"))
            here = torch.isin(rivals, self.positions)
            if bool(here.any()) and bool(torch.isin(torch.tensor(target), self.positions)):
                place = int(self.at(torch.tensor([target])))
                kept[place] = (self.at(rivals[here]).numpy(), weight[here.numpy()])
        return kept


@dataclass(frozen=True, eq=False)
class Finding:
    """What was found of one class among the rows of a pool.

    Args:
        target: position among the classes of all ranks.
        lead: the bound of the certificate.
        point: (d,) float64 on the CPU, at which it leads over the pool, or None.
        rounded: (d,) the same in the sweep's dtype, on the grid.
        support: (m,) int64, positions of the rivals of an accepted certificate, or None.
        weight: (m,) float64.
        reason: why there is neither.
    """

    target: int
    lead: float = math.nan
    point: Tensor | None = None
    rounded: Tensor | None = None
    support: NDArray[np.int64] | None = None
    weight: NDArray[np.float64] | None = None
    reason: str = ""

    @classmethod
    def of(cls, pool: Pool, outcome: Outcome) -> Finding:
        """Return an outcome by positions among all classes."""
        target = int(pool.positions[outcome.target])
        if outcome.point is not None:
            rounded = pool.checker.fit(outcome.point[None])[0].cpu()
            return cls(target, point=outcome.point.cpu(), rounded=rounded)
        if outcome.support is None:
            return cls(target, reason=outcome.reason)
        support = pool.positions.numpy()[outcome.support]
        return cls(target, outcome.lead, support=support, weight=outcome.weight)


def converted(frame: Frame, whole: Checker, part: Checker) -> Frame:
    """A frame of one checker's rows in the units of another's."""
    unit = part.sweep.unit / whole.sweep.unit
    mean = frame.mean.to(part.low) * whole.sweep.unit + whole.sweep.middle.to(part.low)
    return Frame(
        (mean - part.sweep.middle) / part.sweep.unit, frame.metric * unit**2, frame.root * unit
    )
