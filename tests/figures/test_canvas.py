"""Figures become files of the kind that their name says, and nothing else changes."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

matplotlib = pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")

from unarg_callback.figures.canvas import FigureError, canvas, names_of, save, styled


def a_figure() -> Any:
    with styled():
        figure = canvas(2, 1)
        figure.subplots().plot([1, 2])
        return figure


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")]
)
def test_kinds_of_files(name: str, start: bytes, tmp_path: Path) -> None:
    path = save(a_figure(), tmp_path / name)
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a", "a.jpeg", "a.png.txt"])
def test_other_kinds_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(FigureError, match=r"expected it to end in \.png"):
        save(a_figure(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_style_and_the_screen_are_left_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    loaded = "matplotlib.pyplot" in sys.modules
    save(a_figure(), tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FigureError, match=r"pip install 'unarg_callback\[plots\]'"):
        canvas(1, 1)


def test_names() -> None:
    assert names_of(2, None) == ["c1", "c2"]
    assert names_of(2, ("a", "b")) == ["a", "b"]
