"""NumPy ``.npz`` archives. Arrays of objects, which would need unpickling, are never read."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.checkpoints.tensor_file import BROKEN_ZIP, Entry, TensorFile, reason, shown
from unarg_callback.errors import CheckpointError

_HEAD_BYTES = 256
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_MOST_DEFLATE_CAN_SHRINK = 1032

Header = tuple[tuple[int, ...], bool, np.dtype]


def open_npz(path: Path) -> TensorFile:
    """List the arrays of an npz file by their headers; data is read only by ``load``.

    Args:
        path: the file.

    Raises:
        CheckpointError: it isn't an npz file, is damaged, or holds only pickled objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            headers = {
                info.filename.removesuffix(".npy"): _checked_header(archive, info)
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
    except (*BROKEN_ZIP, SyntaxError) as cause:
        raise _damaged(path, cause) from cause
    pickled = [name for name, (_, _, dtype) in headers.items() if dtype.hasobject]
    entries = tuple(
        Entry(name, shape, str(dtype), numeric=_is_numeric(dtype))
        for name, (shape, _, dtype) in headers.items()
        if not dtype.hasobject
    )
    if pickled and not any(entry.numeric and len(entry.shape) == 2 for entry in entries):
        raise CheckpointError(
            f"{path} holds pickled objects ({shown(pickled[0])}), which could run code and are "
            "never loaded; expected arrays of numbers: save them with numpy.savez(path, W=W, b=b)"
        )
    return TensorFile(
        path,
        entries,
        load=lambda name: _load(path, name),
        head=lambda name: _head(path, name),
        torch_names=False,
    )


def _load(path: Path, name: str) -> Tensor:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (*BROKEN_ZIP, KeyError, SyntaxError, MemoryError) as cause:
        raise _damaged(path, cause) from cause
    return _tensor(path, name, array)


def _tensor(path: Path, name: str, array: NDArray[np.generic]) -> Tensor:
    if array.dtype.kind == "u":
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise CheckpointError(
                f"{path}: {shown(name)} has integers beyond 2**63; expected exact float64 values"
            )
        array = array.astype(np.int64)
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    return torch.from_numpy(native)


def _head(path: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            _, fortran, _ = _header(file)
            return bytes([fortran]) + file.read(_HEAD_BYTES)
    except (*BROKEN_ZIP, KeyError) as cause:
        raise _damaged(path, cause) from cause


def _checked_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
    """Header of one array; what it promises must fit the bytes that are there."""
    if info.compress_type not in _METHODS:
        raise ValueError(f"{info.filename} is compressed in a way that numpy never writes")
    if info.file_size > _MOST_DEFLATE_CAN_SHRINK * max(info.compress_size, 1):
        raise ValueError(f"{info.filename} claims more data than its compressed size can hold")
    with archive.open(info) as file:
        shape, fortran, dtype = _header(file)
        promised = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and file.tell() + promised != info.file_size:
            raise ValueError(
                f"{info.filename} has shape {shape}, {promised} bytes, but "
                f"{info.file_size - file.tell()} are stored"
            )
    return shape, fortran, dtype


def _header(file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"an array has format version {version}; expected (1, 0) or (2, 0)")


def _is_numeric(dtype: np.dtype) -> bool:
    return dtype.kind in "iuf" and dtype.itemsize <= 8


def _damaged(path: Path, cause: BaseException) -> CheckpointError:
    if isinstance(cause, MemoryError):
        return CheckpointError(f"{path}: too little memory to load it ({reason(cause)})")
    return CheckpointError(
        f"{path} can't be read as .npz ({reason(cause)}); it is truncated, damaged or another "
        "format: expected what numpy.savez writes"
    )
