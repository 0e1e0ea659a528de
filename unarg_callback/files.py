"""Writing files so that a failure leaves what was there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file whose content takes the place of ``path`` once all of it is written.

    Until then, and if anything goes wrong, ``path`` is as it was. A link is followed, and the
    permissions of a file that was there are kept.

    Raises:
        OSError: the file can't be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:  # A pipe or a terminal: there is nothing to keep.
            yield file
        return
    draft = target.with_name(f".{target.name[:100]}.{uuid4().hex}")
    try:
        with draft.open("xb") as file:
            yield file
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o777)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
