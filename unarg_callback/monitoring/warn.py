"""Warnings that are not worth a run."""

from __future__ import annotations

import logging
import warnings


def warn(text: str, stacklevel: int = 2) -> None:
    """Warn, or log it at level WARNING where warnings are errors.

    Args:
        text: one sentence or more.
        stacklevel: as for :func:`warnings.warn`, counted from the caller.
    """
    try:
        warnings.warn(text, stacklevel=stacklevel + 1)
    except Warning:
        logging.getLogger("unarg_callback").warning("%s", text)
