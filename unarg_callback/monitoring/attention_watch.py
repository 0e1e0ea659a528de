"""Watch the attention layers of a model, for the check of their keys."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from unarg_callback.activations.recording import is_recorded, is_wrapped
from unarg_callback.errors import UnargError
from unarg_callback.heads.attention import SparseAttention
from unarg_callback.heads.rule import ranks_by_size
from unarg_callback.monitoring.attention_keys import KeyBatch, left_out
from unarg_callback.monitoring.tags import head_name
from unarg_callback.snapshots.places import place_at, walk
from unarg_callback.snapshots.sharded import is_flattened, is_sharded

EXAMPLES = 2
"""Sequences of a batch whose keys are checked."""

_KINDS = (SparseAttention, nn.MultiheadAttention)


@dataclass(frozen=True, eq=False)
class _Seen:
    """What an attention layer was last called with in training, the first sequences of it."""

    key: Tensor
    queries: int
    padding: Tensor | None
    mask: Tensor | None
    causal: bool


@dataclass(eq=False)
class _Watched:
    name: str
    module: nn.Module
    handle: RemovableHandle | None = None
    seen: _Seen | None = None

    def attach(self) -> None:
        if self.handle is None:
            hook = _Hook(self)
            self.handle = self.module.register_forward_pre_hook(hook, with_kwargs=True)

    def detach(self) -> None:
        if self.handle is not None:
            self.handle.remove()
            self.handle = None


class _Hook:
    """A forward pre-hook that keeps what a check needs; copies of it do nothing."""

    def __init__(self, owner: _Watched | None = None) -> None:
        self.owner = owner

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.owner is None or not module.training or torch.compiler.is_compiling():
            return
        try:
            seen = _seen(module, args, kwargs)
        except Exception:  # The layer itself will say what is wrong.
            return
        self.owner.seen = self.owner.seen if seen is None else seen

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Hook, ())


@dataclass
class AttentionWatch:
    """Keeps the keys that attention layers saw last in training, until they are asked for.

    It knows :class:`SparseAttention` and ``nn.MultiheadAttention``. Inside of ``torch.compile`` and
    ``torch.func`` nothing is seen.

    Args:
        paths: attribute paths of the layers; None for all.
    """

    paths: Sequence[str] | None = None
    _layers: list[_Watched] = field(default_factory=list, repr=False)

    def open(self, model: nn.Module) -> None:
        """Begin to watch.

        Raises:
            UnargError: there is no such layer.
        """
        self.close()
        found: list[tuple[str, object]] = []
        if self.paths is None:
            found += [(p.path, p.inner) for p in walk(model) if isinstance(p.inner, _KINDS)]
        else:
            found += [(path, place_at(model, path).inner) for path in self.paths]
        wrong = [path for path, module in found if not isinstance(module, _KINDS)]
        if wrong or not found:
            what = f"'{wrong[0]}' is none" if wrong else "the model has none"
            raise UnargError(
                f"attention layers are asked for, and {what}; expected "
                f"{' or '.join(kind.__name__ for kind in _KINDS)} (or attention=False)"
            )
        for path, module in found:
            assert isinstance(module, nn.Module)
            self._layers.append(_Watched(head_name(path), module))
        self.resume()

    def pause(self) -> None:
        """Take the hooks away: with them ``nn.TransformerEncoderLayer`` has no fast path."""
        for layer in self._layers:
            layer.detach()

    def resume(self) -> None:
        """Put them back."""
        for layer in self._layers:
            layer.attach()

    def close(self) -> None:
        """Watch no longer."""
        self.pause()
        self._layers = []

    def copy(self) -> tuple[KeyBatch, ...]:
        """The keys of the last batch, as the layers project them now; waits for the device."""
        with torch.no_grad():
            return tuple(_copied(layer) for layer in self._layers)

    def __getstate__(self) -> dict[str, Any]:
        # Hooks belong to the modules of this process.
        return {"paths": self.paths, "_layers": []}


def _seen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Seen | None:
    """Copies of what a layer is called with; None where it can't be kept."""
    given = inspect.signature(type(module).forward).bind(module, *args, **kwargs).arguments
    query, key = given["query"], given["key"]
    if not isinstance(key, Tensor) or is_recorded(key) or is_wrapped(key) or key.is_nested:
        return None
    if isinstance(module, nn.MultiheadAttention) and key.dim() == 3 and not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    if key.dim() == 2:
        query, key = query[None], key[None]
    if key.dim() != 3:
        return None
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    heads = _heads(module)
    if isinstance(mask, Tensor):
        many = {3: EXAMPLES * heads, 4: EXAMPLES}.get(mask.dim())
        mask = (mask if many is None else mask[:many]).detach().clone()
    if isinstance(padding, Tensor):
        padding = torch.atleast_2d(padding)[:EXAMPLES].detach().clone()
    causal = isinstance(module, SparseAttention) and bool(given.get("is_causal", False))
    return _Seen(key[:EXAMPLES].detach().clone(), query.shape[1], padding, mask, causal)


def _copied(layer: _Watched) -> KeyBatch:
    module, seen = layer.module, layer.seen
    projection = _projection(module)
    if isinstance(projection, str):
        return KeyBatch(layer.name, reason=projection)
    if seen is None:
        told = "no batch of training was seen yet (a compiled model shows none)"
        return KeyBatch(layer.name, reason=told)
    weight, bias, direction, by_size = projection
    heads = _heads(module)
    try:
        out = left_out(
            seen.key.shape[:2], heads, seen.queries, seen.padding, seen.mask, seen.causal
        )
    except UnargError as cause:
        return KeyBatch(layer.name, reason=str(cause))
    keys = F.linear(seen.key.to(weight), weight, bias)
    keys = keys.unflatten(-1, (heads, -1)).transpose(1, 2).cpu()
    if not bool(keys.isfinite().all()):
        return KeyBatch(layer.name, reason="its keys have NaN or inf")
    return KeyBatch(
        layer.name,
        keys,
        None if out is None else ~out,
        None if direction is None else direction.detach().cpu(),
        by_size,
    )


def _heads(module: nn.Module) -> int:
    return module.heads if isinstance(module, SparseAttention) else int(module.num_heads)  # type: ignore[arg-type]


def _projection(
    module: nn.Module,
) -> tuple[Tensor, Tensor | None, Tensor | None, bool] | str:
    """Weight and bias that make keys, direction of additive scores, and how they are ranked.

    Or why that can't be told.
    """
    by_size = False
    direction: Tensor | None = None
    if isinstance(module, SparseAttention):
        linear: nn.Module = module.key_projection
        if not isinstance(linear, nn.Linear):
            return f"its key projection is a {type(linear).__name__}, which isn't known here"
        weight: Tensor = linear.weight
        bias: Tensor | None = linear.bias
        direction = module.direction
        try:
            by_size = ranks_by_size(module.map)
        except UnargError as cause:
            return str(cause)
        if by_size and direction is not None:
            return "there is no check of additive scores ranked by size"
    else:
        assert isinstance(module, nn.MultiheadAttention)
        if module.bias_k is not None or module.add_zero_attn:
            return "it adds keys of its own (add_bias_kv or add_zero_attn)"
        width = module.embed_dim
        bias = None if module.in_proj_bias is None else module.in_proj_bias[width : 2 * width]
        whole = module.in_proj_weight
        weight = module.k_proj_weight if whole is None else whole[width : 2 * width]
    parts = [part for part in (weight, bias, direction) if part is not None]
    if any(is_sharded(part) or is_flattened(part) or not part.numel() for part in parts):
        return "its parameters are sharded over ranks"
    return weight, bias, direction, by_size
