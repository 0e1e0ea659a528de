"""What the exact ways share: the problem in scaled coordinates, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.search.frame import Frame
from unarg_callback.search.limits import Limits

_FREE_REACH = 1e4

LIMIT = "the exact stage reached its limit of iterations"
DEADLINE = "the time limit came first"
NUMERICAL = "the best lead is too close to min_lead to tell in float64"
FAILED = "the exact stage failed"
"""Why a class may be undecided."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """An accepted proof for one class, or why there is none.

    Args:
        target: the class, a position among the active ones.
        point: (d,) float64 witness, or None.
        lead: the proven lead of the witness, or the proven bound of the certificate.
        support: (m,) int64 rivals of the certificate, or None.
        weight: (m,) float64.
        reason: why it is undecided, else empty.
    """

    target: int
    point: Tensor | None = None
    lead: float = float("nan")
    support: NDArray[np.int64] | None = None
    weight: NDArray[np.float64] | None = None
    reason: str = ""

    @property
    def settled(self) -> bool:
        """Whether it holds an accepted proof."""
        return self.point is not None or self.support is not None


@dataclass(frozen=True, eq=False)
class Window:
    """The part of the domain an LP looks at: ``x = centre + spread u``, ``|u_k| <= 1``.

    A box is its own window. The free domain has none, so the LP looks at a large one in whitened
    coordinates; what it finds is proven without it.

    Args:
        centre: (d,) float64.
        spread: (d,) float64 where diagonal, else (d, d).
        checker: holds the rows.
    """

    centre: Tensor
    spread: Tensor
    checker: Checker

    @classmethod
    def of(cls, checker: Checker, frame: Frame) -> Window:
        """Return the window of the checker's domain."""
        if not checker.domain.is_free:
            return cls.over_box(checker)
        biases = checker.sweep.biases(slice(None))
        spread = float(biases.amax() - biases.amin())
        # Whitened logits vary by about |y|: far enough out for biases to count little, and where
        # there are none any size will do.
        reach = _FREE_REACH * spread if spread > 0 else 1.0
        return cls(torch.zeros_like(checker.low), frame.root * reach, checker)

    @classmethod
    def over_box(cls, checker: Checker) -> Window:
        """Return the window of a box, which is the box."""
        low, high = checker.low, checker.high
        return cls(low / 2 + high / 2, high / 2 - low / 2, checker)

    def constraints(self, targets: Tensor, rivals: Tensor) -> tuple[Tensor, Tensor]:
        """(n, m, d) rows ``a_i`` and (n, m) offsets ``beta_i``, in units of the evaluator.

        The lead of t over i at u is ``a_i . u + beta_i``.

        Args:
            targets: (n,) int64.
            rivals: (n, m) int64.
        """
        evaluator = self.checker.sweep
        flat = rivals.reshape(-1)
        rows = evaluator.rows(targets)[:, None] - evaluator.rows(flat).reshape(
            *rivals.shape, self.checker.layer.dim
        )
        offset = evaluator.biases(targets)[:, None] - evaluator.biases(flat).reshape(rivals.shape)
        offset = offset + rows @ self.centre
        rows = rows * self.spread if self.spread.ndim == 1 else rows @ self.spread
        return rows, offset

    def points(self, u: Tensor) -> Tensor:
        """(n, d) points x of the domain from (n, d) u."""
        moved = u * self.spread if self.spread.ndim == 1 else u @ self.spread.T
        return (self.centre + moved).clamp(self.checker.low, self.checker.high)


class ExactWay(Protocol):
    """One way to settle classes exactly, up to its limits."""

    def settle(self, targets: Tensor, rivals: Tensor, limits: Limits) -> list[Outcome]:
        """Settle n classes.

        Args:
            targets: (n,) int64 on the CPU.
            rivals: (n, m) int64, rivals to start with; others are added where they matter.
            limits: when to stop; what is left then is undecided. Told of each class settled.

        Returns:
            An outcome for each target, in order. What is settled has been accepted by the checker.
        """
        ...
