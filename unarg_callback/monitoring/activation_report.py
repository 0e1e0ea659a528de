"""What is said of the inputs of a layer: the paper's Table 9, and where they leave a domain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.monitoring.activation_totals import ActivationTotals
from unarg_callback.monitoring.quantile_sketch import QuantileSketch

SHARE = 0.99
"""Share of the tokens in the ranges of Table 9: between the percentiles 0.5 and 99.5."""


@dataclass(frozen=True)
class Table9:
    """A row of the paper's Table 9: how far the inputs of an output layer reach.

    Args:
        model: what to call it.
        min_range: middle 99% of the tokens by their lowest activation of all dimensions.
        max_range: middle 99% of the tokens by their highest activation.
        min: the lowest activation of all tokens.
        max: the highest activation of all tokens.
        tokens: how many there were.
    """

    model: str
    min_range: tuple[float, float]
    max_range: tuple[float, float]
    min: float
    max: float
    tokens: int

    def __str__(self) -> str:
        """Return the row in Markdown, below its head."""
        cells = (
            self.model.replace("|", "\\|"),
            f"[{self.min_range[0]:.3g}, {self.min_range[1]:.3g}]",
            f"[{self.max_range[0]:.3g}, {self.max_range[1]:.3g}]",
            f"{self.min:.4g}",
            f"{self.max:.4g}",
            f"{self.tokens:,}",
        )
        head = "| model | min range | max range | min | max | tokens |\n|---|---|---|---|---|---|"
        return f"{head}\n| {' | '.join(cells)} |"


def table9(totals: ActivationTotals, model: str) -> Table9:
    """Table 9 for totals of one token or more."""
    lowest, highest = float(totals.low.min()), float(totals.high.max())
    tail = beyond(SHARE)

    def middle(sketch: QuantileSketch) -> tuple[float, float]:
        ends = (sketch.quantile(q)[0] for q in (tail, 1 - tail))
        lower, upper = (float(np.clip(end, lowest, highest)) for end in ends)
        return lower, upper

    return Table9(
        model=model,
        min_range=middle(totals.token_low),
        max_range=middle(totals.token_high),
        min=lowest,
        max=highest,
        tokens=int(totals.tokens),
    )


def exceeds(totals: ActivationTotals, domain: Domain) -> str | None:
    """How activations left a domain, in a sentence; None if they didn't.

    Args:
        totals: of one token or more.
        domain: box or free.

    Raises:
        DomainError: the domain has another number of dimensions.
    """
    low, high = (bound.double().cpu().numpy() for bound in (totals.low, totals.high))
    floor, ceiling = domain.bounds(len(low))
    excess = np.maximum(floor - low, high - ceiling)
    outside = int((excess > 0).sum())
    if not outside:
        return None
    worst = int(excess.argmax())
    above = high[worst] - ceiling[worst] >= floor[worst] - low[worst]
    reached, end = (high, ceiling) if above else (low, floor)
    return (
        f"the layer's inputs leave the domain {domain} in {outside:,} of {len(low):,} "
        f"dimensions{_tokens_outside(totals, floor, ceiling)}; dimension {worst} reached "
        f"{reached[worst]:.6g}, and the domain ends at {end[worst]:.6g} there"
    )


def beyond(share: float) -> float:
    """What lies on either side of the middle share.

    Raises:
        UnargError: the share isn't above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise UnargError(f"share is {share}; expected a number above 0 and at most 1")
    return (1 - share) / 2


def _tokens_outside(
    totals: ActivationTotals, floor: NDArray[np.float64], ceiling: NDArray[np.float64]
) -> str:
    """How many tokens left a box that is the same in every dimension; nothing for others."""
    low, high = float(floor[0]), float(ceiling[0])
    if (floor != low).any() or (ceiling != high).any():
        return ""
    below = int(totals.token_low.surely_beyond(low, math.inf)[0])
    above = int(totals.token_high.surely_beyond(-math.inf, high)[0])
    return f", at least {max(below, above, 1):,} of {int(totals.tokens):,} tokens"
