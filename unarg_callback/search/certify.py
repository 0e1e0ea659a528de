"""From the multipliers of an LP to an accepted certificate, over a box and in the free domain."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.search.exact import Outcome
from unarg_callback.search.frame import Frame
from unarg_callback.search.simplex import simplex_certificate

_HEAVY = 1e-2


class Certifier(Protocol):
    """Turns weights over rivals into certificates that the checker accepts.

    ``slack``: how far above ``min_lead`` a bound may be for an offer to make sense, relative to
    the size of the LP. ``spares``: whether rivals that the bound can do without may be left out.
    """

    slack: float
    spares: bool

    def offer(self, targets: Tensor, supports: Tensor, weights: Tensor) -> list[Outcome | None]:
        """Return an outcome for each accepted offer, None for each refused.

        Args:
            targets: (n,) int64.
            supports: (n, m) int64.
            weights: (n, m) float64, zeros where padded.
        """
        ...


class BoxCertifier:
    """Offers the weights as they are.

    Args:
        checker: decides.
    """

    slack = 0.0
    spares = True

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    def offer(self, targets: Tensor, supports: Tensor, weights: Tensor) -> list[Outcome | None]:
        """See :class:`Certifier`."""
        accepted, bounds = self._checker.certificates(targets, supports, weights)
        outcomes: list[Outcome | None] = [None] * len(targets)
        for at in accepted.nonzero().squeeze(1).tolist():
            used = weights[at] > 0
            outcomes[at] = Outcome(
                int(targets[at]),
                lead=float(bounds[at]),
                support=supports[at][used].cpu().numpy(),
                weight=weights[at][used].cpu().numpy(),
            )
        return outcomes


class FreeCertifier:
    """Looks for a simplex among the rivals that carry weight.

    Args:
        checker: decides.
        frame: whitens.
    """

    slack = 1e-6
    spares = False

    def __init__(self, checker: Checker, frame: Frame) -> None:
        self._checker = checker
        self._frame = frame

    def offer(self, targets: Tensor, supports: Tensor, weights: Tensor) -> list[Outcome | None]:
        """See :class:`Certifier`."""
        outcomes: list[Outcome | None] = []
        for target, support, weight in zip(targets.tolist(), supports, weights, strict=True):
            outcomes.append(self._offer(target, support, weight))
        return outcomes

    def _offer(self, target: int, support: Tensor, weight: Tensor) -> Outcome | None:
        """Try the heavy rivals, then all: one with next to no weight may be a corner."""
        tried = 0
        for least in (_HEAVY, 0.0):
            rivals = support[weight > least * weight.amax()].cpu().numpy()
            if len(rivals) > tried:
                outcome = simplex_certificate(self._checker, self._frame, target, rivals)
                if outcome is not None:
                    return outcome
            tried = len(rivals)
        return None


def certifier_of(checker: Checker, frame: Frame) -> Certifier:
    """Return the certifier of the checker's domain."""
    return FreeCertifier(checker, frame) if checker.domain.is_free else BoxCertifier(checker)
