"""``.safetensors`` files: names and shapes from the header, and only the chosen tensors loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from unarg_callback.checkpoints.tensor_file import Entry, TensorFile, raw_bytes, reason
from unarg_callback.errors import CheckpointError


def open_safetensors(path: Path) -> TensorFile:
    """List the tensors of a safetensors file.

    Tied tensors that ``safetensors.torch.save_model`` left out are listed again under the names
    that it noted in the header.

    Args:
        path: the file.

    Raises:
        CheckpointError: it is damaged or another format.
    """
    with _opened(path) as file:
        kept = {name: _entry(name, file.get_slice(name)) for name in file.keys()}  # noqa: SIM118
        aliases = {
            alias: name
            for alias, name in (file.metadata() or {}).items()
            if name in kept and alias not in kept
        }
    tied = tuple(
        Entry(alias, kept[name].shape, kept[name].dtype, kept[name].numeric)
        for alias, name in aliases.items()
    )

    def load(name: str) -> Tensor:
        with _opened(path) as file:
            tensor: Tensor = file.get_tensor(aliases.get(name, name))
            return tensor

    def head(name: str) -> bytes:
        with _opened(path) as file:
            rows: Tensor = file.get_slice(aliases.get(name, name))[:1]
            return raw_bytes(rows).numpy().tobytes()

    return TensorFile(path, (*kept.values(), *tied), load, head, torch_names=True)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The open file; whatever goes wrong inside is told in one line."""
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            yield file
    except (SafetensorError, OSError, MemoryError, RuntimeError) as cause:
        if isinstance(cause, MemoryError) or "allocate memory" in str(cause):
            raise CheckpointError(
                f"{path}: too little memory to map it ({reason(cause)}); read it on a larger "
                "machine, or save it in shards"
            ) from cause
        raise CheckpointError(
            f"{path} can't be read as .safetensors ({reason(cause)}); it is truncated, damaged or "
            "another format: expected what safetensors.torch.save_file writes"
        ) from cause


def _entry(name: str, view: Any) -> Entry:
    dtype = str(view.get_dtype())
    return Entry(name, tuple(view.get_shape()), dtype, numeric=_is_numeric(dtype))


def _is_numeric(dtype: str) -> bool:
    """F64 to F8_E4M3, BF16, I8 to U64; not BOOL, complex C64, nor packed F4 and F6."""
    return dtype.startswith(("F64", "F32", "F16", "BF16", "F8_E", "I", "U"))
