"""Fixtures for all tests."""

from __future__ import annotations

import pytest

import unarg_callback.monitoring.head_monitor


@pytest.fixture
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """No check of a tiny run has to wait for its budget, however busy the machine is."""
    monkeypatch.setattr(unarg_callback.monitoring.head_monitor, "_CREDIT", 3600.0)
