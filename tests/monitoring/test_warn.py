"""Warnings that are not worth a run."""

from __future__ import annotations

import logging
import warnings

import pytest

from unarg_callback.monitoring.warn import warn


def test_it_warns_where_it_is_called() -> None:
    with pytest.warns(UserWarning, match="careful") as caught:
        warn("careful", stacklevel=1)
    assert caught[0].filename == __file__


def test_where_warnings_are_errors_it_logs(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("unarg_callback")
    handlers, logger.handlers = logger.handlers, []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn("careful")
    finally:
        logger.handlers = handlers
    assert caplog.messages == ["careful"]
