"""PyTorch checkpoints: ``.pt``, ``.pth``, ``.bin``, and Lightning's ``.ckpt``.

They are pickles, and only ever read with ``weights_only=True``: tensors and plain containers come
back, anything else is refused and never executed.
"""

from __future__ import annotations

import argparse
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import safe_globals

from unarg_callback.checkpoints.fairseq import fairseq_layer, is_fairseq
from unarg_callback.checkpoints.opennmt import is_opennmt, opennmt_layer
from unarg_callback.checkpoints.tensor_file import (
    BROKEN_ZIP,
    Entry,
    TensorFile,
    raw_bytes,
    reason,
    shown,
)
from unarg_callback.errors import CheckpointError

_CONTAINERS = ("state_dict", "model_state_dict", "model")
_NOT_THE_MODEL = re.compile(r"optim|sched|callbacks|loops|hyper_parameters|scaler|rng")
_AVERAGED = "average_model_state"
"""Where Lightning's StochasticWeightAveraging keeps the weights, inside of its own state."""

_ADVICE = (
    "expected tensors in (nested) dicts: load it, if you trust it, with the program that wrote it, "
    "and save them with torch.save(model.state_dict(), path), or as .safetensors"
)


def open_torch(path: Path) -> TensorFile:
    """List the tensors of a checkpoint.

    Nested dicts are walked and their keys joined by dots. The name of the dict that holds the
    model (``state_dict``, ``model_state_dict``, ``model``) is left out where no two names then
    collide, so a Lightning checkpoint's layers have the names they have in the module. Where there
    is a ``state_dict``, tensors beside it can be named but aren't offered; a note says where
    another copy of the weights, raw or averaged, lies.

    Args:
        path: the file.

    Raises:
        CheckpointError: it is damaged, another format, or would have to be unpickled.
    """
    content = _load(path)
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds one {type(content).__name__}; {_ADVICE}")
    tensors = _walk(content)
    whole = "state_dict" if isinstance(content.get("state_dict"), Mapping) else None
    short = _short_names(list(tensors))
    named = {short[keys]: tensor for keys, tensor in tensors.items()}
    entries = tuple(
        Entry(
            short[keys],
            tuple(tensor.shape),
            _dtype(tensor),
            numeric=_is_numeric(tensor),
            offered=whole is None or keys[0] == whole,
        )
        for keys, tensor in tensors.items()
    )

    def load(name: str) -> Tensor:
        tensor = named[name]
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise CheckpointError(
                f"{path}: {shown(name)} has shape {tuple(tensor.shape)} but only "
                f"{tensor.untyped_storage().nbytes()} bytes of data; {_ADVICE}"
            )
        return tensor

    file = TensorFile(
        path,
        entries,
        load,
        head=lambda name: raw_bytes(load(name)[:1]).numpy().tobytes(),
        torch_names=True,
        notes=_notes(content, tensors),
    )
    if is_opennmt(content):
        return opennmt_layer(file, content)
    return fairseq_layer(file, content) if is_fairseq(content) else file


def _notes(
    content: Mapping[Any, Any],
    tensors: Mapping[tuple[str, ...], Tensor],
) -> tuple[str, ...]:
    """Where else than in the ``state_dict`` the same weights lie, and what they are."""
    shapes = {keys[1:]: t.shape for keys, t in tensors.items() if keys[0] == "state_dict"}
    copies: dict[tuple[str, ...], None] = {}
    for keys, tensor in tensors.items():
        for cut in range(1, len(keys) if keys[0] != "state_dict" else 0):
            if tensor.ndim == 2 and shapes.get(keys[cut:]) == tensor.shape:
                copies[keys[:cut]] = None
    return tuple(
        f"another copy of the weights{_kind(content, outer)}: "
        f"--weight {shown('.'.join(outer))}.NAME"
        for outer in copies
    )


def _kind(content: Mapping[Any, Any], outer: tuple[str, ...]) -> str:
    if outer == ("current_model_state",) and "averaging_state" in content:
        return " (the raw ones; those in use are Lightning's averages)"
    return " (averages)" if outer[-1] == _AVERAGED else ""


def _load(path: Path) -> Any:
    is_zip = _is_sound_zip(path)
    with path.open("rb") as file:
        start = file.read(64).lstrip()
    if start[:1] in {b"{", b"[", b"<"}:  # No pickle starts so, of whatever protocol.
        raise CheckpointError(
            f"{path} is text, such as JSON or a web page, and no PyTorch checkpoint; {_ADVICE}"
        )
    if start.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{path} is a pointer of Git LFS; get the file itself: git lfs pull")
    try:
        # Options of a program are kept in one; to make it runs nothing.
        with warnings.catch_warnings(), safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    # The bytes are untrusted and torch documents no list of what a damaged file may raise.
    except Exception as cause:
        raise CheckpointError(f"{path} {_told(cause)}; {_ADVICE}") from cause


def _is_sound_zip(path: Path) -> bool:
    """Whether the file is a zip archive as torch writes it: complete, and nothing compressed."""
    with path.open("rb") as file:
        starts_as_zip = file.read(4) == b"PK\x03\x04"
    if not starts_as_zip:
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except BROKEN_ZIP as cause:
        raise CheckpointError(
            f"{path} can't be read as a PyTorch checkpoint ({reason(cause)}); it is truncated or "
            f"damaged; {_ADVICE}"
        ) from cause
    if any("/code/" in info.filename for info in infos):
        raise CheckpointError(
            f"{path} is a TorchScript archive, which holds code and is never loaded; {_ADVICE}"
        )
    squeezed = [i.filename for i in infos if i.compress_type != zipfile.ZIP_STORED]
    if squeezed:
        raise CheckpointError(
            f"{path} holds {shown(squeezed[0])} compressed, which torch.save never does; {_ADVICE}"
        )
    return True


def _told(cause: Exception) -> str:
    """What stood in the way, in a few words."""
    text = str(cause)
    refused = re.search(r"GLOBAL (\S+)|Trying to load unsupported (?:class|GLOBAL) (\S+)", text)
    if refused:
        what = shown(next(group for group in refused.groups() if group))
        return f"holds a pickled object ({what}), which could run code and is never loaded"
    if isinstance(cause, pickle.UnpicklingError):
        return "is a pickle with more in it than tensors, which could run code and is never loaded"
    return f"can't be read as a PyTorch checkpoint ({reason(cause)})"


def _walk(content: Mapping[Any, Any]) -> dict[tuple[str, ...], Tensor]:
    """All tensors by their keys, each dict walked once: it may hold itself."""
    tensors: dict[tuple[str, ...], Tensor] = {}
    pending: list[tuple[tuple[str, ...], Mapping[Any, Any]]] = [((), content)]
    met = {id(content)}
    while pending:
        keys, node = pending.pop(0)
        for key, value in node.items():
            inner = (*keys, str(key))
            if type(value) in (Tensor, torch.nn.Parameter):
                if inner[0] != "callbacks" or _AVERAGED in keys:
                    tensors[inner] = value.detach()
            elif not isinstance(value, Mapping) or id(value) in met:
                continue
            elif _may_be_weights(inner):
                met.add(id(value))
                pending.append((inner, value))
    return tensors


def _may_be_weights(keys: tuple[str, ...]) -> bool:
    if keys[0] == "callbacks":
        return len(keys) < 3 or keys[2] == _AVERAGED
    return not _NOT_THE_MODEL.search(keys[0].lower())


def _short_names(all_keys: list[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Dotted names, without the outer container's name where they stay distinct."""
    full = {keys: ".".join(keys) for keys in all_keys}
    for container in _CONTAINERS:
        short = {
            keys: ".".join(keys[1:]) if keys[0] == container and len(keys) > 1 else full[keys]
            for keys in all_keys
        }
        if short != full and len(set(short.values())) == len(short):
            return short
    return full


def _dtype(tensor: Tensor) -> str:
    """Type of the values, and what else keeps them from being read as they are."""
    layout = "" if tensor.layout == torch.strided else f", {tensor.layout}"
    device = "" if tensor.device.type == "cpu" else f" on the device {tensor.device.type}"
    return f"{tensor.dtype}{layout}{device}".replace("torch.", "")


def _is_numeric(tensor: Tensor) -> bool:
    return (
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_complex() or tensor.is_quantized or tensor.dtype == torch.bool)
    )
