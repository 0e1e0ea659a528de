"""What can't be read as it is used is refused with a message that says why."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.snapshots.models import Model
from unarg_callback.errors import LayerError
from unarg_callback.snapshots.find import find_layer


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
            (nn.Conv2d(3, 8, 3), "is a convolution"),
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

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            (torch.ones(5, 2).to_sparse(), r"sparse weight \(torch.sparse_coo\)"),
            (torch.ones(5, 2, dtype=torch.complex64), "dtype torch.complex64; expected real"),
            (torch.ones(5, 2, dtype=torch.float8_e4m3fn), "float8_e4m3fn, quantised"),
            (torch.ones(5, 2, dtype=torch.uint8), "uint8, quantised"),
        ],
        ids=lambda value: str(value.dtype) if isinstance(value, torch.Tensor) else "",
    )
    def test_weights_that_are_no_dense_real_numbers(
        self, weight: torch.Tensor, message: str
    ) -> None:
        layer = nn.Linear(2, 5)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        with pytest.raises(LayerError, match=message):
            find_layer(layer, "")

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
    def test_dynamic_quantisation(self) -> None:
        quantised = torch.ao.quantization.quantize_dynamic(Model(), {nn.Linear})
        with pytest.raises(LayerError, match="is quantised; expected floating-point"):
            find_layer(quantised, "decoder.generator")

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_quantisation_aware_training(self) -> None:
        config = torch.ao.quantization.get_default_qat_qconfig("x86")
        layer = torch.ao.nn.qat.Linear(2, 5, qconfig=config)
        with pytest.raises(LayerError, match="quantises its weight in the forward pass"):
            find_layer(layer, "")

    def test_a_pruned_layer_is_refused(self) -> None:
        layer = nn.Linear(2, 5)
        prune.l1_unstructured(layer, "weight", amount=2)
        with pytest.raises(LayerError, match="hook recomputes"):
            find_layer(layer, "")

    def test_adapters_as_parameters_are_refused(self) -> None:
        layer = nn.Linear(2, 5)
        layer.lora_A = nn.Parameter(torch.zeros(1, 2))
        with pytest.raises(LayerError, match="adapter"):
            find_layer(layer, "")

    @pytest.mark.parametrize("mark", ["ds_numel", "ds_id"])
    def test_zero_stage_3_is_refused(self, mark: str) -> None:
        layer = nn.Linear(2, 5)
        layer.weight = nn.Parameter(torch.empty(0))
        setattr(layer.weight, mark, 10)
        with pytest.raises(LayerError, match="DeepSpeed ZeRO stage 3 .* use stage 2"):
            find_layer(layer, "")

    def test_memory_that_was_freed_is_not_read(self) -> None:
        layer = nn.Linear(2, 5)
        layer.weight.untyped_storage().resize_(0)
        with pytest.raises(LayerError, match="memory has been freed"):
            find_layer(layer, "")

    def test_a_bias_is_checked_too(self) -> None:
        layer = nn.Linear(2, 5)
        layer.bias = nn.Parameter(torch.zeros(5, dtype=torch.int32), requires_grad=False)
        with pytest.raises(LayerError, match="bias of dtype torch.int32"):
            find_layer(layer, "")
