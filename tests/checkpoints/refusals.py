"""The message with which a file is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unarg_callback import CheckpointError
from unarg_callback.checkpoints import locate_layer


def refusal(path: Path, **options: Any) -> str:
    """The message, one line long."""
    with pytest.raises(CheckpointError) as caught:
        locate_layer(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message
