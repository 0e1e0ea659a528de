"""Open a file by what it holds, and find its output layer."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from unarg_callback.checkpoints.hugging_face import (
    CONFIG,
    is_weights_of_model,
    open_hugging_face,
)
from unarg_callback.checkpoints.marian import is_marian, marian_layer
from unarg_callback.checkpoints.nematus import is_nematus, nematus_layer
from unarg_callback.checkpoints.npz import open_npz
from unarg_callback.checkpoints.onnx_file import open_onnx
from unarg_callback.checkpoints.regular_files import present, require_regular_file
from unarg_callback.checkpoints.safetensors_file import open_safetensors
from unarg_callback.checkpoints.select import LocatedLayer, select_layer
from unarg_callback.checkpoints.sharded import open_sharded
from unarg_callback.checkpoints.tensor_file import BROKEN_ZIP, Orientation, TensorFile
from unarg_callback.checkpoints.torch_file import open_torch
from unarg_callback.errors import CheckpointError
from unarg_callback.geometry.layer import OutputLayer

Reader = Callable[[Path], TensorFile]

_TORCH_SUFFIXES = {".pt", ".pth", ".ckpt", ".bin"}
_FORMATS = (
    ".npz, .pt, .pth, .bin, .ckpt, .safetensors, .onnx, the .index.json of shards, or the folder "
    "of a transformers model"
)


def read_layer(
    path: str | Path,
    weight: str | None = None,
    bias: str | None = None,
    names: Sequence[str] | None = None,
    excluded: Iterable[int] | None = None,
    orientation: Orientation | None = None,
) -> OutputLayer:
    """Read the output layer of a checkpoint; no pickle is ever executed.

    In ``.pt`` and ``.safetensors`` files a weight called ``X.weight`` is (classes, features), as
    torch documents it for ``nn.Linear`` and ``nn.Embedding``, unless its bias says otherwise. In an
    ``.npz`` the bias's length tells, or ``orientation`` must.

    Args:
        path: an .npz, .pt, .pth, .bin, .ckpt, .safetensors or .onnx file, the .index.json of a
            model in shards, or the folder of a transformers model.
        weight: name of the weight; needed if more than one could be meant.
        bias: name of the bias, or "none". Default: the one that goes with the weight's name.
        names: C class names, or None for those that the file brings along, if any.
        excluded: ids of classes that take no part, or None for those that the format's own rules
            exclude (such as padding rows); ``()`` for none.
        orientation: "classes-first" or "features-first", where nothing else tells.

    Raises:
        CheckpointError: the file can't be read, or it isn't clear which layer is meant.
        LayerError: the layer's values, names or excluded ids don't fit.
    """
    return locate_layer(path, weight, bias, orientation).load(names, excluded)


def locate_layer(
    path: str | Path,
    weight: str | None = None,
    bias: str | None = None,
    orientation: Orientation | None = None,
) -> LocatedLayer:
    """Find the output layer of a checkpoint without loading it; see :func:`read_layer`.

    Raises:
        CheckpointError: the file can't be read, or it isn't clear which layer is meant.
    """
    return select_layer(open_file(path), weight, bias, orientation)


def open_file(path: str | Path) -> TensorFile:
    """List the tensors of a file in any format that is known here.

    Raises:
        CheckpointError: there is no such file, or it can't be read.
    """
    where = Path(path)
    try:
        if where.is_dir():
            if present(where / CONFIG):
                return open_hugging_face(where)
            raise CheckpointError(
                f"{where} is a folder without a {CONFIG}; expected one file in it: {_FORMATS}"
            )
        require_regular_file(where, _FORMATS)
        with where.open("rb") as file:
            start = file.read(10)
        if not start:
            raise CheckpointError(f"{where} is empty; expected {_FORMATS}")
        return _reader(where, start)(where)
    except OSError as cause:
        raise CheckpointError(f"{where} can't be read: {cause.strerror or cause}") from cause


def _reader(path: Path, start: bytes) -> Reader:
    """The reader for what the first bytes say; the suffix decides only where they don't."""
    suffix = path.suffix.lower()
    if is_weights_of_model(path):
        return open_hugging_face
    if path.name.endswith(".index.json"):
        return open_sharded
    if start.startswith(b"\x93NUMPY"):
        raise CheckpointError(
            f"{path} is a single .npy array, without names, and is not loaded; expected an .npz: "
            "save weight and bias with numpy.savez(path, W=W, b=b)"
        )
    if start.startswith(b"PK\x03\x04"):
        return _zip_reader(path, suffix)
    if suffix == ".onnx":  # A protobuf has no mark of its own.
        return open_onnx
    if suffix == ".safetensors" or start[8:9] == b"{":
        return open_safetensors
    if start[:1] == b"\x80":  # How a pickle starts, whatever its suffix says.
        return open_torch
    if suffix == ".npz":
        return _open_npz
    if suffix in _TORCH_SUFFIXES:
        return open_torch
    raise CheckpointError(f"{path} has a format not known here; expected {_FORMATS}")


def _zip_reader(path: Path, suffix: str) -> Reader:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except BROKEN_ZIP:
        members = []
    if any(name.endswith(".npy") for name in members):
        return _open_npz
    if any(name.endswith("data.pkl") for name in members):
        return open_torch
    return _open_npz if suffix == ".npz" else open_torch


def _open_npz(path: Path) -> TensorFile:
    file = open_npz(path)
    if is_marian(file):
        return marian_layer(file)
    return nematus_layer(file) if is_nematus(file) else file
