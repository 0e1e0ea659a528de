"""Which files may be opened at all: a FIFO would wait for ever, a device never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from unarg_callback.checkpoints.tensor_file import shown
from unarg_callback.errors import CheckpointError


def require_regular_file(path: str | Path, expected: str = "a regular file") -> Path:
    """The path, if a regular file lies there, behind links or not; nothing is opened.

    Args:
        path: of what is going to be read.
        expected: what should be there, for the message.

    Raises:
        CheckpointError: nothing is there, a link leads nowhere or back to itself, or it is a
            folder, a FIFO, a socket or a device.
    """
    where = Path(path)
    try:
        mode = where.stat().st_mode
    except OSError as cause:
        raise CheckpointError(f"{_missing(where, cause)}; expected {expected}") from cause
    except ValueError as cause:  # A NUL in the name.
        raise CheckpointError(f"{ascii(str(path))} is no path; expected {expected}") from cause
    if not stat.S_ISREG(mode):
        raise CheckpointError(
            f"{where} is {_kind(mode)}, not a regular file, and is not opened; expected {expected}"
        )
    return where


def present(path: Path) -> bool:
    """Whether a file is there that can be read; False if nothing at all is.

    Raises:
        CheckpointError: something else than a regular file is there, or a link to nothing.
    """
    if not os.path.lexists(path):
        return False
    require_regular_file(path)
    return True


def _missing(where: Path, cause: OSError) -> str:
    if where.is_symlink():
        target = shown(os.readlink(where))
        if isinstance(cause, FileNotFoundError):
            return f"{where} is a link to {target}, which does not exist"
        return f"{where} is a link to {target}, which can't be followed ({cause.strerror})"
    if isinstance(cause, FileNotFoundError):
        return f"{where} does not exist"
    return f"{where} can't be read: {cause.strerror or cause}"


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
