"""An output layer that was found in a live model, and how it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unarg_callback.errors import LayerError
from unarg_callback.snapshots.adapters import is_adapted, merged
from unarg_callback.snapshots.biases import (
    bias_path,
    read_bias,
    require_one_a_class,
    same_tensor,
)
from unarg_callback.snapshots.computed import LayerFunction, compute
from unarg_callback.snapshots.places import Place, base_of
from unarg_callback.snapshots.readable import problem_of_module, read_tensors
from unarg_callback.snapshots.sharded import is_flattened, units_within, unsharded, whole
from unarg_callback.snapshots.undisturbed import undisturbed

_SIZES = (("out_features", "in_features"), ("num_embeddings", "embedding_dim"))
"""Attributes that tell the shape of a weight which can't be seen."""


@dataclass(frozen=True, eq=False)
class FoundLayer:
    """An output layer, and where it was found. It holds no tensor and remembers no shape.

    Args:
        path: attribute path from the model, without the names that wrappers add, "" for the model;
            for a module outside the model the name of its class; for a function its name.
        module: the module itself, unwrapped; None for a function.
        model: what the layer was found in.
        function: what computes the layer, or None.
        place: where the module is; None for a function.
        bias: which module has a bias that is added to the layer's own, and under which name.
        bias_given: whether the user named that bias.
        collective: whether a snapshot needs every rank to take part. If so, ``classes`` and
            ``features`` of a parametrised layer or a function may need it too.
    """

    path: str
    module: nn.Module | None
    model: nn.Module = field(repr=False)
    function: LayerFunction | None = field(default=None, repr=False)
    place: Place | None = field(default=None, repr=False)
    bias: tuple[Place, str] | None = field(default=None, repr=False)
    bias_given: bool = field(default=False, repr=False)
    collective: bool = False

    @property
    def bias_path(self) -> str | None:
        """Attribute path of the bias that is added to the layer's own, or None."""
        return None if self.bias is None else bias_path(*self.bias)

    @property
    def inside(self) -> bool:
        """Whether the layer is a part of the model."""
        return self.place is not None and (self.place.parent is not None or not self.place.path)

    @property
    def classes(self) -> int:
        """C, as the weight has it now."""
        return self.shape[0]

    @property
    def features(self) -> int:
        """d, as the weight has it now."""
        return self.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """(C, d), as the weight has it now; of the whole layer where it is sharded.

        Raises:
            LayerError: the layer can't be read.
        """
        if self.module is None:
            shape = self.tensors()[0].shape
        elif self.flattened:
            shape = torch.Size(self._declared())
        else:
            shape = read_tensors(base_of(self.module), self.text)[0].shape
        return int(shape[0]), int(shape[1])

    @property
    def flattened(self) -> bool:
        """Whether FullyShardedDataParallel holds the layer's parameters, in pieces."""
        if self.place is None or self.module is None:
            return False
        return next(self.place.units(), None) is not None or bool(units_within(self.module))

    @property
    def text(self) -> str:
        """What messages call it."""
        kind = "a function" if self.module is None else type(self.module).__name__
        return f"layer '{self.path}' ({kind})"

    def require_readable(self) -> None:
        """Raise unless the layer can be read, as far as this rank can tell alone.

        Raises:
            LayerError: it says what is wrong with the layer.
        """
        if self.module is not None:
            problem = problem_of_module(self.module)
            if problem is not None:
                raise LayerError(f"{self.text} {problem}")
        if self.flattened:
            self._declared()
            return
        weight = (
            self.tensors()[0]
            if self.module is None
            else read_tensors(base_of(self.module), self.text)[0]
        )
        if self.bias is not None and next(self.bias[0].units(), None) is None:
            here = f"bias '{self.bias_path}'"
            require_one_a_class(read_bias(*self.bias), int(weight.shape[0]), here)

    def tensors(self, *, gathered: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Weight, (C, d), and the biases whose sum is its bias: not copied, maybe sharded.

        Args:
            gathered: whether FullyShardedDataParallel has just made its parameters whole.

        Raises:
            LayerError: the layer can't be read.
        """
        with torch.no_grad():
            weight, own = self._own_tensors(gathered)
            biases = [] if own is None else [own]
            if self.bias is not None:
                extra = read_bias(*self.bias, gathered=gathered)
                if own is None or not same_tensor(own, extra):
                    biases.append(extra)
        for bias in biases:
            here = f"{self.text}: its bias" if bias is own else f"bias '{self.bias_path}'"
            require_one_a_class(bias, int(weight.shape[0]), here)
        return weight, biases

    @contextmanager
    def opened(self) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """The same tensors whole, for use inside the context only; each bias has shape (C,).

        A collective where ``collective`` is true: every rank has to enter, between steps.

        Raises:
            LayerError: the layer can't be read.
        """
        units: list[nn.Module] = []
        root = None
        for place in (self.place, None if self.bias is None else self.bias[0]):
            around = [] if place is None else list(place.units())
            units += around[:1]
            root = around[-1] if around else root
        if self.module is not None and self.flattened:
            units += units_within(self.module)
        with unsharded(units, root), torch.inference_mode(False), torch.no_grad():
            weight, biases = self.tensors(gathered=bool(units))
            yield whole(weight), [whole(bias).reshape(-1) for bias in biases]

    def _own_tensors(self, gathered: bool) -> tuple[Tensor, Tensor | None]:
        if self.module is None:
            assert self.function is not None
            return compute(self.function, self.model)
        problem = problem_of_module(self.module)
        if problem is not None:
            raise LayerError(f"{self.text} {problem}")
        weight, bias = read_tensors(base_of(self.module), self.text, gathered=gathered)
        if not is_adapted(self.module):
            return weight, bias
        with undisturbed(self.module):
            return merged(self.module, weight, bias)

    def _declared(self) -> tuple[int, int]:
        """Shape of the weight as its module tells it: the weight itself is in pieces."""
        assert self.module is not None
        base = base_of(self.module)
        for rows, columns in _SIZES:
            sizes = getattr(base, rows, None), getattr(base, columns, None)
            if isinstance(sizes[0], int) and isinstance(sizes[1], int):
                return sizes[0], sizes[1]
        weight = base._parameters.get("weight")
        if weight is None or is_flattened(weight) or parametrize.is_parametrized(base, "weight"):
            raise LayerError(
                f"{self.text} is sharded by FullyShardedDataParallel, and its shape can't be told; "
                "expected nn.Linear or nn.Embedding there (or use fully_shard)"
            )
        return int(weight.shape[0]), int(weight.shape[1])
