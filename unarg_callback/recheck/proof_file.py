"""Read a proof file that somebody may have made to do harm: no pickle, no bomb, no surprise."""

from __future__ import annotations

import ast
import zipfile
import zlib
from collections.abc import Mapping
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.recheck.errors import RecheckError

KEYS = (
    "status",
    "witness_class",
    "witness",
    "certificate_class",
    "certificate_offsets",
    "certificate_support",
    "certificate_weight",
    "domain_low",
    "domain_high",
    "min_lead",
)
_LARGEST_HEADER = 10_000
_RATIO = 32
_UNREADABLE = (
    OSError,
    EOFError,
    LookupError,
    NotImplementedError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What zipfile, and reading a header, raise on files that are damaged or of another kind."""


def most_bytes(classes: int, dim: int, packed: int) -> int:
    """Bytes that the proofs of a layer may take, unpacked.

    Witnesses take at most the layer's size in float64. Certificates take what their rivals are,
    ids and random digits, which no packing makes much smaller.

    Args:
        classes: C.
        dim: d.
        packed: bytes of the file.
    """
    return (1 << 20) + 32 * classes * (dim + 1) + _RATIO * packed


def read_proof_file(path: str | Path, classes: int, dim: int) -> dict[str, NDArray[Any]]:
    """The arrays of a proof file, by name.

    Args:
        path: an .npz.
        classes: C of the layer.
        dim: d of the layer.

    Raises:
        RecheckError: the file can't be read, holds something else, or more than proofs of such a
            layer take.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(path, archive)
            arrays, left = {}, most_bytes(classes, dim, Path(path).stat().st_size)
            for key in KEYS:
                with archive.open(members[key]) as file:
                    arrays[key] = _array(key, file, left)
                left -= arrays[key].nbytes
            return arrays
    except RecheckError as cause:
        raise RecheckError(f"{path} can't be read as proofs: {cause}") from None
    except _UNREADABLE as cause:
        why = getattr(cause, "strerror", None) or cause or type(cause).__name__
        raise RecheckError(
            f"{path} can't be read as proofs ({why}); expected an .npz from unarg check --proofs"
        ) from cause


def _members(path: str | Path, archive: zipfile.ZipFile) -> Mapping[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        key = entry.filename.removesuffix(".npy")
        if key in members:
            raise RecheckError(f"it holds {key} twice")
        members[key] = entry
    missing = [key for key in KEYS if key not in members]
    if missing:
        raise RecheckError(
            f"it lacks {', '.join(missing)}; expected an .npz from unarg check --proofs"
        )
    return members


def _array(key: str, file: Any, most: int) -> NDArray[Any]:
    dtype, fortran, shape = _header(key, file)
    size = prod(shape) * dtype.itemsize
    if size > most:
        raise RecheckError(
            f"{key} has shape {shape}, {size:,} bytes, more than the proofs of this layer can take"
        )
    data = bytearray()
    while len(data) < size:  # In pieces: a short file must not cost what its header claims.
        piece = file.read(min(size - len(data), 1 << 20))
        if not piece:
            raise RecheckError(f"{key} ends after {len(data):,} of {size:,} bytes")
        data += piece
    if file.read(1):  # To the end, where the checksum is compared.
        raise RecheckError(f"{key} goes on after its {size:,} bytes")
    array = np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _header(key: str, file: BufferedIOBase) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    """Type, order and shape, as in the .npy format; literals only, and of bounded length."""
    start = file.read(8)
    if start[:6] != b"\x93NUMPY" or start[6:7] not in (b"\x01", b"\x02", b"\x03"):
        raise RecheckError(f"{key} is no .npy array")
    length = int.from_bytes(file.read(2 if start[6] == 1 else 4), "little")
    if length > _LARGEST_HEADER:
        raise RecheckError(f"{key} has a header of {length:,} bytes")
    header = ast.literal_eval(file.read(length).decode("latin1").strip())
    dtype, fortran, shape = np.dtype(header["descr"]), header["fortran_order"], header["shape"]
    if dtype.kind not in "iuf" or dtype.subdtype is not None:
        raise RecheckError(f"{key} has dtype {dtype}; expected numbers")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise RecheckError(f"{key} has shape {shape!r}")
    if len(shape) > 2:
        raise RecheckError(f"{key} has {len(shape)} dimensions")
    return dtype, bool(fortran), shape
