"""When to stop, and how far the work has come."""

from __future__ import annotations

import time
from collections.abc import Callable


class Limits:
    """A deadline and a progress report shared by all stages of one check.

    Args:
        seconds: wall time from now, or None for no limit.
        on_progress: called with the number of classes newly decided.
        stop: asked as often as the clock is looked at; once it says yes, the time is over.
    """

    def __init__(
        self,
        seconds: float | None = None,
        on_progress: Callable[[int], object] | None = None,
        *,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self._stop = stop
        self._end = None if seconds is None else time.monotonic() + seconds
        self._on_progress = on_progress
        self.cut_short = False
        """Whether work was left undone because of the deadline."""

    @property
    def limited(self) -> bool:
        """Whether there is a deadline."""
        return self._end is not None

    def reached(self) -> bool:
        """Tell whether the deadline is past, and remember that it stopped someone."""
        if self._end is not None and time.monotonic() >= self._end:
            self.cut_short = True
        if self._stop is not None and self._stop():
            self.cut_short = True
        return self.cut_short

    def remaining(self) -> float:
        """Seconds left; infinity without a limit."""
        return float("inf") if self._end is None else max(0.0, self._end - time.monotonic())

    def without_end(self) -> Limits:
        """Limits that tell the same of progress, and never stop anyone."""
        return Limits(on_progress=self._on_progress)

    def advance(self, decided: int) -> None:
        """Report classes newly decided."""
        if self._on_progress is not None and decided:
            self._on_progress(decided)
