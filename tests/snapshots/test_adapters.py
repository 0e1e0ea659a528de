"""LoRA adapters of peft are merged on the fly, as peft itself would merge them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.snapshots.models import Model, seeded
from unarg_callback.errors import LayerError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.snapshots.find import find_layer
from unarg_callback.snapshots.snapshot import take_snapshot

peft = pytest.importorskip("peft")

HEAD = ["decoder.generator"]


def lora(**options: Any) -> Any:
    settings = {"target_modules": HEAD, "r": 2, "init_lora_weights": False, **options}
    return peft.LoraConfig(**settings)


def adapted(config: Any, dtype: torch.dtype = torch.float32, *, bias: bool = True) -> Any:
    model = seeded()
    model.decoder.generator = nn.Linear(4, 9, bias=bias)
    model = peft.get_peft_model(model.to(dtype), config, autocast_adapter_dtype=False)
    for name, value in model.named_parameters():
        if "lora_B" in name and name.endswith("bias"):
            nn.init.normal_(value)
    return model


def snapshot_of(model: nn.Module) -> OutputLayer:
    return take_snapshot(find_layer(model, "decoder.generator"))


def assert_as_peft_merges(model: Any) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    snapshot = snapshot_of(model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    head = copy.deepcopy(model).merge_and_unload().decoder.generator
    assert torch.equal(snapshot.weight, head.weight)
    assert snapshot.weight.dtype == head.weight.dtype
    if head.bias is None:
        assert snapshot.bias is None
    else:
        assert snapshot.bias is not None
        assert torch.equal(snapshot.bias, head.bias)


class TestPlaces:
    @pytest.mark.parametrize(
        "path", [None, "decoder.generator", "base_model.model.decoder.generator"]
    )
    def test_the_path_is_that_of_the_model_without_adapters(self, path: str | None) -> None:
        model = adapted(lora())
        found = find_layer(model, path)
        assert found.path == "decoder.generator"
        assert found.module is model.base_model.model.decoder.generator
        assert (found.classes, found.features) == (9, 4)

    def test_by_the_module_that_was_there_before(self) -> None:
        base = seeded()
        head = base.decoder.generator
        model = peft.get_peft_model(base, lora())
        found = find_layer(model, head)
        assert found.path == "decoder.generator"
        assert torch.equal(take_snapshot(found).weight, snapshot_of(model).weight)

    def test_compiled(self) -> None:
        model: Any = torch.compile(adapted(lora()))
        assert find_layer(model).path == "decoder.generator"


class TestMerged:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("use_dora", [False, True])
    def test_weight(self, dtype: torch.dtype, use_dora: bool) -> None:
        assert_as_peft_merges(adapted(lora(use_dora=use_dora), dtype))

    @pytest.mark.parametrize(
        "options",
        [
            {"use_rslora": True},
            {"lora_alpha": 3},
            {"lora_dropout": 0.5},
            {"lora_bias": True},
            {"use_dora": True, "lora_alpha": 3},
        ],
        ids=str,
    )
    def test_options(self, options: dict[str, Any]) -> None:
        assert_as_peft_merges(adapted(lora(**options)))

    def test_no_bias(self) -> None:
        assert_as_peft_merges(adapted(lora(), bias=False))

    def test_adapters_in_another_dtype(self) -> None:
        model = adapted(lora())
        model.base_model.model.decoder.generator.base_layer.to(torch.bfloat16)
        assert_as_peft_merges(model)

    def test_it_is_what_the_forward_pass_computes(self) -> None:
        model = adapted(lora(use_dora=True), torch.float64).eval()
        snapshot = snapshot_of(model)
        inputs = torch.randn(3, 4, dtype=torch.float64)
        assert snapshot.bias is not None
        expected = model.base_model.model.decoder.generator(inputs)
        assert torch.allclose(inputs @ snapshot.weight.T + snapshot.bias, expected)

    def test_a_bias_of_the_adapter_alone(self) -> None:
        model = adapted(lora(lora_bias=True), torch.float64, bias=False).eval()
        snapshot = snapshot_of(model)
        assert snapshot.bias is not None
        expected = model.base_model.model.decoder.generator(torch.zeros(1, 4, dtype=torch.float64))
        assert torch.allclose(snapshot.bias, expected[0])

    def test_several_active_adapters(self) -> None:
        model = adapted(lora())
        model.add_adapter("other", lora(r=1))
        model.base_model.set_adapter(["default", "other"])
        both = snapshot_of(model)
        head = copy.deepcopy(model).merge_and_unload(adapter_names=["default", "other"])
        assert torch.equal(both.weight, head.decoder.generator.weight)
        model.set_adapter("other")
        assert not torch.equal(snapshot_of(model).weight, both.weight)
        assert_as_peft_merges(model)

    def test_one_that_is_merged_is_not_merged_again(self) -> None:
        model = adapted(lora())
        expected = snapshot_of(model)
        model.merge_adapter()
        assert torch.equal(snapshot_of(model).weight, expected.weight)

    def test_one_that_is_disabled_is_left_out(self) -> None:
        model = adapted(lora())
        with model.disable_adapter():
            base = model.base_model.model.decoder.generator.base_layer
            assert torch.equal(snapshot_of(model).weight, base.weight)

    def test_under_autocast_it_is_merged_in_full_precision(self) -> None:
        model = adapted(lora())
        expected = snapshot_of(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(snapshot_of(model).weight, expected.weight)

    def test_a_head_tied_to_the_embedding(self) -> None:
        base = seeded()
        base.decoder.generator.weight = base.decoder.embedding.weight
        model = peft.get_peft_model(base, lora())
        embedding = base.decoder.embedding.weight.clone()
        snapshot = snapshot_of(model)
        assert not torch.equal(snapshot.weight, embedding)
        assert torch.equal(base.decoder.embedding.weight, embedding)
        found = find_layer(model, "decoder.embedding")
        assert torch.equal(take_snapshot(found).weight, embedding)


class TestModulesToSave:
    def config(self) -> Any:
        return lora(target_modules=["decoder.hidden"], modules_to_save=["generator"])

    def test_the_active_copy_is_taken(self) -> None:
        model = adapted(self.config())
        wrapper = model.base_model.model.decoder.generator
        copied = wrapper.modules_to_save["default"]
        nn.init.normal_(copied.weight)
        assert torch.equal(snapshot_of(model).weight, copied.weight)
        for layer in (None, wrapper, wrapper.original_module):
            found = find_layer(model, layer)
            assert (found.path, found.module) == ("decoder.generator", copied)

    def test_where_adapters_are_disabled_the_original_is_taken(self) -> None:
        model = adapted(self.config())
        wrapper = model.base_model.model.decoder.generator
        with model.disable_adapter():
            original: Any = wrapper.original_module
            assert find_layer(model).module is original

    def test_another_adapter_has_another_copy(self) -> None:
        model = adapted(self.config())
        model.add_adapter("other", self.config())
        model.set_adapter("other")
        wrapper = model.base_model.model.decoder.generator
        assert find_layer(model).module is wrapper.modules_to_save["other"]


class TestRefused:
    @pytest.mark.parametrize(
        ("config", "message"),
        [
            (peft.IA3Config(target_modules=HEAD, feedforward_modules=[]), r"ia3\.layer\.Linear"),
            (peft.LoHaConfig(target_modules=HEAD), r"loha\.layer\.Linear"),
        ],
        ids=["IA3", "LoHa"],
    )
    @pytest.mark.parametrize("path", [None, "decoder.generator"])
    def test_other_adapters(self, config: Any, message: str, path: str | None) -> None:
        with pytest.raises(LayerError, match=f"can't be merged here .*{message}.*merge it first"):
            find_layer(peft.get_peft_model(Model(), config), path)

    def test_an_adapter_on_an_embedding(self) -> None:
        model = peft.get_peft_model(Model(), lora(target_modules=["decoder.embedding"]))
        with pytest.raises(LayerError, match="an output layer tied to it doesn't use"):
            find_layer(model, "decoder.embedding")

    def test_trainable_tokens(self) -> None:
        config = lora(target_modules=["decoder.hidden"], trainable_token_indices={"embedding": [1]})
        model = peft.get_peft_model(Model(), config)
        with pytest.raises(LayerError, match="carries an adapter"):
            find_layer(model, "decoder.embedding")

    def test_dora_beside_another_adapter(self) -> None:
        model = adapted(lora(use_dora=True))
        model.add_adapter("other", lora())
        model.base_model.set_adapter(["default", "other"])
        with pytest.raises(LayerError, match="DoRA beside another adapter"):
            find_layer(model)

    def test_disabled_while_merged(self) -> None:
        model = adapted(lora())
        model.merge_adapter()
        with model.disable_adapter(), pytest.raises(LayerError, match="unmerge it first"):
            find_layer(model)

    def test_a_base_layer_that_can_not_be_read(self) -> None:
        model = adapted(lora())
        base = model.base_model.model.decoder.generator.base_layer
        base.weight = nn.Parameter(torch.ones(9, 4, dtype=torch.int8), requires_grad=False)
        with pytest.raises(LayerError, match="torch.int8, quantised"):
            find_layer(model)
