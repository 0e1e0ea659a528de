"""Constants of an ONNX graph: initializers, ``Constant`` nodes, and simple functions of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.checkpoints.folders import inside
from unarg_callback.checkpoints.tensor_file import reason, shown
from unarg_callback.errors import CheckpointError

Array = NDArray[np.generic]

STANDARD_DOMAINS = {"", "ai.onnx"}
_LONGEST = 64
_AS_THEIR_INPUT = {
    *("Add", "Sub", "Mul", "Div", "MatMul", "Identity", "Cast", "Dropout", "Relu", "Sigmoid"),
    *("Softmax", "LogSoftmax", "Tanh", "LayerNormalization"),
}
"""What has as many dimensions as its input that is no constant."""
_FLOATS = {"FLOAT": np.float32, "FLOAT16": np.float16, "DOUBLE": np.float64}


@dataclass(frozen=True)
class Value:
    """A constant, known by its header alone until it is loaded.

    Args:
        name: as in the graph.
        shape: its shape.
        dtype: ONNX's name of its type, such as FLOAT.
        load: computes it. Raises CheckpointError.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Array]

    @property
    def numeric(self) -> bool:
        """Whether it holds floating-point numbers: integers are shapes, or steps to be scaled."""
        return self.dtype in _FLOATS or self.dtype.startswith(("BFLOAT", "FLOAT8"))

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


class Constants:
    """The constants of a graph, looked up by name.

    Args:
        path: the model's file, for messages and for data outside of it.
        graph: ``onnx.GraphProto``.
    """

    def __init__(self, path: Path, graph: Any) -> None:
        self.path = path
        self.files: dict[Path, None] = {}
        """Files beside the model that hold data of it, as far as they may be read."""
        self.stored: dict[str, Value] = {}
        """Initializers and Constant nodes, in the order of the file."""
        self.made_by = {name: node for node in graph.node for name in node.output if name}
        self.shapes = {
            value.name: tuple(int(dim.dim_value) for dim in value.type.tensor_type.shape.dim)
            for value in (*graph.input, *graph.value_info, *graph.output)
            if value.type.tensor_type.shape.dim
        }
        """Shapes as far as the file tells them; 0 for a size that isn't fixed.

        No dimensions at all is how some converters write that they know none.
        """
        for tensor in graph.initializer:
            self.stored[tensor.name] = self._of_tensor(tensor.name, tensor)
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in STANDARD_DOMAINS:
                value = self._of_constant(node)
                if value is not None:
                    self.stored[value.name] = value

    def find(self, name: str) -> Value | None:
        """The constant of that name, also one that nodes compute from stored ones, or None."""
        steps: list[Any] = []
        while name not in self.stored:
            node = self.made_by.get(name)
            if node is None or node.op_type not in _FUNCTIONS or len(steps) == 16:
                return None
            if node.domain not in STANDARD_DOMAINS or not node.input:
                return None
            steps.append(node)
            name = node.input[0]
        value: Value | None = self.stored[name]
        for node in reversed(steps):
            value = None if value is None else _FUNCTIONS[node.op_type](self, node, value)
        return value

    def rank(self, name: str) -> int | None:
        """Number of dimensions, told by the file or by what computes it, or None."""
        for _ in range(_LONGEST):
            if name in self.shapes:
                return len(self.shapes[name])
            node = self.made_by.get(name)
            if node is None or node.domain not in STANDARD_DOMAINS or not node.input:
                return None
            if node.op_type == "Transpose":
                return len(attributes(node).get("perm") or ()) or None
            if node.op_type == "Gemm":
                return 2
            if node.op_type == "Reshape" and len(node.input) > 1:
                target = self.find(node.input[1])
                return None if target is None else target.size
            if node.op_type not in _AS_THEIR_INPUT:
                return None
            name = next((n for n in node.input if self.find(n) is None), "")
        return None

    def _of_constant(self, node: Any) -> Value | None:
        values = attributes(node)
        if "value" in values:
            return self._of_tensor(node.output[0], values["value"])
        for key in ("value_float", "value_floats", "value_int", "value_ints"):
            if key in values:
                kind = np.float32 if "float" in key else np.int64
                return _held(node.output[0], np.asarray(values[key], dtype=kind))
        return None

    def _of_tensor(self, name: str, tensor: Any) -> Value:
        from onnx import TensorProto

        known = dict(TensorProto.DataType.items())
        dtype = next((key for key, at in known.items() if at == tensor.data_type), "UNDEFINED")
        shape = tuple(int(size) for size in tensor.dims)

        for entry in tensor.external_data:
            with suppress(CheckpointError):  # Told only if the tensor is asked for.
                if entry.key == "location":
                    self.files[inside(self.path, entry.value)] = None

        def load() -> Array:
            try:
                return _array(self.path, tensor, shape)
            except CheckpointError:
                raise
            except Exception as cause:  # Of a damaged file; onnx documents no list of errors.
                raise CheckpointError(
                    f"{self.path}: {shown(name)} can't be read ({reason(cause)}); the file is "
                    "truncated or damaged"
                ) from cause

        return Value(name, shape, dtype, load)


def _held(name: str, array: Array) -> Value:
    dtype = "FLOAT" if array.dtype == np.float32 else "INT64"
    return Value(name, array.shape, dtype, lambda: array)


def attributes(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    from onnx import helper

    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _array(path: Path, tensor: Any, shape: tuple[int, ...]) -> Array:
    from onnx import TensorProto, helper, numpy_helper

    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    if tensor.data_location == TensorProto.EXTERNAL:
        stored = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        array = np.frombuffer(_external(path, tensor, math.prod(shape) * stored.itemsize), stored)
        array = array.reshape(shape)
    else:
        array = numpy_helper.to_array(tensor)
    if array.shape != shape:
        raise ValueError(f"its shape is {array.shape}, not {shape}")
    # The small floats of ml_dtypes, of which torch knows nothing; float32 holds them exactly.
    return array if array.dtype.kind in "fiub" else array.astype(np.float32)


def _external(path: Path, tensor: Any, expected: int) -> bytes:
    """Data that lies in a file beside the model."""
    where = {entry.key: entry.value for entry in tensor.external_data}
    source = inside(path, where.get("location", ""))
    offset, length = int(where.get("offset", 0)), int(where.get("length", expected))
    held = source.stat().st_size
    if offset < 0 or length != expected or offset + length > held:
        raise ValueError(
            f"needs {expected} bytes; {length} from byte {offset} on are promised in "
            f"{source.name}, which has {held}"
        )
    with source.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _identity(constants: Constants, node: Any, value: Value) -> Value:
    return Value(node.output[0], value.shape, value.dtype, value.load)


def _cast(constants: Constants, node: Any, value: Value) -> Value | None:
    from onnx import TensorProto

    known = dict(TensorProto.DataType.items())
    target = attributes(node).get("to")
    dtype = next((key for key, at in known.items() if at == target), "UNDEFINED")
    if dtype not in _FLOATS:
        return None
    return Value(node.output[0], value.shape, dtype, lambda: value.load().astype(_FLOATS[dtype]))


def _transposed(constants: Constants, node: Any, value: Value) -> Value | None:
    perm = attributes(node).get("perm") or list(range(len(value.shape)))[::-1]
    if sorted(perm) != list(range(len(value.shape))):
        return None
    shape = tuple(value.shape[axis] for axis in perm)
    return Value(node.output[0], shape, value.dtype, lambda: value.load().transpose(perm))


def _dequantised(constants: Constants, node: Any, value: Value) -> Value | None:
    """``(q - zero point) * scale``, by tensor or by one axis, as the operator defines it."""
    options = attributes(node)
    scale = constants.find(node.input[1]) if len(node.input) > 1 else None
    shifted = len(node.input) > 2 and node.input[2] != ""
    point = constants.find(node.input[2]) if shifted else None
    if scale is None or options.get("block_size") or (shifted and point is None):
        return None
    sizes = {scale.size, 1 if point is None else point.size}
    spread = [1] * len(value.shape)
    axis = int(options.get("axis", 1))
    if sizes != {1}:  # Else the axis means nothing, and may not even be one.
        if not -len(value.shape) <= axis < len(value.shape) or not sizes <= {1, value.shape[axis]}:
            return None
        spread[axis] = -1
    if scale.dtype not in _FLOATS:
        return None

    def load() -> Array:
        ratio = scale.load()
        steps = value.load().astype(np.int64)
        if point is not None:
            steps = steps - _along(point.load(), spread).astype(np.int64)
        # The product is rounded to the scale's type, as it is where the model runs.
        return steps.astype(ratio.dtype) * _along(ratio, spread)

    return Value(node.output[0], value.shape, scale.dtype, load)


def _along(array: Array, spread: list[int]) -> NDArray[Any]:
    return array.reshape(()) if array.size == 1 else array.reshape(spread)


_FUNCTIONS: dict[str, Callable[[Constants, Any, Value], Value | None]] = {
    "Identity": _identity,
    "Cast": _cast,
    "Transpose": _transposed,
    "DequantizeLinear": _dequantised,
}
