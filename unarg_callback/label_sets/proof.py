"""What proves that a label set can, or can't, be output."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class SetStatus(IntEnum):
    """What is known of one label set."""

    UNDECIDED = 0
    """Neither has been proven. Never counted as either."""
    ATTAINABLE = 1
    """A witness is known: an input at which the head outputs the set."""
    UNATTAINABLE = 2
    """A certificate is known: no input makes the head output it by more than ``min_margin``."""


@dataclass(frozen=True, eq=False)
class SetWitness:
    """An input at which the head is claimed to output the set by more than ``min_margin``.

    Args:
        labels: (K,) bool, the set.
        point: (d,) float64.
    """

    labels: NDArray[np.bool_]
    point: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Combination:
    """A nonnegative combination of the inequalities that a set asks for.

    Over the free domain the claim is about the exact weights on ``support`` that cancel every
    feature, of which ``weight`` is only the nearest float64.

    Args:
        support: (m,) int64, labels whose inequality takes part.
        weight: (m,) float64, their weights.
        sign_weight: weight of ``sign sum(z) >= 0``, where the rule has such a condition.
    """

    support: NDArray[np.int64]
    weight: NDArray[np.float64]
    sign_weight: float = 0.0


@dataclass(frozen=True, eq=False)
class SetCertificate:
    """Combinations that are claimed to bound every margin of the set by ``min_margin``.

    Args:
        labels: (K,) bool, the set.
        combinations: one for each sign that the rule tells apart (sparsehourglass: the sum of z
            >= 0, then <= 0), else one; none where the rule never outputs the set (a map to the
            simplex has no empty support).
    """

    labels: NDArray[np.bool_]
    combinations: tuple[Combination, ...]
