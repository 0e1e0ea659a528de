"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unarg_callback.files import replacing


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(b"old")

    def fail() -> None:
        with replacing(target) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "a", tmp_path / "b"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
    (tmp_path / "b").write_bytes(b"new")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_what_is_no_regular_file_is_written_directly() -> None:
    with replacing(Path(os.devnull)) as file:
        file.write(b"gone")
    assert not Path(os.devnull).is_file()
