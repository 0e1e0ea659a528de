"""Real layers and training snapshots, kept outside the repository, and a mark to skip without."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def _find() -> Path | None:
    named = os.environ.get("UNARG_SHARED")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    return folder if (folder / "data").is_dir() else None


SHARED: Path | None = _find()
"""Folder with ``data/``: ``$UNARG_SHARED``, or ``shared`` beside the repository; None if absent."""

needs_shared = pytest.mark.skipif(
    SHARED is None, reason="no ../shared/data beside the repository and UNARG_SHARED names none"
)


def load_layer(name: str) -> tuple[Floats, Floats, list[str]]:
    """(C, d) weight, (C,) bias and the C class names of a trained layer."""
    folder = _data() / "layers"
    labels = json.loads((folder / f"{name}.labels.json").read_text(encoding="utf-8"))
    weight, bias = _arrays(folder / f"{name}.npz")
    return weight, bias, [str(label) for label in labels]


def load_snapshot(name: str) -> tuple[Floats, Floats]:
    """(C, d) weight and (C,) bias of a layer at one step of its training."""
    return _arrays(_data() / "snapshots" / f"{name}.npz")


def _data() -> Path:
    if SHARED is None:
        raise FileNotFoundError("the shared data is absent; mark the test with needs_shared")
    return SHARED / "data"


def _arrays(path: Path) -> tuple[Floats, Floats]:
    with np.load(path, allow_pickle=False) as archive:
        return archive["W"], archive["b"]
