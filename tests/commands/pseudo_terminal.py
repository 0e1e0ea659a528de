"""Run the command as somebody at a terminal of a given size sees it."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

fcntl = pytest.importorskip("fcntl", reason="no pseudo terminals here")
pty = pytest.importorskip("pty", reason="no pseudo terminals here")
termios = pytest.importorskip("termios", reason="no pseudo terminals here")


def on_a_terminal(columns: int, lines: int, *arguments: object, **environment: str) -> str:
    """What it writes to standard output and error, both a terminal; it must end with status 0.

    Carriage returns, by which a bar is drawn over itself, are kept as line feeds.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TQDM_")}
    with subprocess.Popen(
        [sys.executable, "-m", "unarg_callback", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=Path(__file__).resolve().parents[2],
        env={**kept, **environment},
    ) as process:
        os.close(theirs)
        told = b""
        with contextlib.suppress(OSError):  # How a terminal says that nobody writes any more.
            while some := os.read(ours, 65536):
                told += some
    os.close(ours)
    text = told.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    assert process.returncode == 0, text
    return text
