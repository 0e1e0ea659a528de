"""ONNX models: the output layer by a walk through the graph, as names tell nothing there.

The protobuf is parsed by the package ``onnx``; nothing in it is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unarg_callback.checkpoints.onnx_graph import Head, find_head
from unarg_callback.checkpoints.onnx_values import STANDARD_DOMAINS, Array, Constants, Value
from unarg_callback.checkpoints.tensor_file import (
    Entry,
    KnownLayer,
    TensorFile,
    listing,
    raw_bytes,
    reason,
    shown,
)
from unarg_callback.checkpoints.vocabulary import Vocabulary
from unarg_callback.errors import CheckpointError

_IN_INTEGERS = {"MatMulInteger", "QLinearMatMul", "QGemm", "MatMulNBits", "DynamicQuantizeMatMul"}
_CHARACTERS = "character"
"""Where converted PaddleOCR recognisers keep the characters, one a line."""


def open_onnx(path: Path) -> TensorFile:
    """List the constants of an ONNX model, and the output layers that its graph shows.

    Data in files beside the model is read only from the model's own folder.

    Args:
        path: the file.

    Raises:
        CheckpointError: it is damaged or another format, or the package onnx isn't installed.
    """
    model = _parsed(path)
    try:
        constants = Constants(path, model.graph)
        heads, problems = _heads(constants, model)
    # Nothing says that a node has the inputs and attributes that its operator needs.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as cause:
        if isinstance(cause, CheckpointError):
            raise
        raise _damaged(path, reason(cause)) from cause
    values = dict(constants.stored)
    for node in model.graph.node:  # So that they can be named.
        if node.op_type == "DequantizeLinear" and (value := constants.find(node.output[0])):
            values[value.name] = value
    known = tuple(_known(head, values) for head in heads)
    entries = tuple(_entry(value) for value in values.values())

    def load(name: str) -> Tensor:
        return _tensor(path, name, values[name].load())

    return TensorFile(
        path,
        entries,
        load,
        head=lambda name: raw_bytes(load(name)[:1]).numpy().tobytes(),
        torch_names=False,
        known=known,
        refusal=_refusal(model, problems),
        vocabulary=lambda classes: _vocabulary(model, classes),
        files=tuple(constants.files),
    )


def _parsed(path: Path) -> Any:
    try:
        import onnx
    except ImportError as cause:
        raise CheckpointError(
            f"{path} needs the package onnx to be read; install it with: "
            "pip install 'unarg_callback[onnx]'"
        ) from cause
    try:
        model = onnx.load_model(path, format="protobuf", load_external_data=False)
    except OSError:
        raise
    except Exception as cause:  # The bytes are untrusted, and no list of errors is documented.
        raise _damaged(path, reason(cause)) from cause
    if not model.graph.node or not model.graph.output:
        raise _damaged(path, "it has no graph with an output")
    if not all(isinstance(text, str) for text in _texts(model)):
        raise _damaged(path, "a name in it is not UTF-8")
    return model


def _texts(model: Any) -> Iterator[Any]:
    """Every text that is used below; protobuf gives bytes where one isn't UTF-8."""
    for node in model.graph.node:
        yield from (node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for named in (*model.graph.initializer, *model.graph.output, *model.graph.value_info):
        yield named.name
    yield from (part for item in model.metadata_props for part in (item.key, item.value))
    for tensor in model.graph.initializer:
        yield from (part for entry in tensor.external_data for part in (entry.key, entry.value))


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} can't be read as .onnx ({why}); it is truncated, damaged or another format: "
        "expected what onnx.save writes"
    )


def _heads(constants: Constants, model: Any) -> tuple[list[Head], list[str]]:
    """Each product once; of several, those that could have classes that never win."""
    opset = max((o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS), default=1)
    heads: dict[tuple[str, tuple[str, ...]], Head] = {}
    problems = []
    for output in model.graph.output:
        head = find_head(constants, output, opset)
        if isinstance(head, Head):
            heads.setdefault((head.weight.name, tuple(v.name for v, _ in head.biases)), head)
        else:
            problems.append(f"{shown(output.name)}: {head}")
    found = list(heads.values())
    wide = [head for head in found if head.classes > head.dim]
    return (wide or found) if len(found) > 1 else found, problems


def _refusal(model: Any, problems: list[str]) -> str:
    kinds = {node.op_type for node in model.graph.node}
    text = (
        "no output of the graph leads back to one matrix product with constant weights "
        f"({listing(problems)})"
    )
    if kinds & _IN_INTEGERS:
        return (
            f"{text}; it multiplies in integers ({listing(sorted(kinds & _IN_INTEGERS))}): take "
            "the model before it was quantised"
        )
    if "QuantizeLinear" in kinds:
        return f"{text}; it rounds its scores to few steps, and equal ones are no argmax of Wx + b"
    return text


def _known(head: Head, values: dict[str, Value]) -> KnownLayer:
    """The layer as entries; what the graph computes from constants becomes one of its own."""
    values.setdefault(head.weight.name, head.weight)
    bias = _bias(head)
    if bias is not None:
        values[bias.name] = bias
    return KnownLayer(
        _entry(values[head.weight.name]),
        None if bias is None else _entry(bias),
        head.orientation,
        why=f"by the graph, from its output {shown(head.output)}",
    )


def _bias(head: Head) -> Value | None:
    """The sum of what is added to the product, (C,)."""
    if not head.biases:
        return None
    first, sign = head.biases[0]
    plain = len(head.biases) == 1 and sign == 1
    signs = {1: " + ", -1: " - "}
    name = "".join(f"{signs[sign]}{value.name}" for value, sign in head.biases).removeprefix(" + ")

    def load() -> Array:
        if plain:
            return first.load().reshape(-1)
        total = np.zeros(head.classes)
        for value, sign in head.biases:
            total += sign * value.load().reshape(-1).astype(np.float64)
        return total

    dtype = first.dtype if plain else "DOUBLE"
    return Value(first.name if plain else name.strip(), (head.classes,), dtype, load)


def _entry(value: Value) -> Entry:
    # Only what the graph shows is offered: a constant's name and shape say nothing of its use.
    return Entry(value.name, value.shape, value.dtype, numeric=value.numeric, offered=False)


def _tensor(path: Path, name: str, array: Array) -> Tensor:
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise CheckpointError(
                f"{path}: {shown(name)} has integers beyond 2**63; expected exact float64 values"
            )
        array = array.astype(np.int64)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _vocabulary(model: Any, classes: int) -> Vocabulary:
    for item in model.metadata_props:
        if item.key == _CHARACTERS:
            characters = item.value.replace("\r\n", "\n").split("\n")
            if characters and characters[-1] == "":
                characters.pop()
            around = {0: ([], []), 1: (["<blank>"], []), 2: (["<blank>"], [" "])}
            before, after = around.get(classes - len(characters), ([], []))
            names = (*before, *characters, *after)
            if len(names) == classes:
                return Vocabulary(names, note="names: from the model's metadata (character)")
    return Vocabulary()
