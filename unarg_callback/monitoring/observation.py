"""What a head's inputs tell about its domain: where they were, or that they left it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.monitoring.activation_range import ActivationRange
from unarg_callback.monitoring.observed_domain import ObservedDomain
from unarg_callback.monitoring.warn import warn

MARGIN = 1.5
"""How much wider than what was observed the domain "observed" is."""

_OBSERVED = "observed"


def observed_margin(domain: object) -> float | None:
    """The margin of "observed" or "observed:<margin>"; None for any other domain.

    Raises:
        UnargError: the margin is no number from 1.

    >>> observed_margin("observed"), observed_margin("observed:2"), observed_margin("box:10")
    (1.5, 2.0, None)
    """
    if not isinstance(domain, str) or domain.partition(":")[0].strip() != _OBSERVED:
        return None
    text = domain.partition(":")[2]
    try:
        margin = float(text) if text else MARGIN
    except ValueError:
        margin = float("nan")
    if not 1 <= margin < float("inf"):
        raise UnargError(f"domain is {domain!r}; expected 'observed:<margin>', a number from 1")
    return margin


class Observation:
    """Watches the inputs of one head while it trains.

    Args:
        margin: how much wider than what was observed the domain is; None where a domain was
            assumed, and has only to be compared with what is observed.
    """

    def __init__(self, margin: float | None) -> None:
        self.range = ActivationRange("train")
        """What this process has observed; after training, what all have."""
        self._follows = None if margin is None else ObservedDomain(margin)
        self._told = False

    @property
    def domain(self) -> Domain | None:
        """The domain that follows from the observations, once there are any."""
        return None if self._follows is None else self._follows.domain

    @property
    def waits(self) -> bool:
        """Whether there can't be a check yet, for want of a domain."""
        return self._follows is not None and self._follows.domain is None

    def attach(self, module: nn.Module | None) -> None:
        """Watch a module's input from now on.

        Raises:
            UnargError: there is no module.
        """
        if module is None:
            raise UnargError(
                "the layer is computed by a function, so its input can't be observed; expected a "
                "module (or a domain such as 'box:100', and observe=False)"
            )
        self.range.detach()
        self.range.attach(module)

    def detach(self) -> None:
        """Watch no longer; what was observed stays."""
        self.range.detach()

    def follow(self, ranks: Ranks) -> Domain | None:
        """The domain to check in, or None for the one that was assumed. A collective.

        Raises:
            UnargError: nothing was observed on any rank.
        """
        if self._follows is None:
            return None
        return ranks.broadcast(self._follows.cover(*self.range.extremes(ranks)))

    def left(self, domain: Domain, ranks: Ranks) -> str | None:
        """Tell, once, how the inputs left an assumed domain. A collective.

        Args:
            domain: where they were assumed to lie.
            ranks: that observe.
        """
        if self._follows is not None or self._told:
            return None
        if not any(ranks.gather(self.range.tokens)):
            return None
        low, high = self.range.extremes(ranks)
        floor, ceiling = domain.bounds(len(low))
        if (low >= floor).all() and (high <= ceiling).all():
            return None
        self._told = True
        return self.range.reduce(ranks).exceeds(domain)

    def gather(self, ranks: Ranks) -> None:
        """Stop watching, and put together what all ranks have observed. A collective."""
        self.range.detach()
        self.range = self.range.reduce(ranks)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins; at most 8.2 kB a dimension and 1 MB."""
        follows = None if self._follows is None else self._follows.state_dict()
        return {"range": self.range.state_dict(), "follows": follows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave; a damaged part is left out, with a warning."""
        try:
            self.range.load_state_dict(state["range"])
            if self._follows is not None and state["follows"] is not None:
                self._follows.load_state_dict(state["follows"])
        except (UnargError, LookupError, TypeError) as cause:
            warn(f"the saved activation range is left out: {cause}")
