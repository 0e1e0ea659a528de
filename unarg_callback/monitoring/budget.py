"""How much time checks may take: a share of the time that training itself has taken."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from unarg_callback.errors import UnargError


class OverheadBudget:
    """Keeps the seconds that checks take within a share of the seconds spent training.

    Training earns what checks spend: after ``trained`` seconds, checks may have taken
    ``share * trained`` in all, so five seconds of training at 3% earn 0.15. What is not spent is
    kept, and a check that overruns is paid back by training on.

    No check starves: a debt is finite and the allowance grows with training, so :meth:`affords`
    holds again after at most ``(spent + essential) / share`` seconds of training in all. For the
    same reason a share of 0 is refused.

    Args:
        share: most time for checks, as a fraction of training time: above 0 and at most 1. None is
            no limit.
        clock: seconds from any fixed moment; only differences count, and a step back counts as no
            time.
        credit: seconds that checks may take in all however short the training.

    Raises:
        UnargError: ``share`` is no such fraction.

    >>> now = iter([0.0, 100.0, 100.0, 101.0, 101.0])
    >>> budget = OverheadBudget(0.03, clock=lambda: next(now))
    >>> budget.start()
    >>> budget.allowance
    3.0
    >>> with budget.spending():
    ...     pass  # a check, of one second
    >>> budget.allowance
    2.0
    """

    def __init__(
        self,
        share: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        credit: float = 0.0,
    ) -> None:
        if share is not None and not 0 < (_seconds(share) or 0) <= 1:
            raise UnargError(
                f"max_overhead is {share!r}; expected a share of training time above 0 and at "
                "most 1, such as 0.03 for 3%, or None for no limit"
            )
        self.share = share
        self.credit = credit
        self._clock = clock
        self._essential = 0.0
        self._trained = 0.0
        self._spent = 0.0
        self._training = False
        self._checks = 0
        self._counted_to = 0.0

    @property
    def trained(self) -> float:
        """Seconds of training so far, without the checks."""
        self._count()
        return self._trained

    @property
    def spent(self) -> float:
        """Seconds that checks have taken so far, one that is running included."""
        self._count()
        return self._spent

    @property
    def essential(self) -> float:
        """Seconds that a check is expected to need before it yields anything; 0 at first."""
        return self._essential

    @property
    def allowance(self) -> float:
        """Seconds that a check may take now: infinite without a limit, and never negative.

        During a check it is what is left for that check.
        """
        if self.share is None:
            return math.inf
        self._count()
        return max(max(self.share * self._trained, self.credit) - self._spent, 0.0)

    def affords(self) -> bool:
        """Whether a check may begin: the allowance is above 0 and covers what is essential."""
        allowance = self.allowance
        return allowance > 0 and allowance >= self._essential

    def learn(self, essential_seconds: float) -> None:
        """Note how long a check took before it yielded anything.

        The estimate is the latest of these, but at least half of what it was: one check that
        happened to be fast doesn't make the next begin too early, and one that happened to be slow
        is soon forgotten.

        Args:
            essential_seconds: finite and at least 0.

        Raises:
            UnargError: it is neither.
        """
        latest = _seconds(essential_seconds)
        if latest is None:
            raise UnargError(
                f"essential_seconds is {essential_seconds!r}; expected finite seconds from 0"
            )
        self._essential = max(latest, self._essential / 2)

    def reset(self) -> None:
        """Begin the account anew, for another training; what checks need stays known."""
        self._count()
        self._trained = self._spent = 0.0

    def start(self) -> None:
        """Training starts or resumes in this process; no effect while it runs."""
        self._count()
        self._training = True

    def stop(self) -> None:
        """Training ends or is interrupted: time until the next :meth:`start` isn't training."""
        self._count()
        self._training = False

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time inside as a check's, however it ends; nested ones count once."""
        self._count()
        self._checks += 1
        try:
            yield
        finally:
            self._count()
            self._checks -= 1

    def state_dict(self) -> dict[str, Any]:
        """What a later process needs to go on; builtins only."""
        return {
            "share": self.share,
            "trained": self.trained,
            "spent": self.spent,
            "essential": self._essential,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave; whether training runs here stays as it is.

        Seconds of training and of checks are taken together or not at all, and only if they were
        counted under the same share: a debt from a run without a limit could hold back checks for
        days. What is missing or damaged is as at the start.
        """
        self._count()
        trained, spent = _seconds(state.get("trained")), _seconds(state.get("spent"))
        same_share = _seconds(state.get("share")) == _seconds(self.share)
        if trained is None or spent is None or not same_share:
            trained = spent = 0.0
        self._trained, self._spent = trained, spent
        self._essential = _seconds(state.get("essential")) or 0.0

    def _count(self) -> None:
        """Add the time since the last call to whatever went on in it."""
        now = self._clock()
        elapsed = max(now - self._counted_to, 0.0)
        self._counted_to = now
        if self._checks:
            self._spent += elapsed
        elif self._training:
            self._trained += elapsed


def _seconds(value: Any) -> float | None:
    """A finite number from 0 as a float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= sys.float_info.max else None
