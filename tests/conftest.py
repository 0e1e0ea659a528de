"""Fixtures for all tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import hypothesis
import pytest

import unarg_callback.monitoring.monitor

# No test is timed: machines are busy. A failure prints what reproduces it.
hypothesis.settings.register_profile("untimed", deadline=None, print_blob=True)
hypothesis.settings.load_profile("untimed")


@pytest.fixture
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """No check of a tiny run has to wait for its budget, however busy the machine is."""
    monkeypatch.setattr(unarg_callback.monitoring.monitor, "_CREDIT", 3600.0)


@pytest.fixture(autouse=True)
def no_warning_of_our_own() -> Iterator[None]:
    """Fail where the monitor had to warn and, as warnings are errors in tests, only logged it."""
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.module == "warn":
                told.append(record.getMessage())

    listener = Listener(logging.WARNING)
    logger = logging.getLogger("unarg_callback")
    logger.addHandler(listener)
    yield
    logger.removeHandler(listener)
    assert not told
