"""The examples in docs/ run, and print what the documents say they do."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """(where, code, expected output or "") of every example."""
    return [
        (f"{path.name}-{at}", *found)
        for path in sorted(DOCS.glob("*.md"))
        for at, found in enumerate(_BLOCK.findall(path.read_text(encoding="utf-8")))
    ]


def test_there_are_examples() -> None:
    assert len(blocks()) >= 4


@pytest.mark.usefixtures("time_enough")
@pytest.mark.parametrize(("where", "code", "expected"), blocks(), ids=[b[0] for b in blocks()])
def test_an_example(
    where: str, code: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), {})
    if expected:
        assert printed.getvalue() == expected
