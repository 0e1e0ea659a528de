"""Which argmaxable classes lead by little, or by less at every check, and may soon be lost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from unarg_callback.errors import UnargError
from unarg_callback.geometry.proof import Status

LATEST_WEIGHT = 0.5
"""Weight of the latest change in a trend; the changes before it share the rest."""

_SAMPLED = 16
_QUANTILES = {"min": 0.0, "p01": 0.01, "p10": 0.1, "p50": 0.5}


@dataclass(frozen=True)
class AtRisk:
    """A class that is argmaxable but may not stay so; all numbers are builtins.

    Args:
        index: the class.
        lead: its latest relative lead.
        trend: how that changes from check to check; 0 where it has been seen only once.
        predicted: the relative lead to fear at the next check: the trend goes on, unless it rises,
            and no lead falls by more than half. (A larger fall is mostly that of a witness that
            was replaced, not of the class.)
    """

    index: int
    lead: float
    trend: float
    predicted: float


class LeadHistory:
    """The latest relative lead of every class and its trend, in eight bytes a class.

    The *relative lead* is the lead over the scale of the layer's logits, so that rescaling a layer
    changes nothing. The *trend* is an exponentially weighted mean of its changes from check to
    check. A class that isn't argmaxable has neither, and starts anew when it is so again.

    >>> history = LeadHistory()
    >>> for lead in ([8.0, 5.0], [2.0, 6.0]):
    ...     history.update(np.ones(2, np.int8), np.array(lead), scale=8.0)
    >>> history.at_risk(1)
    (AtRisk(index=0, lead=0.25, trend=-0.75, predicted=0.125),)
    """

    def __init__(self) -> None:
        self.lead: NDArray[np.float32] = np.empty(0, np.float32)
        """(C,) relative leads; NaN where a class isn't argmaxable."""
        self.trend: NDArray[np.float32] = np.empty(0, np.float32)
        """(C,) changes per check; NaN where fewer than two leads in a row are known."""

    def update(
        self,
        status: NDArray[np.int8],
        lead: NDArray[np.float64],
        scale: float,
        measured: NDArray[np.bool_] | None = None,
    ) -> None:
        """Take in a check. Another number of classes is another layer: it starts anew.

        Args:
            status: (C,) int8, values of :class:`Status`.
            lead: (C,) float64, in units of the logits; only those of argmaxable classes are read.
            scale: of the logits. If it isn't finite and above 0, no lead is known at this check.
            measured: (C,) bool, False where the lead is only a bound that was carried over: what is
                known of such a class stays. Default: all are measured.

        Raises:
            UnargError: the arrays don't fit each other.
        """
        if status.ndim != 1 or status.shape != lead.shape:
            raise UnargError(
                f"status has shape {status.shape} and lead {lead.shape}; expected (C,) of both"
            )
        usable = math.isfinite(scale) and scale > 0
        with np.errstate(over="ignore", invalid="ignore"):
            relative = (lead / (scale if usable else np.nan)).astype(np.float32)
            relative[(status != Status.ARGMAXABLE) | ~np.isfinite(relative)] = np.nan
            if self.lead.shape == relative.shape:
                change = relative - self.lead
                mean = self.trend + LATEST_WEIGHT * (change - self.trend)
                trend = np.where(np.isnan(self.trend), change, mean)
                trend[~np.isfinite(trend)] = np.nan
                if measured is not None:
                    stays = ~measured & np.isfinite(relative) & np.isfinite(self.lead)
                    relative[stays], trend[stays] = self.lead[stays], self.trend[stays]
            else:
                trend = np.full_like(relative, np.nan)
        self.lead, self.trend = relative, trend

    def grow(self, new: int) -> None:
        """Make room for classes that were added behind those known.

        Args:
            new: how many.
        """
        self.lead = np.pad(self.lead, (0, new), constant_values=np.nan)
        self.trend = np.pad(self.trend, (0, new), constant_values=np.nan)

    def at_risk(self, limit: int = 50) -> tuple[AtRisk, ...]:
        """Argmaxable classes by predicted relative lead, lowest first; equal ones by id.

        Args:
            limit: most classes.
        """
        predicted = self._predicted()
        return tuple(
            AtRisk(
                index=index,
                lead=float(self.lead[index]),
                trend=float(np.nan_to_num(self.trend[index])),
                predicted=float(predicted[index]),
            )
            for index in _lowest(predicted, limit).tolist()
        )

    def quantiles(self) -> dict[str, float]:
        """Relative leads of the argmaxable classes in four numbers, or none if there are none.

        Returns:
            "min", and "p01", "p10" and "p50": what 1, 10 and 50% of these classes are at or below.
        """
        known = self.lead[~np.isnan(self.lead)].astype(np.float64)
        if not len(known):
            return {}
        values = np.quantile(known, list(_QUANTILES.values())).tolist()
        return dict(zip(_QUANTILES, values, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: two float32 tensors, eight bytes a class."""
        return {"lead": torch.tensor(self.lead), "trend": torch.tensor(self.trend)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave; if that is missing or damaged, start anew."""
        lead, trend = _float32(state.get("lead")), _float32(state.get("trend"))
        if lead is None or trend is None or lead.shape != trend.shape:
            lead = trend = np.empty(0, np.float32)
        self.lead = np.where(np.isfinite(lead), lead, np.float32(np.nan))
        seen_twice = np.isfinite(lead) & np.isfinite(trend)
        self.trend = np.where(seen_twice, trend, np.float32(np.nan))

    def _predicted(self) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):
            falling = self.lead + np.fmin(self.trend, np.float32(0))
            return np.fmax(falling, np.fmin(self.lead, self.lead / np.float32(2)))


def forewarned(previous: Sequence[AtRisk], became: ArrayLike) -> int:
    """How many of the classes that became unargmaxable had been listed as at risk.

    Args:
        previous: the list of the check before.
        became: ids of the classes that became unargmaxable since.

    >>> forewarned([AtRisk(7, 0.1, 0.0, 0.1), AtRisk(9, 0.2, 0.0, 0.2)], [3, 9])
    1
    """
    return len({entry.index for entry in previous} & set(np.asarray(became).tolist()))


def _lowest(values: NDArray[np.float32], limit: int) -> NDArray[np.int64]:
    """Positions of the lowest values, ascending, equal ones by position; NaN is left out."""
    count = max(limit, 0)
    some = values[::_SAMPLED]
    some = some[~np.isnan(some)]
    # At least as many of all values lie below the bound of a sample: only these need sorting.
    bound = np.partition(some, count - 1)[count - 1] if 0 < count <= len(some) else np.inf
    near = np.flatnonzero(values <= bound)
    return near[np.argsort(values[near], kind="stable")[:count]]


def _float32(value: Any) -> NDArray[np.float32] | None:
    """The array of a float32 vector, or None for anything else."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta:
        return None
    if value.dtype != torch.float32 or value.ndim != 1:
        return None
    array: NDArray[np.float32] = value.detach().cpu().numpy()
    return array
