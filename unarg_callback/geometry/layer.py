"""An output layer: the rows of W, the bias, the names, and who takes part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from unarg_callback.errors import LayerError, NotFiniteError
from unarg_callback.geometry.rounding import subnormals_are_flushed

_EXACT_INTEGER = 2**53
_BITS = {
    torch.float32: (torch.int32, 0x7F800000),
    torch.float64: (torch.int64, 0x7FF0000000000000),
    torch.bfloat16: (torch.int16, 0x7F80),
}
"""Integers of the same size, and where the exponent is."""

_CHUNK = 8192

_MOST_IDS = 10**8
"""Longest range of ids: more classes than any layer has, so more is a slip of the pen."""


class OutputLayer:
    """The layer ``z = W x + b`` of a classifier, validated.

    Tensors and arrays are kept, not copied: who changes them afterwards changes the layer.

    Args:
        weight: (C, d), any real dtype; kept as it is, upcast exactly where proofs need it.
            Integers become float64 (refused beyond 2**53, where that would round).
        bias: (C,), (C, 1) or (1, C), or None.
        names: C class names, or None.
        excluded: class ids that take no part (padding, masked or reserved rows). They are out of
            the problem, not only out of the count: they beat nobody. Their rows may hold
            anything.

    Raises:
        LayerError: a shape, dtype, value, name list or id doesn't fit; the message says which.

    >>> layer = OutputLayer([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], names=["a", "b", "c"])
    >>> layer.classes, layer.dim, layer.name(2)
    (3, 2, 'c')
    """

    def __init__(
        self,
        weight: Tensor | ArrayLike,
        bias: Tensor | ArrayLike | None = None,
        *,
        names: Sequence[str] | None = None,
        excluded: Iterable[int] = (),
    ) -> None:
        self.weight: Tensor = _real_tensor(weight, "weight")
        if self.weight.ndim != 2:
            raise LayerError(
                f"weight has shape {tuple(self.weight.shape)}; expected two dimensions "
                "(classes, features)"
            )
        if 0 in self.weight.shape:
            raise LayerError(
                f"weight has shape {tuple(self.weight.shape)}; expected at least one class and "
                "one feature"
            )
        self.bias: Tensor | None = None if bias is None else self._bias_vector(bias)
        self.names: tuple[str, ...] | None = None if names is None else self._name_tuple(names)
        self.excluded: tuple[int, ...] = self._excluded_ids(excluded)
        mask = torch.ones(self.classes, dtype=torch.bool, device="cpu")
        mask[list(self.excluded)] = False
        self.active: Tensor = mask.nonzero().squeeze(1)
        """(A,) int64 on the CPU: ids of the classes that take part, ascending."""
        self._require_finite()

    @property
    def classes(self) -> int:
        """C, the number of rows, excluded ones included."""
        return int(self.weight.shape[0])

    @property
    def dim(self) -> int:
        """d, the number of features."""
        return int(self.weight.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the weight lies."""
        return self.weight.device

    def name(self, index: int) -> str:
        """Name of a class, or its id as text where there are no names."""
        return str(index) if self.names is None else self.names[index]

    def rows(self, ids: Tensor | np.ndarray | slice) -> Tensor:
        """(n, d) float64 rows of W, an exact upcast."""
        return self.weight[_index(ids, self.device)].to(torch.float64)

    def biases(self, ids: Tensor | np.ndarray | slice) -> Tensor:
        """(n,) float64 biases, an exact upcast; zeros where the layer has none."""
        if self.bias is None:
            span = self.weight[_index(ids, self.device), 0]
            return torch.zeros(span.shape, dtype=torch.float64, device=self.device)
        return self.bias[_index(ids, self.device)].to(torch.float64)

    def to(self, device: torch.device | str) -> OutputLayer:
        """Return the same layer with its tensors on another device."""
        if torch.device(device) == self.device:
            return self
        moved = object.__new__(OutputLayer)
        moved.__dict__.update(self.__dict__)
        moved.weight = self.weight.to(device)
        moved.bias = None if self.bias is None else self.bias.to(device)
        return moved

    def copy(self) -> OutputLayer:
        """Return the same layer with tensors of its own."""
        own = object.__new__(OutputLayer)
        own.__dict__.update(self.__dict__)
        own.weight = self.weight.clone()
        own.bias = None if self.bias is None else self.bias.clone()
        return own

    def require_plain_values(self) -> None:
        """Raise if this thread would read some of the layer's values as zero.

        Raises:
            LayerError: ``torch.set_flush_denormal(True)`` is on and there are subnormal values.
        """
        if not subnormals_are_flushed():
            return
        for tensor in (self.weight, self.bias):
            if tensor is None or tensor.dtype not in _BITS:
                continue
            integer, exponent = _BITS[tensor.dtype]
            bits = tensor.contiguous().view(integer)
            sign = -(2 ** (8 * tensor.dtype.itemsize - 1))
            if bool((((bits & exponent) == 0) & ((bits & ~sign) != 0)).any()):
                raise LayerError(
                    "the layer has subnormal values, which torch.set_flush_denormal(True) reads as "
                    "zero; switch it off, or scale the layer up"
                )

    def __repr__(self) -> str:
        bias = "no bias" if self.bias is None else "bias"
        return f"OutputLayer({self.classes} x {self.dim}, {bias}, {len(self.excluded)} excluded)"

    def _bias_vector(self, bias: Tensor | ArrayLike) -> Tensor:
        vector = _real_tensor(bias, "bias")
        if tuple(vector.shape) not in {(self.classes,), (self.classes, 1), (1, self.classes)}:
            raise LayerError(
                f"bias has shape {tuple(vector.shape)}; expected ({self.classes},), one a class"
            )
        return vector.reshape(-1).to(self.weight.device)

    def _name_tuple(self, names: Sequence[str]) -> tuple[str, ...]:
        if isinstance(names, str):
            raise LayerError("names is one string; expected a list with one name a class")
        if len(names) != self.classes:
            raise LayerError(f"{len(names)} names for {self.classes} classes; expected one a class")
        return tuple(str(name) for name in names)

    def _excluded_ids(self, excluded: Iterable[int]) -> tuple[int, ...]:
        listed = list(excluded)
        if any(isinstance(i, bool | np.bool_ | str) or not hasattr(i, "__index__") for i in listed):
            raise LayerError(
                f"excluded holds {listed[:3]}; expected class ids, integers (from a mask: "
                "mask.nonzero())"
            )
        ids = sorted({int(i) for i in listed})
        outside = [i for i in ids if not 0 <= i < self.classes]
        if outside:
            raise LayerError(
                f"excluded ids {outside[:5]} are out of range; expected 0 to {self.classes - 1}"
            )
        return tuple(ids)

    def _require_finite(self) -> None:
        for what, tensor in (("weight", self.weight), ("bias", self.bias)):
            if tensor is None:
                continue
            # In parts: the test needs as much memory as what it tests.
            parts = tensor.reshape(self.classes, -1).split(_CHUNK)
            finite = torch.cat([torch.isfinite(part).all(1) for part in parts])
            bad = (~finite.cpu()[self.active]).nonzero().squeeze(1)
            if len(bad):
                ids = self.active[bad].tolist()
                more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
                raise NotFiniteError(
                    f"{what} has NaN or inf in {len(ids)} class(es): {ids[:5]}{more}; expected "
                    "finite values (exclude these classes, or check an earlier snapshot)"
                )


def _real_tensor(value: Tensor | ArrayLike, what: str) -> Tensor:
    """Tensor with a real floating dtype; every value is kept exactly."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise LayerError(f"{what} has masked values; expected an array without a mask")
    try:
        tensor = value.detach() if isinstance(value, Tensor) else _from_array(np.asarray(value))
    except (TypeError, ValueError) as cause:
        raise LayerError(
            f"{what} can't be read as an array of numbers ({cause}); expected a tensor or array"
        ) from cause
    if tensor.is_meta or tensor.layout != torch.strided:
        kind = "on the meta device" if tensor.is_meta else f"{tensor.layout}"
        raise LayerError(f"{what} is {kind}; expected a dense tensor with values")
    if tensor.is_floating_point() and tensor.dtype.itemsize >= 2:
        return tensor
    if tensor.is_floating_point():
        return tensor.to(torch.float32)
    if tensor.dtype == torch.bool or tensor.is_complex() or tensor.is_quantized:
        raise LayerError(f"{what} has dtype {tensor.dtype}; expected real numbers")
    if tensor.dtype == torch.uint64 and bool((tensor.view(torch.int64) < 0).any()):
        raise LayerError(f"{what} has integers beyond 2**53; expected values exact in float64")
    tensor = tensor.to(torch.int64)
    if tensor.numel() and max(int(tensor.max()), -int(tensor.min())) > _EXACT_INTEGER:
        raise LayerError(f"{what} has integers beyond 2**53; expected values exact in float64")
    return tensor.to(torch.float64)


def _from_array(array: np.ndarray) -> Tensor:
    """Tensor on the CPU from an array of any byte order and strides."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 for stride in native.strides):
        native = native.copy()
    return torch.as_tensor(native, device="cpu")


def _index(ids: Tensor | np.ndarray | slice, device: torch.device) -> Tensor | slice:
    return ids if isinstance(ids, slice) else torch.as_tensor(ids, device=device)


def parse_ids(text: str) -> tuple[int, ...]:
    """Read class ids and inclusive ranges of them, separated by commas.

    Raises:
        LayerError: a part is neither.

    >>> parse_ids("0,5,10-12")
    (0, 5, 10, 11, 12)
    """
    ids: set[int] = set()
    for part in text.split(",") if text.strip() else []:
        match = re.fullmatch(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last - first > _MOST_IDS:
            raise LayerError(
                f"{part.strip()!r} in {text!r} can't be read as class ids; expected ids and ranges "
                "such as 0,5,10-20"
            )
        ids.update(range(first, last + 1))
    return tuple(sorted(ids))
