"""A time limit for what can't look at the clock itself, such as a regular expression."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def time_out(seconds: float) -> Iterator[None]:
    """Raise TimeoutError where the body takes longer.

    By an alarm of the system, which a running regular expression answers too. No limit outside the
    main thread, where the system has no such alarm, and where somebody else has set theirs.

    Args:
        seconds: above 0.

    Raises:
        TimeoutError: time is over.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or not hasattr(signal, "setitimer")
        or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
    ):
        yield
        return

    def over(*_: object) -> NoReturn:
        raise TimeoutError(f"more than {seconds:g} seconds")

    signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
