"""Biases outside the layer: by path, and those that Marian and BART have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.snapshots.models import Model
from unarg_callback.errors import LayerError
from unarg_callback.snapshots.find import find_layer
from unarg_callback.snapshots.snapshot import take_snapshot


def bias_of(model: nn.Module, layer: str | None = None, bias: str | None = None) -> Tensor:
    found = take_snapshot(find_layer(model, layer, bias=bias)).bias
    assert found is not None
    return found


class TestByPath:
    @pytest.mark.parametrize("shape", [(9,), (1, 9), (9, 1)])
    @pytest.mark.parametrize("kind", ["parameter", "buffer"])
    def test_it_replaces_a_missing_one(self, shape: tuple[int, ...], kind: str) -> None:
        model = Model()
        model.decoder.generator = nn.Linear(4, 9, bias=False)
        values = torch.arange(9.0).reshape(shape)
        if kind == "buffer":
            model.decoder.register_buffer("shift", values)
        else:
            model.decoder.shift = nn.Parameter(values)
        found = find_layer(model, bias="decoder.shift")
        assert found.bias_path == "decoder.shift"
        bias = bias_of(model, None, "decoder.shift")
        assert bias.tolist() == list(range(9))
        assert bias.dtype == torch.float32

    def test_it_is_added_to_the_layers_own_in_float64(self) -> None:
        model = Model()
        model.shift = nn.Parameter(torch.randn(1, 9))
        own = model.decoder.generator.bias.detach()
        bias = bias_of(model, None, "shift")
        assert torch.equal(bias, own.double() + model.shift.detach().double().reshape(-1))

    @pytest.mark.parametrize("tie", ["parameter", "view"])
    def test_the_layers_own_bias_counts_once(self, tie: str) -> None:
        model = Model()
        own = model.decoder.generator.bias
        if tie == "parameter":
            model.shift = own
        else:
            model.register_buffer("shift", own.detach().view(1, 9))
        assert torch.equal(bias_of(model, None, "shift"), own)

    def test_through_wrappers(self) -> None:
        model = Model()
        model.register_buffer("shift", torch.ones(9))
        wrapped: Any = nn.DataParallel(torch.compile(model))
        assert find_layer(wrapped, bias="shift").bias_path == "shift"
        assert find_layer(wrapped, bias="module._orig_mod.shift").bias_path == "shift"

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("nothing", r"no bias 'nothing': the model \(Model\) has no attribute 'nothing'$"),
            ("decoder", "bias 'decoder' is a Decoder; expected a tensor"),
            ("encoder.bias", r"bias 'encoder.bias' has shape \(4,\); expected \(9,\)"),
            ("ids", "bias 'ids' has a value of dtype torch.int64"),
        ],
    )
    def test_what_is_no_bias_is_refused(self, path: str, message: str) -> None:
        model = Model()
        model.register_buffer("ids", torch.arange(9))
        with pytest.raises(LayerError, match=message):
            find_layer(model, bias=path)


class TestFinalLogitsBias:
    @pytest.mark.parametrize("owner", ["", "decoder"])
    def test_it_is_found_on_the_way_up(self, owner: str) -> None:
        model = Model()
        model.decoder.generator = nn.Linear(4, 9, bias=False)
        holder = model.get_submodule(owner)
        holder.register_buffer("final_logits_bias", torch.arange(9.0).reshape(1, 9))
        found = find_layer(model)
        assert found.bias_path == f"{owner}.final_logits_bias".lstrip(".")
        assert bias_of(model).tolist() == list(range(9))

    def test_the_layer_may_be_the_embedding_tied_to_it(self) -> None:
        model = Model()
        model.register_buffer("final_logits_bias", torch.ones(1, 9))
        assert bias_of(model, "decoder.embedding").tolist() == [1.0] * 9

    def test_one_of_another_size_is_not_it(self) -> None:
        model = Model()
        model.register_buffer("final_logits_bias", torch.ones(1, 8))
        assert find_layer(model).bias_path is None

    def test_one_that_was_given_comes_first(self) -> None:
        model = Model()
        model.register_buffer("final_logits_bias", torch.ones(1, 9))
        model.register_buffer("shift", torch.zeros(9))
        assert find_layer(model, bias="shift").bias_path == "shift"

    def test_not_for_a_module_outside_nor_a_function(self) -> None:
        model = Model()
        model.register_buffer("final_logits_bias", torch.ones(1, 9))
        assert find_layer(model, nn.Linear(4, 9)).bias_path is None
        assert find_layer(model, lambda one: one.decoder.generator.weight).bias_path is None


def marian() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.MarianConfig(
        vocab_size=23,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        pad_token_id=22,
        decoder_start_token_id=22,
    )
    return transformers.MarianMTModel(config)


class TestTransformers:
    @pytest.mark.parametrize("layer", ["lm_head", "model.shared"])
    def test_marian(self, layer: str) -> None:
        model = marian()
        model.final_logits_bias.copy_(torch.randn(1, 23))
        found = find_layer(model, layer)
        assert found.bias_path == "final_logits_bias"
        snapshot = take_snapshot(found)
        assert torch.equal(snapshot.weight, model.lm_head.weight)
        assert snapshot.bias is not None
        assert torch.equal(snapshot.bias, model.final_logits_bias[0])

    def test_marian_inside_another_module(self) -> None:
        model = marian()
        holder = nn.ModuleDict({"translator": model})
        found = find_layer(holder, model.get_output_embeddings())
        assert found.path == "translator.lm_head"
        assert found.bias_path == "translator.final_logits_bias"

    def test_bert_names_one_bias_twice(self) -> None:
        transformers = pytest.importorskip("transformers")
        config = transformers.BertConfig(
            vocab_size=23,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
        )
        model = transformers.BertForMaskedLM(config)
        with torch.no_grad():
            model.cls.predictions.bias.normal_()
        bias = bias_of(model, "cls.predictions.decoder", "cls.predictions.bias")
        assert torch.equal(bias, model.cls.predictions.bias)
