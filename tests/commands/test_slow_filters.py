"""A pattern that takes for ever is found out before the check."""

from __future__ import annotations

import importlib
import json
import signal
import threading
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from tests.commands.running import unarg
from unarg_callback.class_filter import ClassFilter
from unarg_callback.commands import report_options
from unarg_callback.commands.deadline import time_out


@pytest.fixture
def layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    np.savez(tmp_path / "a.npz", W=np.array([[1.0], [-1.0], [0.5]]), b=np.zeros(3))
    (tmp_path / "names.json").write_text(json.dumps(["a" * 60 + "!", "b", "c"]))
    monkeypatch.setattr(report_options, "_MOST_FILTERING", 0.2)
    return [tmp_path / "a.npz", "--labels", tmp_path / "names.json"]


@pytest.mark.parametrize("command", ["check", "compare"])
def test_it_is_refused_before_the_check(
    layer: list[object],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the check was started")

    monkeypatch.setattr(importlib.import_module("unarg_callback.verification"), "verify", never)
    monkeypatch.setattr("unarg_callback.incremental.IncrementalVerifier.update", never)
    files = layer[:1] * (2 if command == "compare" else 1)
    assert unarg(command, *files, *layer[1:], "--keep-regex", "(a+)+$") == 2
    assert "--keep-regex '(a+)+$' took more than 0.2 seconds" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_summary_has_a_row_that_says_so(
    layer: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert unarg("summary", *layer, "--keep-regex", "(a+)+$") == 2
    assert "not checked: --keep-regex" in capsys.readouterr().out


def test_the_filter_is_asked_once(layer: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    keeps = ClassFilter.keeps

    def counted(self: ClassFilter, name: str, *, in_bytes: bool = False) -> bool:
        asked.append(name)
        return keeps(self, name, in_bytes=in_bytes)

    monkeypatch.setattr(ClassFilter, "keeps", counted)
    assert unarg("check", *layer, "--words", "--tsv", str(layer[0]) + ".tsv") == 0
    assert len(asked) == 3


def test_time_is_over_only_within() -> None:
    with pytest.raises(TimeoutError), time_out(0.01):
        threading.Event().wait(30)
    with time_out(30):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_no_limit_in_another_thread() -> None:
    done = []

    def work() -> None:
        with time_out(1e-6):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
