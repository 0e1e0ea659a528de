"""Functions that configuration files name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from unarg_callback.errors import UnargError
from unarg_callback.monitoring.import_path import resolved, told


@pytest.mark.parametrize("path", ["math:sqrt", "math.sqrt", "os:path.basename", "os.path:basename"])
def test_found(path: str) -> None:
    assert callable(resolved("what", path, "expected"))
    assert resolved("what", "math:sqrt", "expected") is math.sqrt


def test_a_callable_is_taken_as_it_is() -> None:
    function = {"a": 1}.get
    assert resolved("what", function, "expected") is function


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "what is blank; expected so"),
        ("sqrt", "what is 'sqrt'; expected so"),
        ("math:", "what is 'math:'"),
        ("no such:thing", "what is 'no such:thing'"),
        ("no_such_module:f", "no_such_module can't be imported .ModuleNotFoundError"),
        ("math:no_such", "math has no no_such"),
        ("math:pi", "of type float and not callable; expected so"),
        (3, "what is 3, of type int and not callable"),
        (lambda: 1, "can't be called with one argument"),
        ("builtins:isinstance", "can't be called with one argument"),
    ],
)
def test_refused(value: Any, message: str) -> None:
    with pytest.raises(UnargError, match=message):
        resolved("what", value, "expected so")


def test_a_module_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit('bye')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnargError, match="SystemExit: bye"):
        resolved("what", "module_that_exits:f", "expected")


def test_told_on_one_line() -> None:
    text = told(ValueError("a\nb" + "x" * 1000))
    assert "\n" not in text
    assert len(text) <= 200
