"""Files that a command will write: refused before any work is done, if they can't be."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path

from unarg_callback.errors import UnargError

_REPORTS = (
    rb'\{\s*"classes": \d+,\s*"dim": \d+,\s*"domain": "',
    rb"# Unargmaxable classes of ",
    rb"class\tname\tstatus\tlead\t",
    rb'(?s)<!DOCTYPE html>\n<html lang="en">.*Content-Security-Policy',
)
"""How the reports of a check start: JSON, Markdown, tabs and HTML."""


class UsageError(UnargError):
    """Bad input that only the command line has."""


def require_apart(
    targets: Mapping[str, Path], read: Iterable[Path], file: str | Path | None = None
) -> None:
    """Raise if an output would take the place of a part of the model.

    That is any file that is read. With ``file`` it is also any other in the folder that the model
    is kept in, but for reports of earlier checks.

    Args:
        targets: by option.
        read: files that are read for the layer.
        file: the model as given, or None.

    Raises:
        UsageError: one would.
    """
    sources, home = tuple(read), None if file is None else _home(Path(file))
    for option, target in targets.items():
        if any(_same_file(target, source) for source in sources):
            raise UsageError(
                f"{option} {target} would overwrite a file of the model, which is read for the "
                "layer; choose another name"
            )
        inside = home is not None and os.path.exists(target) and _is_within(target, home)
        if inside and not _is_report(target):
            raise UsageError(
                f"{option} {target} would overwrite a file in the model's folder that is no "
                "report of an earlier check; choose another name"
            )


def _home(file: Path) -> Path | None:
    """The folder of a model in several files; None for one that is a single file."""
    if file.is_dir():
        return file
    several = file.name.endswith(".index.json") or (file.parent / "config.json").is_file()
    return file.parent if several else None


def _is_within(target: Path, folder: Path) -> bool:
    return Path(os.path.realpath(folder)) in Path(os.path.realpath(target)).parents


def _is_report(path: Path) -> bool:
    """Whether a file is what a check wrote there before, or empty."""
    try:
        with path.open("rb") as file:
            start = file.read(400)
    except OSError:
        return False
    if start.startswith(b"PK"):
        return _holds_proofs(path)
    return not start or any(re.match(form, start) is not None for form in _REPORTS)


def _holds_proofs(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return {"status.npy", "witness.npy", "certificate_class.npy"} <= {*archive.namelist()}
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


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
    if str(target) == "-":
        raise UsageError(
            f"{option} - would be standard output, which only --json can have; expected the name "
            "of a file"
        )
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
