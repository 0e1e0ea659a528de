"""Layers of which each of two real processes holds a part: fully_shard and DTensor."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.distributed.processes import in_processes
from tests.snapshots.models import Model, seeded
from unarg_callback.errors import LayerError
from unarg_callback.snapshots.find import find_layer, refind
from unarg_callback.snapshots.snapshot import layer_bytes, take_rows, take_snapshot

INPUTS = torch.ones(2, 6)


def facts(model: nn.Module, layer: Any = None, bias: str | None = None) -> dict[str, Any]:
    """What a rank finds, in types that can be pickled."""
    found = refind(find_layer(model, layer, bias=bias), model)
    snapshot = take_snapshot(found)
    rows = take_rows(found)
    return {
        "path": found.path,
        "collective": found.collective,
        "shape": found.shape,
        "bytes": layer_bytes(found),
        "weight": snapshot.weight.tolist(),
        "bias": None if snapshot.bias is None else snapshot.bias.tolist(),
        "rows": None if rows is None else listed(*rows),
    }


def listed(weight: Tensor, bias: Tensor | None, first: int) -> tuple[Any, Any, int]:
    return weight.tolist(), None if bias is None else bias.tolist(), first


def expected(model: nn.Module, layer: Any = None, bias: str | None = None) -> dict[str, Any]:
    return {**facts(model, layer, bias), "collective": True}


def whole_part(fact: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fact.items() if name != "rows"}


def mesh() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (2,))


def fully_sharded(classes: int, layer_too: bool) -> Any:
    from torch.distributed.fsdp import fully_shard

    model = seeded(classes)
    if layer_too:
        fully_shard(model.decoder.generator, mesh=mesh())
    fully_shard(model, mesh=mesh())
    return model


def of_training(layer_too: bool) -> list[dict[str, Any]]:
    model = fully_sharded(9, layer_too)
    before = facts(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(INPUTS).square().sum().backward()
    between = facts(model)
    optimizer.step()
    return [before, between, facts(model)]


def with_head(
    classes: int, weight: tuple[Any, ...], bias: tuple[Any, ...] | None, shape: tuple[int, ...]
) -> dict[str, Any]:
    """The facts of a model whose last layer alone is divided; a bias of None stays whole."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    model, ranks = seeded(classes), init_device_mesh("cpu", shape)
    layer = model.decoder.generator
    layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), ranks, weight))
    if bias is not None:
        layer.bias = nn.Parameter(distribute_tensor(layer.bias.detach(), ranks, bias))
    return facts(model, "decoder.generator")


def normed() -> Model:
    model = seeded()
    parametrizations.weight_norm(model.decoder.generator)
    return model


def biased() -> Model:
    model = seeded()
    model.shift = nn.Parameter(torch.arange(9.0))
    return model


def adapted() -> Any:
    import peft

    config = peft.LoraConfig(
        target_modules=["decoder.generator"], r=2, init_lora_weights=False, lora_bias=True
    )
    return peft.get_peft_model(seeded(), config)


def head(model: Any) -> tuple[Tensor, Tensor]:
    return model.decoder.generator.weight, model.decoder.generator.bias


def sharded(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=mesh())
    return model


def of_packed() -> str:
    from torch.distributed.tensor import DTensor, Replicate
    from torch.testing._internal.two_tensor import TwoTensor

    model = seeded()
    values = model.decoder.generator.weight.detach()
    pair: Any = TwoTensor(values, values)
    weight = DTensor.from_local(pair, mesh(), [Replicate()], run_check=False)
    model.decoder.generator.weight = nn.Parameter(weight)
    try:
        find_layer(model)
    except LayerError as cause:
        return str(cause)
    return "no error"


def on_a_rank(with_adapters: bool) -> dict[str, Any]:
    """All that these tests look at, so that two processes are started once."""
    from torch.distributed.tensor import Replicate, Shard

    rows, columns, copies = (Shard(0),), (Shard(1),), (Replicate(),)
    plain = sharded(seeded())
    return {
        "training": of_training(False),
        "training layer": of_training(True),
        "rows": with_head(9, rows, rows, (2,)),
        "one row": with_head(1, rows, None, (2,)),
        "columns": with_head(9, columns, copies, (2,)),
        "copies": with_head(9, copies, copies, (2,)),
        "plane": with_head(9, (Replicate(), Shard(0)), None, (1, 2)),
        "normed": facts(sharded(normed())),
        "biased": facts(sharded(biased()), None, "shift"),
        "function": facts(plain, head),
        "identity": facts(plain, plain.get_submodule("decoder.generator")),
        "packed": of_packed(),
        "data parallel": facts(nn.parallel.DistributedDataParallel(seeded())),
        "adapted": facts(sharded(adapted())) if with_adapters else None,
    }


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return in_processes(on_a_rank, importlib.util.find_spec("peft") is not None)


def assert_joined(ranks: list[dict[str, Any]], start: dict[str, Any], first: int) -> None:
    """The rows of the two ranks make up the layer."""
    upper, lower = ranks[0]["rows"], ranks[1]["rows"]
    assert (upper[2], lower[2]) == (0, first)
    assert upper[0] + lower[0] == start["weight"]
    assert upper[1] + lower[1] == start["bias"]


@pytest.mark.parametrize("which", ["training", "training layer"])
def test_fully_shard(ranks: list[dict[str, Any]], which: str) -> None:
    model = seeded()
    start = expected(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(INPUTS).square().sum().backward()
    optimizer.step()
    for rank in ranks:
        before, between, after = rank[which]
        assert whole_part(before) == whole_part(between) == whole_part(start)
        assert_close(after["weight"], facts(model)["weight"])
        assert after["weight"] != before["weight"]
    assert_joined([rank[which][0] for rank in ranks], start, 5)


def assert_close(weight: list[list[float]], other: list[list[float]]) -> None:
    assert torch.allclose(torch.tensor(weight), torch.tensor(other))


@pytest.mark.parametrize("classes", [9, 1])
def test_rows_on_different_ranks(ranks: list[dict[str, Any]], classes: int) -> None:
    start = expected(seeded(classes), "decoder.generator")
    found = [rank["rows" if classes == 9 else "one row"] for rank in ranks]
    assert whole_part(found[0]) == whole_part(found[1]) == whole_part(start)
    assert_joined(found, start, (classes + 1) // 2)


@pytest.mark.parametrize("which", ["columns", "copies", "plane"])
def test_other_layouts_are_gathered(ranks: list[dict[str, Any]], which: str) -> None:
    start = expected(seeded())
    assert start["rows"] is None
    for rank in ranks:
        assert rank[which] == start


def test_parametrisations_biases_and_functions(ranks: list[dict[str, Any]]) -> None:
    for name, plain in (
        ("normed", expected(normed())),
        ("biased", expected(biased(), None, "shift")),
        ("function", expected(seeded(), head)),
        ("identity", expected(seeded())),
    ):
        found = [rank[name] for rank in ranks]
        for fact in found:
            assert_close(fact["weight"], plain["weight"])
            assert {**whole_part(fact), "weight": plain["weight"]} == whole_part(plain)
        upper, lower = (fact["rows"] for fact in found)
        assert_close(upper[0] + lower[0], plain["weight"])
        assert upper[1] + lower[1] == plain["bias"]


def test_adapters(ranks: list[dict[str, Any]]) -> None:
    pytest.importorskip("peft")
    plain = facts(adapted())
    for rank in ranks:
        assert_close(rank["adapted"]["weight"], plain["weight"])
        assert rank["adapted"]["collective"]


def test_data_parallel_layers_are_whole(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["data parallel"] == facts(seeded())


def test_a_quantised_part_is_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "TwoTensor, quantised or packed" in rank["packed"]


def test_a_plain_layer_has_no_rows_of_its_own() -> None:
    found = find_layer(Model())
    assert not found.collective
    assert take_rows(found) is None
    assert layer_bytes(found) == 4 * 9 * (4 + 1)
