"""Attention layers watched in real calls and trainings, of this package and of torch."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from tests.monitoring.attention_layers import HEADS, WIDTH, N, S, T, draw, hooks, split, torch_keys
from unarg_callback import Monitor
from unarg_callback.errors import LayerError, UnargError
from unarg_callback.heads import SparseAttention
from unarg_callback.monitoring.attention_keys import KeyBatch
from unarg_callback.monitoring.attention_watch import EXAMPLES, AttentionWatch


def opened(model: nn.Module, *paths: str) -> AttentionWatch:
    watch = AttentionWatch(paths or None)
    watch.open(model)
    return watch


def only(watch: AttentionWatch) -> KeyBatch:
    (batch,) = watch.copy()
    return batch


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


class TestTorchs:
    @pytest.mark.parametrize("batch_first", [True, False])
    @pytest.mark.parametrize("kdim", [None, 5])
    @pytest.mark.parametrize("bias", [True, False])
    def test_keys(self, batch_first: bool, kdim: int | None, bias: bool) -> None:
        layer = nn.MultiheadAttention(
            WIDTH, HEADS, batch_first=batch_first, kdim=kdim, vdim=kdim, bias=bias
        )
        query, key = draw(N, T, WIDTH), draw(N, S, kdim or WIDTH)
        watch = opened(nn.ModuleDict({"att": layer}))
        turned = (key if batch_first else key.transpose(0, 1)).clone()
        layer(query if batch_first else query.transpose(0, 1), turned, value=turned)
        turned.zero_()
        found = only(watch)
        assert found.layer == "att"
        assert found.keys is not None
        torch.testing.assert_close(found.keys, torch_keys(layer, key)[:EXAMPLES].detach())
        assert not found.keys.requires_grad
        assert (found.allowed, found.direction, found.by_size) == (None, None, False)

    def test_keys_are_projected_as_the_layer_is_now(self) -> None:
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        watch, key = opened(layer), draw(N, S, WIDTH)
        layer(key, key, key)
        with torch.no_grad():
            layer.in_proj_weight.add_(1)
        found = only(watch).keys
        assert found is not None
        torch.testing.assert_close(found, torch_keys(layer, key)[:EXAMPLES].detach())

    def test_the_scores_are_those_of_these_keys(self) -> None:
        """The weights that the layer gives rank keys as the copied ones do."""
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        watch, query, key = opened(layer), draw(N, T, WIDTH), draw(N, S, WIDTH)
        _, weights = layer(query, key, key, average_attn_weights=False)
        keys = only(watch).keys
        assert keys is not None
        weight, bias = layer.in_proj_weight.chunk(3)[0], layer.in_proj_bias.chunk(3)[0]
        queries = split(nn.functional.linear(query, weight, bias))[:EXAMPLES]
        scores = queries @ keys.transpose(-1, -2)
        assert torch.equal(scores.argsort(-1), weights[:EXAMPLES].argsort(-1))

    def test_masks(self) -> None:
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        watch, query, key = opened(layer), draw(N, T, WIDTH), draw(N, S, WIDTH)
        padding = torch.arange(S) >= torch.tensor([[S], [3], [4]])
        flat = torch.ones(T, S).triu(1).bool()
        each = (torch.rand(N * HEADS, T, S) < 0.4).index_fill(2, torch.tensor([0]), False)
        full = (N, HEADS, T, S)
        cases: list[tuple[Any, Any, Tensor]] = [
            (padding, None, padding[:, None, None].expand(full)),
            (None, flat, flat.expand(full)),
            (None, each, each.reshape(full)),
            (padding, each, padding[:, None, None] | each.reshape(full)),
        ]
        for given_padding, given_mask, out in cases:
            for as_float in (False, True):
                padded, masked = (
                    torch.zeros(m.shape).masked_fill(m, -torch.inf)
                    if as_float and m is not None
                    else m
                    for m in (given_padding, given_mask)
                )
                layer(query, key, key, key_padding_mask=padded, attn_mask=masked)
                allowed = only(watch).allowed
                assert allowed is not None
                expected = ~out[:EXAMPLES]
                assert torch.equal(allowed.expand(expected.shape), expected)

    def test_is_causal_is_what_the_mask_says(self) -> None:
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        watch, x = opened(layer), draw(N, S, WIDTH)
        mask = nn.Transformer.generate_square_subsequent_mask(S)
        layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
        allowed = only(watch).allowed
        assert allowed is not None
        assert torch.equal(allowed[0, 0], torch.ones(S, S).tril().bool())

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_without_batch(self, batch_first: bool) -> None:
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)
        watch, query, key = opened(layer), draw(T, WIDTH), draw(S, WIDTH)
        padding, mask = torch.arange(S) >= 4, torch.rand(HEADS, T, S) < 0.3
        layer(query, key, key, key_padding_mask=padding, attn_mask=mask)
        found = only(watch)
        assert found.keys is not None
        assert found.allowed is not None
        torch.testing.assert_close(found.keys, torch_keys(layer, key[None]).detach())
        assert torch.equal(found.allowed, ~(mask | padding)[None])

    def test_a_mask_that_adds_to_scores(self) -> None:
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        watch, x = opened(layer), draw(N, S, WIDTH)
        layer(x, x, x, attn_mask=torch.randn(S, S))
        assert only(watch).keys is None
        assert "adds to scores" in str(only(watch).reason)

    @pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
    def test_keys_of_its_own(self, option: str) -> None:
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **{option: True})
        watch, x = opened(layer), draw(N, S, WIDTH)
        layer(x, x, x)
        assert "adds keys of its own" in str(only(watch).reason)


class TestSparse:
    @pytest.mark.parametrize("score", ["dot", "additive"])
    def test_keys_and_masks(self, score: Any) -> None:
        layer = SparseAttention(WIDTH, HEADS, score=score, key_width=5)
        watch, query, key = opened(layer), draw(N, T, WIDTH), draw(N, S, 5)
        mask = torch.rand(N, HEADS, T, S) < 0.3
        padding = torch.arange(S) >= torch.tensor([[S], [3], [4]])
        layer(query, key, key, padding, attn_mask=mask, is_causal=True)
        found = only(watch)
        assert found.keys is not None
        assert found.allowed is not None
        expected = split(layer.key_projection(key))[:EXAMPLES].detach()
        torch.testing.assert_close(found.keys, expected)
        out = mask | padding[:, None, None] | torch.ones(T, S).triu(1).bool()
        assert torch.equal(found.allowed, ~out[:EXAMPLES])
        assert (found.direction is None) == (score == "dot")
        if found.direction is not None:
            assert layer.direction is not None
            assert torch.equal(found.direction, layer.direction.detach())

    def test_flat_masks(self) -> None:
        layer = SparseAttention(WIDTH, HEADS)
        watch, x = opened(layer), draw(N, S, WIDTH)
        mask = torch.rand(N * HEADS, S, S) < 0.3
        layer(x, x, x, attn_mask=mask)
        allowed = only(watch).allowed
        assert allowed is not None
        assert torch.equal(allowed, ~mask.reshape(N, HEADS, S, S)[:EXAMPLES])

    def test_maps(self) -> None:
        for name, by_size in (("softmax", False), ("spherical_softmax", True)):
            layer = SparseAttention(WIDTH, HEADS, map=name)
            watch, x = opened(layer), draw(N, S, WIDTH)
            layer(x, x, x)
            assert only(watch).by_size == by_size
        layer = SparseAttention(WIDTH, HEADS, score="additive", map="sparsegen_sq")
        assert "no check of additive" in str(only(opened(layer)).reason)
        layer = SparseAttention(WIDTH, HEADS)
        layer.map = nn.Identity()  # type: ignore[assignment]
        assert "order that Identity keeps" in str(only(opened(layer)).reason)
        layer.key_projection = nn.Sequential(layer.key_projection)  # type: ignore[assignment]
        assert "a Sequential" in str(only(opened(layer)).reason)


class TestWhen:
    def test_in_training_only(self) -> None:
        layer = SparseAttention(WIDTH, HEADS)
        watch, x = opened(layer), draw(N, S, WIDTH)
        layer.eval()
        layer(x, x, x)
        assert "no batch of training was seen yet" in str(only(watch).reason)
        layer.train()
        layer(x, x, x)
        layer.eval()
        layer(x, 2 * x, x)
        keys = only(watch).keys
        assert keys is not None
        torch.testing.assert_close(keys, split(layer.key_projection(x))[:EXAMPLES].detach())

    def test_the_last_call_counts(self) -> None:
        layer = SparseAttention(WIDTH, HEADS)
        watch, x = opened(layer), draw(N, S, WIDTH)
        layer(x, x, x)
        layer(x[:1], x[:1, :2], x[:1, :2])
        keys = only(watch).keys
        assert keys is not None
        assert keys.shape == (1, HEADS, 2, WIDTH // HEADS)

    def test_a_call_that_fails_is_the_layers_own(self) -> None:
        layer = SparseAttention(WIDTH, HEADS)
        opened(layer)
        with pytest.raises(TypeError, match="missing"):
            layer(draw(N, S, WIDTH))
        with pytest.raises(UnargError, match="have shapes"):
            layer(draw(S), draw(S), draw(S))

    def test_nan(self) -> None:
        layer = SparseAttention(WIDTH, HEADS)
        watch, x = opened(layer), draw(N, S, WIDTH)
        layer(x, x, x)
        with torch.no_grad():
            layer.key_projection.weight[0, 0] = torch.nan
        assert "NaN or inf" in str(only(watch).reason)

    def test_closed_and_forgotten(self) -> None:
        model = nn.ModuleDict({"a": SparseAttention(WIDTH), "b": nn.MultiheadAttention(WIDTH, 1)})
        watch, gone = opened(model), weakref.ref(model)
        assert hooks(model) == 2
        watch.open(model)
        assert hooks(model) == 2
        watch.pause()
        assert hooks(model) == 0
        watch.pause()
        watch.resume()
        watch.resume()
        assert hooks(model) == 2
        watch.close()
        watch.close()
        watch.resume()
        assert hooks(model) == 0
        del model
        gc.collect()
        assert gone() is None

    def test_copies_are_not_watched(self) -> None:
        layer = SparseAttention(WIDTH, HEADS)
        watch, x = opened(layer), draw(N, S, WIDTH)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            other(x, x, x)
        assert only(watch).keys is None
        for same in (copy.deepcopy(watch), pickle.loads(pickle.dumps(watch))):
            assert same.copy() == ()
            same.open(layer)
            same.close()

    def test_compiled_and_torch_func(self) -> None:
        torch._dynamo.reset()
        layer = SparseAttention(WIDTH, HEADS)
        watch, x = opened(layer), draw(N, S, WIDTH)
        compiled = torch.compile(lambda x: layer(x, x, x)[0], backend="eager", fullgraph=True)
        compiled(x).sum().backward()
        assert only(watch).keys is None
        torch.func.grad(lambda x: layer(x, x, x)[0].sum())(x)
        torch.func.vmap(lambda x: layer(x[None], x[None], x[None])[0])(x)
        batch = only(watch)
        assert batch.keys is None or batch.keys.isfinite().all()


class TestPaths:
    def test_which(self) -> None:
        model = nn.ModuleDict(
            {
                "a": SparseAttention(WIDTH),
                "b": nn.MultiheadAttention(WIDTH, 1),
                "c": nn.Linear(2, 3),
            }
        )
        assert [batch.layer for batch in opened(model).copy()] == ["a", "b"]
        assert [batch.layer for batch in opened(model, "b").copy()] == ["b"]
        for paths, told in (((), "the model has none"), (("c",), "'c' is none")):
            with pytest.raises(UnargError, match=f"attention layers are asked for, and {told}"):
                opened(nn.Sequential(nn.Linear(2, 2)) if not paths else model, *paths)
        with pytest.raises(LayerError):
            opened(model, "no.such")

    @pytest.mark.parametrize("value", [3, [3], {"a": 1}])
    def test_settings(self, value: Any) -> None:
        with pytest.raises(UnargError, match="attention is"):
            Monitor(attention=value)
