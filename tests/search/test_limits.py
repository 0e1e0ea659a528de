from __future__ import annotations

import math
import time

import pytest

from unarg_callback.search.limits import Limits


def test_no_limit_is_never_reached() -> None:
    limits = Limits()
    assert not limits.reached()
    assert not limits.cut_short
    assert limits.remaining() == math.inf


def test_a_limit_is_remembered_once_it_stops_someone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limits = Limits(5.0)
    assert limits.remaining() == 5.0
    assert not limits.reached()
    now[0] = 105.0
    assert limits.remaining() == 0.0
    told = [limits.cut_short, limits.reached(), limits.cut_short]
    assert told == [False, True, True]  # At first nobody has been stopped.
    now[0] = 200.0
    assert limits.remaining() == 0.0
    assert limits.reached()


def test_no_time_is_reached_at_once() -> None:
    assert Limits(0.0).reached()
    assert Limits(-1.0).reached()


def test_progress_is_passed_on() -> None:
    seen: list[int] = []
    limits = Limits(on_progress=seen.append)
    for decided in (3, 0, 2):
        limits.advance(decided)
    assert seen == [3, 2]
    Limits().advance(5)
