"""Files that another file refers to: only ever in its own folder."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from unarg_callback.checkpoints.regular_files import require_regular_file
from unarg_callback.checkpoints.tensor_file import reason, shown
from unarg_callback.errors import CheckpointError

_LARGEST_JSON = 256 * 2**20


def inside(owner: Path, name: str) -> Path:
    """The file that ``owner`` calls ``name``, in the owner's folder or below it.

    Only the name is judged. Links that lie in the folder are followed: the cache of Hugging Face is
    made of them, and a name in a file can't put one there.

    Args:
        owner: the file that refers to the other.
        name: a relative path.

    Raises:
        CheckpointError: the name leaves the folder, or no regular file is there.
    """
    parts = PurePosixPath(name).parts
    leaves = (
        not parts
        or "\0" in name
        or "\\" in name
        or ".." in parts
        or PurePosixPath(name).is_absolute()
        or bool(PureWindowsPath(name).drive)
    )
    if leaves:
        raise CheckpointError(
            f"{owner} refers to {shown(name)}, which is no plain path inside its folder, and is "
            "not followed; expected files beside it"
        )
    path = owner.parent / name
    if not os.path.lexists(path):
        raise CheckpointError(
            f"{owner} refers to {shown(name)}, which is not there; expected all parts of the model "
            "in one folder"
        )
    return require_regular_file(path, f"the part of {owner.name} that it is")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        CheckpointError: it can't be read, or holds something else.
    """
    try:
        if require_regular_file(path, "a JSON object").stat().st_size > _LARGEST_JSON:
            raise CheckpointError(f"{path} is larger than 256 MiB; expected a JSON object")
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as cause:
        raise CheckpointError(f"{path} can't be read: {cause.strerror or cause}") from cause
    except (ValueError, RecursionError) as cause:
        raise CheckpointError(
            f"{path} is not JSON ({reason(cause)}); expected an object"
        ) from cause
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a {type(content).__name__}; expected a JSON object")
    return content
