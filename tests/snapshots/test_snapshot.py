"""Copies are what the model uses now, and taking them changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from tests.snapshots.models import Model
from unarg_callback.errors import LayerError
from unarg_callback.snapshots.find import find_layer
from unarg_callback.snapshots.snapshot import take_snapshot


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

    def test_orthogonal(self) -> None:
        layer: Any = parametrizations.orthogonal(nn.Linear(2, 5))
        assert torch.equal(take_snapshot(find_layer(layer, "")).weight, layer.weight)

    def test_what_is_computed_is_not_cached_for_the_training(self) -> None:
        layer: Any = parametrizations.weight_norm(nn.Linear(2, 5))
        found = find_layer(layer, "")
        with parametrize.cached():
            take_snapshot(found)
            assert layer.weight.requires_grad

    def test_a_random_parametrisation_draws_nothing(self) -> None:
        class Noise(nn.Module):
            def forward(self, weight: Tensor) -> Tensor:
                noise = torch.rand(())
                return weight + noise if self.training else weight

        layer = nn.Linear(2, 5)
        plain = layer.weight.detach().clone()
        parametrize.register_parametrization(layer, "weight", Noise())
        torch.manual_seed(0)
        expected = torch.rand(())
        torch.manual_seed(0)
        assert torch.equal(take_snapshot(find_layer(layer, "")).weight, plain)
        assert torch.rand(()) == expected

    def test_a_tied_weight(self) -> None:
        model = Model()
        model.decoder.generator.weight = model.decoder.embedding.weight
        snapshot = take_snapshot(find_layer(model))
        assert torch.equal(snapshot.weight, model.decoder.embedding.weight)
        assert snapshot.weight.data_ptr() != model.decoder.embedding.weight.data_ptr()

    def test_inside_inference_mode_it_is_an_ordinary_tensor(self) -> None:
        with torch.inference_mode():
            snapshot = take_snapshot(find_layer(Model()))
        assert not snapshot.weight.is_inference()
        snapshot.weight.add_(1.0)

    def test_gradients_go_on(self) -> None:
        model = Model()
        loss = model(torch.ones(1, 6)).sum()
        take_snapshot(find_layer(model))
        loss.backward()
        assert model.decoder.generator.weight.grad is not None

    def test_classes_beyond_the_names_are_named_by_their_id(self) -> None:
        snapshot = take_snapshot(find_layer(nn.Linear(1, 4), ""), names=["a", "b"])
        assert snapshot.names == ("a", "b", "class 2", "class 3")

    def test_more_names_than_classes_are_refused(self) -> None:
        with pytest.raises(LayerError, match="4 names for 3 classes"):
            take_snapshot(find_layer(nn.Linear(1, 3), ""), names=["a", "b", "c", "d"])
        with pytest.raises(LayerError, match="names is one string"):
            take_snapshot(find_layer(nn.Linear(1, 3), ""), names="ab")
