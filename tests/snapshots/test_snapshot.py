"""Layers are found in whatever a model is wrapped in, and copied without disturbing it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from unarg_callback.errors import LayerError
from unarg_callback.snapshots.snapshot import find_layer, take_snapshot


class Decoder(nn.Module):
    def __init__(self, dim: int = 4, classes: int = 9) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, dim)
        self.hidden = nn.Linear(dim, dim)
        self.generator: Any = nn.Linear(dim, classes)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.decoder = Decoder()


class TestFind:
    def test_the_only_wide_linear_layer_is_the_default(self) -> None:
        model = Model()
        found = find_layer(model)
        assert found.path == "decoder.generator"
        assert found.module is model.decoder.generator
        assert found.classes == 9

    def test_by_path(self) -> None:
        model = Model()
        assert find_layer(model, "decoder.generator").module is model.decoder.generator
        assert find_layer(model.decoder.generator, "").module is model.decoder.generator

    def test_a_subclass_of_linear_counts(self) -> None:
        class Head(nn.Linear):
            pass

        assert find_layer(nn.Sequential(Head(2, 5))).path == "0"

    def test_an_embedding_is_a_layer_when_it_is_named(self) -> None:
        model = Model()
        found = find_layer(model, "decoder.embedding")
        snapshot = take_snapshot(found)
        assert torch.equal(snapshot.weight, model.decoder.embedding.weight)
        assert snapshot.bias is None

    def test_a_layer_tied_to_an_embedding_is_one_layer(self) -> None:
        model = Model()
        model.decoder.generator.weight = model.decoder.embedding.weight
        assert find_layer(model).path == "decoder.generator"

    def test_a_layer_under_two_names_is_one_layer(self) -> None:
        model = Model()
        model.decoder.alias = model.decoder.generator
        assert find_layer(model).path == "decoder.generator"

    def test_two_layers_that_share_weight_and_bias_are_one_layer(self) -> None:
        model = Model()
        twin = nn.Linear(4, 9)
        twin.weight, twin.bias = model.decoder.generator.weight, model.decoder.generator.bias
        model.decoder.twin = twin
        assert find_layer(model).path == "decoder.generator"

    def test_two_layers_that_share_only_the_weight_are_two(self) -> None:
        model = Model()
        twin = nn.Linear(4, 9)
        twin.weight = model.decoder.generator.weight
        model.decoder.twin = twin
        with pytest.raises(LayerError, match="2 linear layers"):
            find_layer(model)


class TestWrappers:
    @pytest.mark.parametrize("path", [None, "decoder.generator", "decoder.generator._orig_mod"])
    def test_compiled_layer(self, path: str | None) -> None:
        model = Model()
        plain = model.decoder.generator
        model.decoder.generator = torch.compile(plain)
        found = find_layer(model, path)
        assert (found.path, found.module) == ("decoder.generator", plain)

    @pytest.mark.parametrize("path", [None, "decoder.generator", "_orig_mod.decoder.generator"])
    def test_compiled_model(self, path: str | None) -> None:
        model = Model()
        compiled: Any = torch.compile(model)
        found = find_layer(compiled, path)
        assert (found.path, found.module) == ("decoder.generator", model.decoder.generator)

    @pytest.mark.parametrize("path", [None, "decoder.generator"])
    def test_data_parallel(self, path: str | None) -> None:
        model = Model()
        found = find_layer(nn.DataParallel(model), path)
        assert (found.path, found.module) == ("decoder.generator", model.decoder.generator)

    def test_a_module_that_is_really_called_module(self) -> None:
        model = nn.Module()
        model.module = Model()
        assert find_layer(model).path == "module.decoder.generator"


class TestErrors:
    def test_several_wide_layers_are_listed_widest_first(self) -> None:
        model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 50), nn.Linear(50, 2))
        expected = r"2 linear layers .* found '1' \(4 -> 50\), '0' \(2 -> 4\)$"
        with pytest.raises(LayerError, match=expected):
            find_layer(model)

    def test_no_wide_layer_lists_the_others(self) -> None:
        with pytest.raises(LayerError, match=r"no linear layer has .* found '0' \(4 -> 2\)"):
            find_layer(nn.Sequential(nn.Linear(4, 2)))

    def test_no_linear_layer_at_all(self) -> None:
        with pytest.raises(LayerError, match="the model has no linear layer"):
            find_layer(nn.Sequential(nn.ReLU()))

    def test_long_lists_are_cut(self) -> None:
        with pytest.raises(LayerError, match="and 12 more"):
            find_layer(nn.Sequential(*(nn.Linear(2, 3) for _ in range(20))))

    def test_a_wrong_name_says_where_it_went_wrong(self) -> None:
        with pytest.raises(LayerError, match="'decoder' has no attribute 'head'.*generator"):
            find_layer(Model(), "decoder.head.linear")
        with pytest.raises(LayerError, match=r"the model \(Model\) has no attribute 'x'"):
            find_layer(Model(), "x")

    def test_a_parameter_is_not_a_layer(self) -> None:
        with pytest.raises(LayerError, match="is a Parameter; .*'decoder.generator'"):
            find_layer(Model(), "decoder.generator.weight")

    def test_a_method_is_not_a_layer(self) -> None:
        with pytest.raises(LayerError, match="is a method; expected a module"):
            find_layer(Model(), "decoder.forward")

    @pytest.mark.parametrize(
        ("module", "message"),
        [
            (nn.Conv2d(3, 8, 3), r"weight of shape \(8, 3, 3, 3\)"),
            (nn.LayerNorm(4), r"weight of shape \(4,\)"),
            (nn.ReLU(), "has no weight"),
            (nn.Sequential(nn.Linear(2, 3)), "has no weight .*linear layers 0"),
            (nn.LazyLinear(5), "not initialised"),
            (nn.Linear(2, 3, device="meta"), "meta device"),
            (nn.LayerNorm(4, elementwise_affine=False), "weight that is a NoneType"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_what_is_no_output_layer_is_refused(self, module: nn.Module, message: str) -> None:
        with pytest.raises(LayerError, match=message):
            find_layer(nn.ModuleDict({"head": module}), "head")

    def test_a_lazy_layer_is_not_skipped_by_the_default(self) -> None:
        with pytest.raises(LayerError, match="'1'.*not initialised"):
            find_layer(nn.Sequential(nn.Linear(2, 5), nn.LazyLinear(5)))

    def test_integer_weights_are_quantised(self) -> None:
        layer = nn.Linear(2, 5)
        layer.weight = nn.Parameter(torch.ones(5, 2, dtype=torch.int8), requires_grad=False)
        with pytest.raises(LayerError, match="int8, quantised"):
            find_layer(layer, "")

    def test_a_weight_that_is_a_method_is_quantised(self) -> None:
        class Quantised(nn.Module):
            def weight(self) -> torch.Tensor:
                return torch.ones(5, 2)

        with pytest.raises(LayerError, match="is quantised"):
            find_layer(Quantised(), "")

    def test_a_tensor_subclass_is_refused(self) -> None:
        class Packed(torch.Tensor):
            pass

        layer = nn.Linear(2, 5)
        layer.weight = nn.Parameter(torch.ones(5, 2).as_subclass(Packed))
        with pytest.raises(LayerError, match="Packed, quantised or packed"):
            find_layer(layer, "")

    def test_an_adapter_is_refused(self) -> None:
        layer = nn.Linear(2, 5)
        layer.lora_A = nn.Linear(2, 1)
        with pytest.raises(LayerError, match="adapter"):
            find_layer(layer, "")

    def test_a_weight_from_a_forward_hook_is_refused(self) -> None:
        with pytest.warns(FutureWarning):
            layer = nn.utils.weight_norm(nn.Linear(2, 5))
        with pytest.raises(LayerError, match="hook recomputes"):
            find_layer(layer, "")


class TestSnapshot:
    def test_it_is_a_copy(self) -> None:
        model = Model()
        layer = model.decoder.generator
        snapshot = take_snapshot(find_layer(model))
        before = layer.weight.detach().clone()
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.zero_()
        assert torch.equal(snapshot.weight, before)
        assert snapshot.bias is not None
        assert snapshot.bias.any()
        assert not snapshot.weight.requires_grad

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_dtype_is_kept(self, dtype: torch.dtype) -> None:
        snapshot = take_snapshot(find_layer(nn.Linear(2, 5, dtype=dtype), ""))
        assert snapshot.weight.dtype == dtype
        assert snapshot.bias is not None
        assert snapshot.bias.dtype == dtype

    def test_names_and_exclusions_are_passed_on(self) -> None:
        snapshot = take_snapshot(
            find_layer(nn.Linear(1, 3), ""), names=["a", "b", "c"], excluded=[2]
        )
        assert snapshot.names == ("a", "b", "c")
        assert snapshot.excluded == (2,)

    def test_no_bias(self) -> None:
        assert take_snapshot(find_layer(nn.Linear(2, 5, bias=False), "")).bias is None

    def test_a_bias_in_a_buffer(self) -> None:
        layer = nn.Embedding(5, 2)
        layer.register_buffer("bias", torch.arange(5.0))
        bias = take_snapshot(find_layer(layer, "")).bias
        assert bias is not None
        assert bias.tolist() == [0, 1, 2, 3, 4]

    def test_weight_norm_gives_the_weight_that_is_used(self) -> None:
        layer: Any = parametrizations.weight_norm(nn.Linear(2, 5))
        with torch.no_grad():
            layer.parametrizations.weight.original0.mul_(3.0)
        assert torch.equal(take_snapshot(find_layer(layer, "")).weight, layer.weight)

    def test_spectral_norm_is_read_without_a_power_iteration(self) -> None:
        layer: Any = parametrizations.spectral_norm(nn.Linear(2, 5))
        model = nn.Sequential(layer)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        found = find_layer(model)
        snapshot = take_snapshot(found)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert all(module.training for module in model.modules())
        model.eval()
        assert torch.equal(snapshot.weight, layer.weight)
