"""Text files where a run keeps its own: in a local folder, or wherever fsspec reaches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_MOST_BYTES_OF_A_NAME = 200


def write_text(folder: str | Path, name: str, text: str) -> None:
    """Write a small file, in UTF-8, in place of what was there; folders are made.

    Args:
        folder: a path, or a URL such as "s3://bucket/run".
        name: of the file.
        text: what it shall hold.

    Raises:
        OSError: it can't be written.
        ImportError: the package for this kind of URL is missing.
        ValueError: there is no such kind of URL.
    """
    files, root = _opened(folder)
    files.makedirs(root, exist_ok=True)
    with files.open(f"{root}/{name}", "w", encoding="utf-8") as file:
        file.write(text)


def append_line(path: str | Path, line: bytes) -> None:
    """Append one line in one write, so that what is killed meanwhile leaves one torn line at most.

    A torn line that is there is ended first. Where a store can't append, the file is written anew.

    Args:
        path: of the file, or its URL; it and its folder are made if absent.
        line: without its line feed.

    Raises:
        OSError: it can't be written.
        ImportError: the package for this kind of URL is missing.
        ValueError: there is no such kind of URL.
    """
    if not is_remote(path):
        _append_locally(Path(path), line)
        return
    files, target = _opened(path)
    files.makedirs(target.rpartition("/")[0], exist_ok=True)
    there = files.exists(target) and files.size(target) > 0
    if there and files.cat_file(target, start=-1) != b"\n":
        line = b"\n" + line
    try:
        with files.open(target, "ab") as file:
            file.write(line + b"\n")
    except (NotImplementedError, ValueError):
        before = files.cat_file(target) if there else b""
        files.pipe_file(target, before + line + b"\n")


def read_bytes(path: str | Path) -> bytes:
    """All of a file.

    Args:
        path: of the file, or its URL.

    Raises:
        OSError: it can't be read.
        ImportError: the package for this kind of URL is missing.
        ValueError: there is no such kind of URL.
    """
    if not is_remote(path):
        return Path(path).read_bytes()
    files, target = _opened(path)
    content: bytes = files.cat_file(target)
    return content


def is_remote(path: str | Path) -> bool:
    """Whether a path is a URL, for fsspec to open."""
    return "://" in str(path)


def file_name(text: str) -> str:
    """Text as a part of a file name: without slashes, and no longer than file systems allow.

    >>> file_name("decoder/generator")
    'decoder_generator'
    """
    cut = text.replace("/", "_").encode("utf-8", "replace")[:_MOST_BYTES_OF_A_NAME]
    return cut.decode("utf-8", "ignore")


def _append_locally(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Unbuffered: the bytes go to the system in one call.
    with path.open("a+b", buffering=0) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        left = memoryview(line + b"\n")
        while left:
            left = left[file.write(left) :]


def _opened(path: str | Path) -> tuple[Any, str]:
    """The file system of a path, and the path there."""
    # It takes a while to import, and hardly anybody needs it.
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    files, target = url_to_fs(str(path))
    return files, str(target)
