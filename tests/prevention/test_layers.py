"""The methods on real layers: saved, copied, compiled, trained, watched and taken off again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from pytorch_lightning import Trainer
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tests.distributed.processes import in_processes
from tests.prevention.methods import METHODS, circle, unit, voronoi
from unarg_callback import UnargmaxabilityMonitor
from unarg_callback.errors import LayerError, UnargError
from unarg_callback.prevention import (
    TwoUnitCoordinates,
    UnitRows,
    two_unit_coordinates,
    unit_rows,
    voronoi_bias,
)

Make = Callable[[int, int], nn.Linear]
INPUTS = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))


def outputs(layer: nn.Module) -> Tensor:
    logits: Tensor = layer(INPUTS)
    return logits


def step(layer: nn.Module) -> None:
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    nn.functional.cross_entropy(outputs(layer), torch.arange(7)).backward()
    optimizer.step()


@pytest.mark.parametrize("make", METHODS)
class TestALayer:
    def test_everything_it_learns_has_a_gradient(self, make: Make) -> None:
        layer = make(10, 4)
        outputs(layer).square().sum().backward()
        (learned,) = layer.parameters()
        assert learned.shape == (10, 4)
        assert learned.grad is not None
        assert learned.grad.abs().sum() > 0

    def test_gradients_are_right(self, make: Make) -> None:
        layer = make(6, 4).double()
        (name, learned), *_ = layer.named_parameters()

        def logits(values: Tensor) -> Tensor:
            found: Tensor = torch.func.functional_call(layer, {name: values}, INPUTS.double())
            return found

        assert torch.autograd.gradcheck(logits, learned.detach().clone().requires_grad_())

    def test_a_state_dict_comes_back(self, make: Make, tmp_path: Path) -> None:
        layer = make(10, 4)
        torch.save(layer.state_dict(), tmp_path / "layer.pt")
        other = make(10, 4)
        other.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
        assert torch.equal(outputs(other), outputs(layer))

    def test_a_deep_copy_is_independent(self, make: Make) -> None:
        model = nn.Sequential(nn.Identity(), make(10, 4))
        before = outputs(model)
        twin = copy.deepcopy(model)
        assert torch.equal(outputs(twin), before)
        step(twin)
        assert not torch.equal(outputs(twin), before)
        assert torch.equal(outputs(model), before)
        # And the copy's bias is that of the copy's weight.
        plain = make(10, 4)
        plain.load_state_dict(twin[1].state_dict())
        assert torch.equal(outputs(plain), outputs(twin))

    def test_it_compiles_whole(self, make: Make) -> None:
        layer = make(10, 4)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(INPUTS), outputs(layer))
        step(layer)
        torch.testing.assert_close(compiled(INPUTS), outputs(layer))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_other_dtypes(self, make: Make, dtype: torch.dtype) -> None:
        layer = make(10, 4)
        wide = outputs(layer)
        narrow = layer.to(dtype)(INPUTS.to(dtype))
        assert narrow.dtype == dtype
        torch.testing.assert_close(narrow.float(), wide, atol=0.05, rtol=0.05)

    def test_autocast(self, make: Make) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            logits = outputs(make(10, 4))
        assert logits.dtype == torch.bfloat16
        logits.float().sum().backward()

    def test_it_can_be_taken_off(self, make: Make) -> None:
        layer = make(10, 4)
        before = outputs(layer)
        assert parametrize.is_parametrized(layer)
        for name in ("weight", "bias"):
            if parametrize.is_parametrized(layer, name):
                parametrize.remove_parametrizations(layer, name)
        assert type(layer) is nn.Linear
        assert torch.equal(outputs(layer), before)
        assert set(layer.state_dict()) - {"bias"} == {"weight"}

    def test_nothing_is_put_on_twice(self, make: Make) -> None:
        layer = make(10, 4)
        for put in (unit_rows, voronoi_bias, two_unit_coordinates):
            with pytest.raises(LayerError, match="parametrised already"):
                put(layer)

    def test_the_monitor_finds_nothing_out_of_reach(self, make: Make, tmp_path: Path) -> None:
        model = BoringModel()
        model.layer = make(50, 32)
        monitor = UnargmaxabilityMonitor("layer", every_n_steps=5, max_overhead=None)
        trainer = Trainer(
            max_steps=10,
            limit_val_batches=0,
            callbacks=[monitor],
            default_root_dir=tmp_path,
            accelerator="cpu",
            logger=CSVLogger(tmp_path),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model)
        assert monitor.last_report is not None
        assert monitor.last_report.counts["argmaxable"] == 50


@pytest.mark.slow
def test_they_train_in_several_processes() -> None:
    """DDP waits for a gradient of every parameter: none may be unused."""
    first, second = in_processes(_logits_after_two_steps)
    assert first == second


def _logits_after_two_steps() -> list[float]:
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Branches(m(10, 4) for m in METHODS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = INPUTS + dist.get_rank()
    for _ in range(2):
        optimizer.zero_grad()
        loss = [nn.functional.cross_entropy(part, torch.arange(7)) for part in model(inputs)]
        sum(loss, torch.zeros(())).backward()
        optimizer.step()
    return [float(x) for part in model(INPUTS) for x in part.detach().flatten()]


class Branches(nn.ModuleList):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [part(inputs) for part in self]


def test_what_is_learned_stays_at_one_length() -> None:
    layer = unit_rows(nn.Linear(4, 10, bias=False), length=3.0)
    step(layer)
    torch.testing.assert_close(layer.weight.norm(dim=1), torch.full((10,), 3.0))


def test_a_weight_can_be_assigned() -> None:
    layer = unit(3, 2)
    layer.weight = torch.tensor([[2.0, 0.0], [0.0, 5.0], [0.0, -1.0]])
    assert layer.weight.tolist() == [[1, 0], [0, 1], [0, -1]]


def test_a_shared_embedding_keeps_its_rows() -> None:
    embedding, layer = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    layer.weight = embedding.weight
    unit_rows(layer)
    assert [name for name, _ in layer.named_parameters()] == ["parametrizations.weight.original"]
    step(layer)
    expected = embedding.weight / embedding.weight.norm(dim=1, keepdim=True)
    torch.testing.assert_close(layer.weight, expected)


def test_the_bias_follows_a_weight_that_is_tied_or_parametrised_later() -> None:
    layer = voronoi(10, 4)
    layer.weight = nn.Embedding(10, 4).weight
    torch.testing.assert_close(layer.bias, -layer.weight.square().sum(1) / 2)
    parametrize.register_parametrization(layer, "weight", UnitRows(2.0))
    torch.testing.assert_close(layer.bias, torch.full((10,), -2.0))


def test_the_circle_is_made_anew_after_rounding_and_on_the_meta_device() -> None:
    layer = circle(1000, 3)
    exact = layer.weight[:, 1:].clone()
    assert torch.equal(layer.bfloat16().float().weight[:, 1:], exact)
    with torch.device("meta"):
        empty = circle(1000, 3)
    assert torch.equal(empty.to_empty(device="cpu").weight[:, 1:], exact)


def test_the_circle_takes_no_gradient() -> None:
    layer = circle(10, 4)
    outputs(layer).square().sum().backward()
    (learned,) = layer.parameters()
    assert learned.grad is not None
    assert not learned.grad[:, 2:].any()
    assert learned.grad[:, :2].all()


def test_a_layer_with_a_bias_is_refused() -> None:
    for put in (unit_rows, two_unit_coordinates):
        layer = nn.Linear(4, 10)
        with pytest.raises(LayerError, match="set layer.bias = None"):
            put(layer)
        layer.bias = None  # type: ignore[assignment]
        put(layer)
    voronoi_bias(nn.Linear(4, 10, bias=False))


def test_what_is_no_output_layer_is_refused() -> None:
    for put in (unit_rows, voronoi_bias, two_unit_coordinates):
        for wrong in (nn.ReLU(), nn.LayerNorm(4), nn.Conv2d(1, 2, 3), nn.LazyLinear(3)):
            with pytest.raises(LayerError, match="this "):
                put(wrong)
        with pytest.raises(LayerError, match="expected a module"):
            put("generator")  # type: ignore[type-var]
    with pytest.raises(LayerError, match="no place for a bias"):
        voronoi_bias(nn.Embedding(10, 4))
    with pytest.raises(LayerError, match="at least 3"):
        two_unit_coordinates(nn.Linear(2, 10, bias=False))


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_lengths_out_of_range_are_refused(wrong: float) -> None:
    plain = nn.Linear(4, 10, bias=False)
    for put in (unit_rows, voronoi_bias, two_unit_coordinates):
        with pytest.raises(UnargError, match="expected a finite number above 0"):
            put(plain, wrong)
    assert not parametrize.is_parametrized(plain)


def test_an_embedding_can_have_them_too() -> None:
    table = nn.Embedding(10, 4)
    unit_rows(table)
    torch.testing.assert_close(table(torch.tensor([3])).norm(), torch.tensor(1.0))
    assert "classes=10, radius=1" in repr(TwoUnitCoordinates(10))
