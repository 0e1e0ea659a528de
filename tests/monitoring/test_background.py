"""Work beside training, in a thread."""

from __future__ import annotations

import threading

import pytest

from unarg_callback.monitoring.background import Background


def test_a_result_is_collected_once() -> None:
    background: Background[int] = Background()
    assert background.collect() is None
    background.submit(lambda: 3)
    assert background.busy
    assert background.collect(wait=True) == 3
    assert background.collect(wait=True) is None
    assert not background.busy


def test_nothing_is_collected_before_it_ends() -> None:
    background: Background[int] = Background()
    go = threading.Event()
    background.submit(lambda: int(go.wait(60)))
    assert background.collect() is None
    assert background.collect(wait=True, timeout=0.01) is None
    assert background.busy
    assert not background.ended
    go.set()
    assert background.collect(wait=True) == 1


def test_one_at_a_time() -> None:
    background: Background[int] = Background()
    background.submit(lambda: 1)
    with pytest.raises(RuntimeError, match="not been collected"):
        background.submit(lambda: 2)
    assert background.collect(wait=True) == 1


@pytest.mark.parametrize("cause", [ValueError("no"), SystemExit(3), MemoryError()])
def test_what_it_raises_is_raised_where_it_is_collected(cause: BaseException) -> None:
    def fail() -> int:
        raise cause

    background: Background[int] = Background()
    background.submit(fail)
    with pytest.raises(type(cause)):
        background.collect(wait=True)
    background.submit(lambda: 1)
    assert background.collect(wait=True) == 1


def test_it_does_not_keep_a_program_alive() -> None:
    background: Background[bool] = Background()
    go = threading.Event()
    background.submit(go.wait)
    daemons = [thread.daemon for thread in threading.enumerate() if thread.name == "unarg_callback"]
    go.set()
    background.collect(wait=True)
    assert daemons == [True]
