"""The example in the documentation prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path


def test_the_example_prints_what_it_says() -> None:
    text = (Path(__file__).parents[2] / "docs" / "label_sets.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    expected = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert code is not None
    assert expected is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code[1], "docs/label_sets.md", "exec"), {})
    assert printed.getvalue() == expected[1]
