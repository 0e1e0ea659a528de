"""Layers are found by path, by module and by themselves, in whatever a model is wrapped in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tests.snapshots.models import Model
from unarg_callback.errors import LayerError
from unarg_callback.snapshots.find import find_layer, refind
from unarg_callback.snapshots.snapshot import take_snapshot


class TestFind:
    def test_the_only_wide_linear_layer_is_the_default(self) -> None:
        model = Model()
        found = find_layer(model)
        assert found.path == "decoder.generator"
        assert found.module is model.decoder.generator
        assert found.classes == 9

    def test_by_path(self) -> None:
        model = Model()
        found = find_layer(model, "decoder.generator")
        assert found.module is model.decoder.generator
        head: Any = model.decoder.generator
        assert find_layer(head, "").module is head

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

    @pytest.mark.parametrize("path", [None, "decoder.generator"])
    def test_checkpointed_activations(self, path: str | None) -> None:
        model = Model()
        plain = model.decoder.generator
        model.decoder.generator = checkpoint_wrapper(plain)
        found = find_layer(model, path)
        assert (found.path, found.module) == ("decoder.generator", plain)

    def test_compiled_in_place(self) -> None:
        model = Model()
        model.decoder.generator.compile()
        assert find_layer(model).module is model.decoder.generator

    def test_a_wrapped_model_with_a_child_called_module(self) -> None:
        model = nn.Module()
        model.module = Model()
        found = find_layer(nn.DataParallel(model))
        assert found.path == "module.decoder.generator"
        assert refind(found, nn.DataParallel(model)).module is found.module
        outer = find_layer(nn.DataParallel(model), "module.module.decoder.generator")
        assert outer.path == "module.decoder.generator"

    def test_a_name_means_what_the_model_calls_so_before_what_a_wrapper_does(self) -> None:
        model = Model()
        model.module = Model()
        wrapped = nn.DataParallel(model)
        for path, expected in (
            ("module.decoder.generator", model.module.decoder.generator),
            ("decoder.generator", model.decoder.generator),
        ):
            found = find_layer(wrapped, path)
            assert (found.path, found.module) == (path, expected)


class TestModules:
    @pytest.mark.parametrize("wrapped", [False, True])
    def test_a_module_is_found_by_identity(self, wrapped: bool) -> None:
        model = Model()
        whole: Any = nn.DataParallel(torch.compile(model)) if wrapped else model
        found = find_layer(whole, model.decoder.generator)
        assert (found.path, found.module) == ("decoder.generator", model.decoder.generator)
        assert found.inside

    def test_a_wrapped_module_is_found(self) -> None:
        model = Model()
        plain = model.decoder.generator
        compiled: Any = torch.compile(plain)
        assert find_layer(model, compiled).path == "decoder.generator"
        model.decoder.generator = compiled
        assert find_layer(model, plain).path == "decoder.generator"
        assert find_layer(model, compiled).module is plain

    def test_the_model_itself(self) -> None:
        head = nn.Linear(2, 5)
        assert find_layer(head, head).path == ""

    def test_a_module_outside_the_model(self) -> None:
        head = nn.Linear(2, 5)
        found = find_layer(Model(), head)
        assert (found.path, found.module, found.inside) == ("Linear", head, False)
        assert refind(found, Model()).module is head

    def test_what_is_neither_is_refused(self) -> None:
        wrong: Any = 3
        with pytest.raises(LayerError, match="layer is a int; expected an attribute path, a mod"):
            find_layer(Model(), wrong)


class TestReplaced:
    @pytest.mark.parametrize("by", ["path", "module"])
    def test_a_layer_that_was_replaced_by_a_bigger_one(self, by: str) -> None:
        model = Model()
        found = find_layer(model, "decoder.generator" if by == "path" else model.decoder.generator)
        model.decoder.generator = nn.Linear(4, 11)
        again = refind(found, model)
        assert again.module is model.decoder.generator
        assert (again.path, again.classes) == ("decoder.generator", 11)
        assert take_snapshot(again).classes == 11

    def test_rows_that_were_added_in_place(self) -> None:
        model = Model()
        found = find_layer(model)
        model.decoder.generator.weight = nn.Parameter(torch.zeros(12, 4))
        model.decoder.generator.bias = nn.Parameter(torch.zeros(12))
        assert (found.classes, found.features) == (12, 4)
        assert take_snapshot(found).classes == 12

    def test_a_layer_that_is_gone(self) -> None:
        model = Model()
        found = find_layer(model)
        del model.decoder.generator
        with pytest.raises(LayerError, match="'decoder' has no attribute 'generator'"):
            refind(found, model)

    def test_a_bias_is_found_again(self) -> None:
        model = Model()
        model.register_buffer("shift", torch.ones(9))
        found = find_layer(model, bias="shift")
        model.decoder.generator = nn.Linear(4, 11, bias=False)
        model.register_buffer("shift", torch.arange(11.0))
        bias = take_snapshot(refind(found, model)).bias
        assert bias is not None
        assert bias.tolist() == list(range(11))

    def test_a_layer_made_later(self) -> None:
        class Late(nn.Module):
            def configure_model(self) -> None:
                self.head = nn.Linear(2, 5)

        model = Late()
        with pytest.raises(LayerError, match="no attribute 'head'"):
            find_layer(model, "head")
        model.configure_model()
        assert find_layer(model, "head").classes == 5
