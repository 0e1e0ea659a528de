"""Tables for loggers: as text, as a table, or as a file, locally and elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unarg_callback.dashboards.storage import file_name
from unarg_callback.dashboards.tables import Table
from unarg_callback.dashboards.text import TableMemory, write_file, write_table

TAG = "unarg/decoder/generator/unargmaxable"
WHO = Table(("One class.",), ("class", "token"), (("3", "a|b"),))


class Recorder:
    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def log_text(self, **what: Any) -> None:
        self.calls.append(what)

    def add_text(self, tag: str, text: str, global_step: int) -> None:
        self.calls.append({"tag": tag, "text": text, "step": global_step})


class TestLoggers:
    def test_add_text(self) -> None:
        writer = Recorder()
        write_table(SimpleNamespace(experiment=writer), TAG, WHO, 5)
        assert writer.calls == [{"tag": TAG, "text": WHO.markdown(), "step": 5}]

    def test_log_text(self) -> None:
        logger = Recorder()
        write_table(SimpleNamespace(log_text=logger.log_text), TAG, WHO, 5)
        expected = {"key": TAG, "columns": ["class", "token"], "data": [["3", "a|b"]], "step": 5}
        assert logger.calls == [expected]

    def test_what_has_not_changed_is_not_logged_again(self) -> None:
        logger = Recorder()
        write_table(SimpleNamespace(log_text=logger.log_text), TAG, WHO, 5, changed=False)
        write_table(SimpleNamespace(experiment=logger), TAG, WHO, 5, changed=False)
        assert not logger.calls

    @pytest.mark.parametrize("attribute", ["log_dir", "save_dir"])
    def test_a_file(self, tmp_path: Path, attribute: str) -> None:
        logger = SimpleNamespace(**{attribute: str(tmp_path / "new")})
        write_table(logger, TAG, WHO, 5, changed=False)
        path = tmp_path / "new" / "unargmaxable-decoder_generator.md"
        assert path.read_text(encoding="utf-8") == WHO.markdown()

    def test_nowhere(self) -> None:
        write_table(SimpleNamespace(), TAG, WHO, 5)
        write_table(SimpleNamespace(save_dir=None), TAG, WHO, 5)


class TestFile:
    def test_the_latest(self, tmp_path: Path) -> None:
        write_file(tmp_path, TAG, Table(("Long ago." * 100,), ()))
        write_file(tmp_path, TAG, WHO)
        (path,) = tmp_path.iterdir()
        assert path.read_text(encoding="utf-8") == WHO.markdown()

    def test_remote(self) -> None:
        write_file("memory://runs/text", TAG, WHO)
        fsspec = pytest.importorskip("fsspec")
        files = fsspec.filesystem("memory")
        content = files.cat_file("/runs/text/unargmaxable-decoder_generator.md")
        assert content.decode() == WHO.markdown()

    @pytest.mark.parametrize("head", ["ы" * 100, "x" * 100, "𝒳" * 100])
    def test_long_heads(self, tmp_path: Path, head: str) -> None:
        write_file(tmp_path, f"unarg/{head}/at_risk", WHO)
        (path,) = tmp_path.iterdir()
        assert path.name.startswith(f"at_risk-{head[0]}")

    def test_an_unknown_kind_of_url(self) -> None:
        with pytest.raises(ValueError, match="nowhere"):
            write_file("nowhere://x", TAG, WHO)

    def test_a_file_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("")
        with pytest.raises(OSError, match="x"):
            write_file(tmp_path / "x", TAG, WHO)


@pytest.mark.parametrize("text", ["", "a/b", "ы" * 1000, "\ud800", "𝒳" * 99])
def test_file_names_are_short_and_flat(text: str) -> None:
    name = file_name(text)
    assert len(name.encode()) <= 200
    assert "/" not in name


def test_memory() -> None:
    memory = TableMemory()
    other = Table(("One class.",), ("class", "token"), (("4", "a|b"),))
    assert memory.changed({"a": WHO, "b": WHO}) == {"a", "b"}
    assert memory.changed({"a": WHO, "b": other}) == {"b"}
    assert memory.changed({"a": WHO, "b": other}) == set()
