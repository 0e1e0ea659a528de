"""What changed between the checks of two layers: by class, or by name where the classes differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.class_filter import ClassFilter
from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report
from unarg_callback.reports.data import kept_classes

_TILE = 256


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two checks, and which class of one is which of the other.

    Args:
        before: the one.
        after: the other.
        pairs: (n, 2) int64, ids of the same class in both, by the second.
        by_name: whether names say which is which, and not ids.
        only_before: ids of classes that the second layer lacks.
        only_after: ids of classes that the first layer lacks.
        shares_before: (C,) leads of argmaxable classes at their witnesses, in percent of the range
            of the logits (in logits in the free domain); else NaN.
        shares_after: likewise.
    """

    before: Report
    after: Report
    pairs: NDArray[np.int64]
    by_name: bool
    only_before: NDArray[np.int64]
    only_after: NDArray[np.int64]
    shares_before: NDArray[np.float64]
    shares_after: NDArray[np.float64]

    def only(self, chosen: ClassFilter) -> Comparison:
        """The same about chosen classes alone; about all where neither layer has names.

        Args:
            chosen: which, by their names in the second layer, or else in the first.
        """
        if self.before.names is None and self.after.names is None:
            return self
        first, second = kept_classes(self.before, chosen), kept_classes(self.after, chosen)
        named = second[self.pairs[:, 1]] if self.after.names else first[self.pairs[:, 0]]
        return replace(
            self,
            pairs=self.pairs[named],
            only_before=self.only_before[first[self.only_before]],
            only_after=self.only_after[second[self.only_after]],
        )

    def changed(self, before: Status, after: Status) -> NDArray[np.int64]:
        """(m, 2) ids of the classes whose verdict went from one to another."""
        was, now = self._statuses()
        return self.pairs[(was == before) & (now == after)]

    @property
    def appeared(self) -> NDArray[np.int64]:
        """(m, 2) ids of classes that were argmaxable and are unargmaxable."""
        return self.changed(Status.ARGMAXABLE, Status.UNARGMAXABLE)

    @property
    def returned(self) -> NDArray[np.int64]:
        """(m, 2) ids of classes that were unargmaxable and are argmaxable again."""
        return self.changed(Status.UNARGMAXABLE, Status.ARGMAXABLE)

    @property
    def other(self) -> dict[tuple[Status, Status], int]:
        """How many verdicts changed in some other way, by what they were and are."""
        was, now = self._statuses()
        differ = was != now
        counts = Counter(zip(was[differ].tolist(), now[differ].tolist(), strict=True))
        main = {(1, 2), (2, 1)}
        return {
            (Status(one), Status(two)): count
            for (one, two), count in sorted(counts.items())
            if (one, two) not in main
        }

    @property
    def moved(self) -> NDArray[np.int64]:
        """(m, 2) ids of classes argmaxable in both, those whose lead changed most first."""
        stayed = self.changed(Status.ARGMAXABLE, Status.ARGMAXABLE)
        change = np.abs(self.shares_after[stayed[:, 1]] - self.shares_before[stayed[:, 0]])
        keep = np.isfinite(change) & (change > 0)
        return stayed[keep][np.argsort(-change[keep], kind="stable")]

    def _statuses(self) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        return self.before.status[self.pairs[:, 0]], self.after.status[self.pairs[:, 1]]


def compare(before: Report, after: Report, first: OutputLayer, second: OutputLayer) -> Comparison:
    """Say which class is which, and how far each leads in both.

    Args:
        before: the check of the first layer.
        after: the check of the second.
        first: the first layer.
        second: the second.

    Raises:
        UnargError: the layers have different numbers of classes, and no names to tell them by.
    """
    by_name = before.names != after.names or before.classes != after.classes
    if by_name and (before.names is None or after.names is None):
        if before.classes != after.classes:
            raise UnargError(
                f"the layers have {before.classes} and {after.classes} classes, and not both have "
                "names to compare them by; expected --labels for each"
            )
        by_name = False
    ids = np.arange(after.classes)
    pairs = np.stack([ids, ids], axis=1)
    if by_name:
        pairs = _by_name(before.names or (), after.names or ())
    return Comparison(
        before=before,
        after=after,
        pairs=pairs,
        by_name=by_name,
        only_before=np.setdiff1d(np.arange(before.classes), pairs[:, 0]),
        only_after=np.setdiff1d(np.arange(after.classes), pairs[:, 1]),
        shares_before=_shares(before, first),
        shares_after=_shares(after, second),
    )


def _by_name(before: tuple[str, ...], after: tuple[str, ...]) -> NDArray[np.int64]:
    """Ids of the names that stand for one class in both."""
    first, second = _unique(before), _unique(after)
    pairs = [(first[name], index) for name, index in second.items() if name in first]
    return np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)


def _unique(names: tuple[str, ...]) -> Mapping[str, int]:
    counts = Counter(names)
    return {name: index for index, name in enumerate(names) if counts[name] == 1}


def _shares(report: Report, layer: OutputLayer) -> NDArray[np.float64]:
    """Leads at the witnesses, in percent of the range of the logits where that is finite.

    What an incremental check reports of a class is often only that its lead can't have fallen
    below something; so they are computed here. They are for people, and prove nothing.
    """
    proofs = report.proofs
    leads = np.full(report.classes, np.nan)
    active = layer.active.to(layer.device)
    weight, bias = layer.rows(active), layer.biases(active)
    place = {index: at for at, index in enumerate(layer.active.tolist())}
    own = torch.tensor([place[i] for i in proofs.witness_class.tolist()], dtype=torch.int64)
    for start in range(0, len(own), _TILE):
        points = torch.from_numpy(proofs.witness[start : start + _TILE]).to(layer.device)
        logits = points @ weight.T + bias
        mine = own[start : start + _TILE, None].to(layer.device)
        value = logits.gather(1, mine).squeeze(1)
        lead = value - logits.scatter(1, mine, -math.inf).amax(1)
        leads[proofs.witness_class[start : start + _TILE]] = lead.cpu().numpy()
    leads[np.isinf(leads)] = np.nan
    return 100 * leads / report.scale if math.isfinite(report.scale) and report.scale else leads
