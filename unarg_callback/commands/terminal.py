"""Print to a terminal or a pipe, whatever its encoding, and whoever has stopped reading."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TextIO

_COLUMNS, _LINES = "80", "24"


def write(stream: TextIO | None, text: str) -> None:
    """Print; what the stream's encoding lacks is escaped, and a reader that left is no error.

    Args:
        stream: standard output or error; None where it was closed before the program started.
        text: without its last line feed.

    Raises:
        OSError: standard output can't be written.
    """
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
    except BrokenPipeError:
        _discard(stream)
    except OSError:
        _discard(stream)
        if stream is not sys.stderr:
            raise


def one_line(text: str) -> str:
    r"""The same without line feeds and controls.

    >>> one_line("a\n  b")
    'a b'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shows_progress(options: argparse.Namespace) -> bool:
    """Whether there is somebody to show a progress bar to.

    Args:
        options: with ``quiet``.
    """
    return not options.quiet and sys.stderr is not None and sys.stderr.isatty()


def give_bars_a_size() -> None:
    """Let progress bars have 80 columns on a terminal that says it has none, as in many a CI.

    Bars of tqdm would be empty there, or not be drawn. No effect once tqdm has been imported, nor
    where its size has been set.
    """
    try:
        size = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # It is no terminal, or closed.
        return
    if not size.columns:
        os.environ.setdefault("TQDM_NCOLS", _COLUMNS)
    if not size.lines:
        os.environ.setdefault("TQDM_NROWS", _LINES)


def _discard(stream: TextIO) -> None:
    """Let whatever else is written, also when Python exits, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
