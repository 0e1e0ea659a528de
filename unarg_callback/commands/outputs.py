"""Files that a command will write: refused before any work is done, if they can't be."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path

from unarg_callback.errors import UnargError


class UsageError(UnargError):
    """Bad input that only the command line has."""


def require_outputs(targets: Mapping[str, Path], inputs: Iterable[str | None]) -> None:
    """Raise unless all files can be written, each once and none of them an input.

    Args:
        targets: by option.
        inputs: files that are read, or None.

    Raises:
        UsageError: one can't.
    """
    sources = [Path(source) for source in inputs if source is not None]
    for option, target in targets.items():
        _require_writable(option, target)
        if any(_same_file(target, source) for source in sources):
            raise UsageError(f"{option} {target} would overwrite the input; choose another name")
    for (one, first), (other, second) in combinations(targets.items(), 2):
        if _same_file(first, second):
            raise UsageError(f"{one} and {other} name the same file; choose two names")


def _require_writable(option: str, target: Path) -> None:
    try:
        if target.is_dir() or not target.name:
            raise UsageError(f"{option} {target} is a folder; expected the name of a file")
        if target.exists() and not target.is_file():
            other = ", or --json - for standard output" if option == "--json" else ""
            raise UsageError(f"{option} {target} is not a regular file; expected one{other}")
        if target.exists():
            with target.open("ab"):
                pass
        else:
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except OSError as cause:
        raise UsageError(
            f"{option} {target} can't be written ({cause.strerror or cause}); expected a file in "
            "a folder that exists and is writable"
        ) from cause


def _same_file(one: Path, other: Path) -> bool:
    """Whether two names lead to one file, by links of either kind too."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # One of them does not exist yet.
        return os.path.realpath(one) == os.path.realpath(other)
