"""One piece of work at a time in a thread of its own, beside training."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_LAST_WAIT = 60.0
"""Seconds to wait for a function that was asked to end, when the program ends."""


class Background(Generic[T]):
    """Runs one function at a time in a daemon thread; nothing is forked.

    Its result, or what it raised, is for :meth:`collect` in the thread that submitted it.

    >>> background = Background()
    >>> background.submit(lambda: 6 * 7)
    >>> background.collect(wait=True)
    42
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._result: T | None = None
        self._failure: BaseException | None = None
        self._stop = threading.Event()

    @property
    def busy(self) -> bool:
        """Whether something was submitted and has not been collected."""
        return self._thread is not None

    @property
    def ended(self) -> bool:
        """Whether a result waits to be collected."""
        return self._thread is not None and not self._thread.is_alive()

    def stopping(self) -> bool:
        """Whether the function that runs should come to an end soon; it is for it to ask."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask the function that runs to come to an end soon."""
        self._stop.set()

    def submit(self, work: Callable[[], T]) -> None:
        """Begin with a function.

        Args:
            work: what it computes must be its own; nobody else may change it meanwhile.

        Raises:
            RuntimeError: the last one has not been collected.
        """
        if self._thread is not None:
            raise RuntimeError("the last piece of work has not been collected")
        self._stop.clear()

        def run() -> None:
            try:
                self._result = work()
            except BaseException as cause:  # It is raised again where it is collected.
                self._failure = cause

        self._thread = threading.Thread(target=run, name="unarg_callback", daemon=True)
        # A thread that is inside torch when the interpreter ends would abort the process.
        atexit.register(self._end)
        self._thread.start()

    def collect(self, *, wait: bool = False, timeout: float | None = None) -> T | None:
        """Return the result of what has ended, once; None where there is nothing (yet).

        Args:
            wait: for what is still running.
            timeout: seconds to wait at most; what runs on then is left to itself.

        Raises:
            BaseException: whatever the function raised.
        """
        thread = self._thread
        if thread is None:
            return None
        if wait:
            thread.join(timeout)
        if thread.is_alive():
            return None
        result, failure = self._result, self._failure
        self._thread = self._result = self._failure = None
        atexit.unregister(self._end)
        if failure is not None:
            raise failure
        return result

    def __getstate__(self) -> dict[str, Any]:
        # Threads stay where they are.
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]

    def _end(self) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join(_LAST_WAIT)
