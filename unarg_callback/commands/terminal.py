"""Print to a terminal or a pipe, whatever its encoding, and whoever has stopped reading."""

from __future__ import annotations

import os
import sys
from typing import TextIO


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


def _discard(stream: TextIO) -> None:
    """Let whatever else is written, also when Python exits, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
