"""From an output of an ONNX graph back to the product whose rows are the classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from unarg_callback.checkpoints.onnx_values import (
    STANDARD_DOMAINS,
    Constants,
    Value,
    attributes,
)
from unarg_callback.checkpoints.tensor_file import Orientation, shown

_PASSED = {"Identity", "Cast", "Dropout", "Sigmoid"}
_NORMALISED = {"Softmax", "LogSoftmax"}
_CHOSEN = {"ArgMax", "TopK"}
_CURVED = {"Softmax", "Sigmoid"}
"""After which to add something to each class is no longer to add it to Wx."""
_RESHAPED = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}
_SCALED = {"Mul", "Div"}
_SHIFTED = {"Add", "Sub"}
_LONGEST = 64


@dataclass(frozen=True)
class Head:
    """A product ``W x + b`` that an output of the graph is made from.

    Args:
        output: the output.
        weight: W.
        biases: what is added to the product, each with +1 or -1; vectors of C values.
        orientation: which dimension of the weight counts the classes.
    """

    output: str
    weight: Value
    biases: tuple[tuple[Value, int], ...]
    orientation: Orientation

    @property
    def classes(self) -> int:
        """C."""
        return self.weight.shape[0 if self.orientation == "classes-first" else 1]

    @property
    def dim(self) -> int:
        """The number of features, d."""
        return self.weight.shape[1 if self.orientation == "classes-first" else 0]


class NoHeadError(Exception):
    """What on the way back from an output is not understood."""


@dataclass
class _Way:
    """What was met on the way back: only what keeps the order of the classes' scores."""

    axis: int | None = None
    """Of the classes, counted from the end; None until something tells."""
    rank: int | None = None
    biases: list[tuple[Value, int]] = field(default_factory=list)
    sizes: set[int] = field(default_factory=set)
    """How many classes there must be."""
    doubts: list[NoHeadError] = field(default_factory=list)
    """What can't be, unless the way then passes an argmax, which leaves no classes behind it."""

    def forget(self) -> None:
        """Before an argmax, the dimension of the classes is there; what is done to ids is not."""
        self.axis = None
        self.biases.clear()
        self.sizes.clear()
        self.doubts.clear()


def find_head(constants: Constants, output: Any, opset: int) -> Head | NoHeadError:
    """Walk back from one output.

    Passed on the way is only what can't change which class is the argmax: softmax, argmax, a
    positive factor, the same shift of all classes, another shape or order of the other dimensions.

    Args:
        constants: of the graph.
        output: ``onnx.ValueInfoProto``.
        opset: version of the operators, which says what softmax does by default.

    Returns:
        The product, or what else is on the way.
    """
    try:
        return _walked(constants, output, opset)
    except NoHeadError as problem:
        return problem


def _walked(constants: Constants, output: Any, opset: int) -> Head:
    way = _Way()
    name = output.name
    for _ in range(_LONGEST):
        node = constants.made_by.get(name)
        if node is None:
            raise NoHeadError(f"{shown(name)} is no result of a matrix product")
        if node.domain not in STANDARD_DOMAINS:
            raise _stopped(node)
        way.rank = constants.rank(name) or way.rank
        if node.op_type == "Gemm":
            return _gemm(constants, way, node, output.name)
        if node.op_type == "MatMul":
            return _matmul(constants, way, node, output.name)
        name = _passed(constants, way, node, opset)
    raise NoHeadError(f"more than {_LONGEST} operations lie between it and a matrix product")


def _stopped(node: Any, why: str = "") -> NoHeadError:
    name = shown(node.output[0]) if node.output else "?"
    return NoHeadError(f"{name} is computed by {shown(node.op_type)}{why and ' ' + why}")


def _passed(constants: Constants, way: _Way, node: Any, opset: int) -> str:
    """The input through which the way leads on."""
    kind = node.op_type
    if kind in _CURVED and way.biases:
        raise _stopped(node, "between the product and its bias")
    if kind in _PASSED and node.input:
        return str(node.input[0])
    if kind in _NORMALISED | _CHOSEN and node.input:
        _classes_along(way, node, opset)
        return str(node.input[0])
    if kind == "Transpose":
        perm = attributes(node).get("perm")
        if perm is None:
            raise _stopped(node, "without a perm")
        way.rank = len(perm)
        if way.biases and perm[-1] != len(perm) - 1:
            way.doubts.append(_stopped(node, "between the product and its bias"))
        if way.axis is not None:
            way.axis = perm[way.axis] - len(perm)
        return str(node.input[0])
    if kind in _RESHAPED:
        _reshaped(constants, way, node)
        return str(node.input[0])
    if kind in _SHIFTED | _SCALED and len(node.input) == 2:
        left, right = (constants.find(name) for name in node.input)
        constant, turned = (right, False) if right is not None else (left, True)
        if constant is None or (turned and kind in {"Sub", "Div"}):
            raise _stopped(node, "where a constant was expected")
        if kind in _SCALED:
            _require_positive(way, node, constant)
        elif constant.size != 1:
            way.biases.append((constant, -1 if kind == "Sub" else 1))
        return str(node.input[1 if turned else 0])
    raise _stopped(node)


def _classes_along(way: _Way, node: Any, opset: int) -> None:
    options = attributes(node)
    if node.op_type in _CHOSEN:
        way.forget()
    if node.op_type == "ArgMax":
        axis = int(options.get("axis", 0))
        if way.rank is not None and not options.get("keepdims", 1):
            way.rank += 1
    elif node.op_type == "TopK":
        axis = int(options.get("axis", -1))
        if not options.get("largest", 1):
            raise _stopped(node, "of the smallest")
    else:
        axis = int(options.get("axis", -1 if opset >= 13 else 1))
        # Before version 13, softmax ran over all dimensions from its axis on.
        if opset < 13 and way.rank is not None and axis % way.rank != way.rank - 1:
            raise _stopped(node, "over more than one dimension")
    if axis >= 0:
        if way.rank is None:
            raise _stopped(node, f"over dimension {axis} of an unknown number")
        axis -= way.rank
    if way.axis not in (None, axis):
        raise _stopped(node, "over another dimension than what follows it")
    way.axis = axis


def _reshaped(constants: Constants, way: _Way, node: Any) -> None:
    """Only where the classes stay the last dimension."""
    if way.axis not in (None, -1):
        way.doubts.append(_stopped(node, "where the classes aren't the last dimension"))
    if node.op_type in {"Squeeze", "Unsqueeze"}:
        axes = attributes(node).get("axes")
        if axes is None and len(node.input) > 1:
            value = constants.find(node.input[1])
            axes = None if value is None else value.load().reshape(-1).tolist()
        if axes is None or -1 in list(axes):
            way.doubts.append(_stopped(node, "of the last dimension, or of any"))
    else:
        last = _last_size(constants, node)
        if last:
            way.sizes.add(last)
        elif not _keeps_last(constants, node):
            way.doubts.append(_stopped(node, "to a size that isn't fixed"))
    way.rank = None


def _keeps_last(constants: Constants, node: Any) -> bool:
    """Whether Reshape or Flatten copies the last size, whatever it is."""
    before = constants.rank(node.input[0])
    if node.op_type == "Flatten":
        return before is not None and int(attributes(node).get("axis", 1)) in (-1, before - 1)
    target = constants.find(node.input[1]) if len(node.input) > 1 else None
    sizes = [] if target is None else target.load().reshape(-1).tolist()
    if not sizes or len(sizes) != before:
        return False
    return sizes[-1] == 0 or (sizes[-1] == -1 and not any(sizes[:-1]))


def _last_size(constants: Constants, node: Any) -> int:
    """Size of the last dimension of what Reshape or Flatten gives, or 0 if that isn't fixed."""
    told = constants.shapes.get(node.output[0])
    if told and told[-1] > 0:
        return told[-1]
    target = node.input[1] if node.op_type == "Reshape" and len(node.input) > 1 else ""
    joined = constants.made_by.get(target)
    if joined is not None and joined.op_type == "Concat" and joined.input:
        target = joined.input[-1]  # How exporters put together a shape with free sizes in it.
    value = constants.find(target)
    return max(0, int(value.load().reshape(-1)[-1])) if value is not None and value.size else 0


def _require_positive(way: _Way, node: Any, factor: Value) -> None:
    value = float(factor.load().reshape(-1)[0]) if factor.size == 1 else math.nan
    if not (math.isfinite(value) and value > 0):
        raise _stopped(node, "by what is no positive number")
    if way.biases and value != 1:
        raise _stopped(node, "between the product and its bias")


def _gemm(constants: Constants, way: _Way, node: Any, output: str) -> Head:
    options = attributes(node)
    weight = constants.find(node.input[1]) if len(node.input) > 1 else None
    if weight is None:
        raise _stopped(node, "of no constant weight")
    alpha, beta = float(options.get("alpha", 1)), float(options.get("beta", 1))
    if not alpha > 0 or (way.biases and alpha != 1):
        raise _stopped(node, f"with alpha = {alpha}")
    if len(node.input) > 2 and node.input[2] and beta != 0:
        added = constants.find(node.input[2])
        if added is None or not alpha == beta == 1:
            raise _stopped(node, "with a bias that is no constant, or scaled")
        if added.size != 1:
            way.biases.append((added, 1))
    orientation: Orientation = "classes-first" if options.get("transB") else "features-first"
    return _head(way, node, output, weight, orientation, -1)


def _matmul(constants: Constants, way: _Way, node: Any, output: str) -> Head:
    left, right = (constants.find(name) for name in node.input[:2])
    if right is not None and left is None:
        return _head(way, node, output, right, "features-first", -1)
    if left is not None and right is None:
        return _head(way, node, output, left, "classes-first", -2)
    raise _stopped(node, "of no constant weight")


def _head(
    way: _Way, node: Any, output: str, weight: Value, orientation: Orientation, axis: int
) -> Head:
    if len(weight.shape) != 2 or not weight.numeric:
        raise _stopped(node, f"with a weight of {weight.shape} {weight.dtype}")
    if way.doubts:
        raise way.doubts[0]
    if way.axis not in (None, axis):
        raise _stopped(node, "whose rows are not what the softmax or argmax runs over")
    head = Head(output, weight, tuple(way.biases), orientation)
    if way.sizes - {head.classes}:
        raise _stopped(node, f"of {head.classes} columns, which are then split")
    for bias, _ in way.biases:
        apart = bias.shape[axis:] if len(bias.shape) >= -axis else ()
        if not bias.numeric or bias.size != head.classes or not apart or apart[0] != bias.size:
            raise _stopped(node, f"to which {shown(bias.name)} {bias.shape} is added")
    return head
