"""Layers that FullyShardedDataParallel has flattened, in two real processes."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.processes import in_processes
from tests.snapshots.models import Model, seeded
from unarg_callback.errors import LayerError
from unarg_callback.snapshots.find import find_layer, refind
from unarg_callback.snapshots.snapshot import layer_bytes, take_rows, take_snapshot

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

INPUTS = torch.ones(2, 6)
SETTINGS = [(wrapped, own) for wrapped in ("layer", "holder", "model") for own in (True, False)]
"""What is wrapped by itself, and ``use_orig_params``."""


def flattened(model: Model, wrapped: str, original: bool) -> Any:
    """The model wrapped as a whole, and parts of it."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    def wrap(module: nn.Module) -> Any:
        return FullyShardedDataParallel(
            module, use_orig_params=original, device_id=torch.device("cpu")
        )

    if wrapped == "layer":
        model.decoder.generator = wrap(model.decoder.generator)
    if wrapped in ("layer", "holder"):
        model.decoder = wrap(model.decoder)
    return wrap(model)


def trained(model: nn.Module, watched: bool, checks: list[Any]) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def check() -> None:
        if watched:
            found = refind(find_layer(model, "decoder.generator"), model)
            snapshot = take_snapshot(found)
            assert snapshot.bias is not None
            assert take_rows(found) is None
            checks.append(
                (
                    found.path,
                    found.collective,
                    found.shape,
                    layer_bytes(found),
                    snapshot.weight.tolist(),
                    snapshot.bias.tolist(),
                )
            )

    check()
    for _ in range(3):
        model(INPUTS).square().sum().backward()
        check()
        optimizer.step()
        optimizer.zero_grad()
        check()
    return [parameter.detach().clone() for parameter in model.parameters()]


def of_training(wrapped: str, original: bool) -> tuple[bool, list[Any]]:
    checks: list[Any] = []
    watched = trained(flattened(seeded(), wrapped, original), True, checks)
    alone = trained(flattened(seeded(), wrapped, original), False, [])
    return all(map(torch.equal, watched, alone)), checks


def of_options() -> dict[str, Any]:
    """A tied embedding, a second bias in another wrapper, and the default layer."""
    tied = seeded()
    tied.decoder.generator.weight = tied.decoder.embedding.weight
    biased = seeded()
    biased.shift = nn.Parameter(torch.arange(9.0))
    results = {}
    for name, model, layer, bias in (
        ("tied", flattened(tied, "model", True), "decoder.embedding", None),
        ("biased", flattened(biased, "layer", True), None, "shift"),
    ):
        snapshot = take_snapshot(find_layer(model, layer, bias=bias))
        shift = None if snapshot.bias is None else snapshot.bias.tolist()
        results[name] = (snapshot.weight.tolist(), shift)
    return results


def of_adapters() -> tuple[Any, Any]:
    """LoRA with each of its linear layers wrapped, as peft's policy for FSDP does."""
    import peft
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    config = peft.LoraConfig(target_modules=["decoder.generator"], r=2, init_lora_weights=False)
    model = peft.get_peft_model(seeded(), config)
    plain = take_snapshot(find_layer(model)).weight
    whole = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    return plain.tolist(), take_snapshot(find_layer(whole)).weight.tolist()


def of_part(original: bool) -> str:
    """What a Lightning module would see whose wrapper is around it."""
    model = seeded()
    flattened(model, "model", original)
    try:
        find_layer(model)
    except LayerError as cause:
        return str(cause)
    return "no error"


def of_unknown_shape() -> str:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(9, 4))

    model = seeded()
    model.decoder.generator = Head()
    try:
        find_layer(flattened(model, "model", True), "decoder.generator")
    except LayerError as cause:
        return str(cause)
    return "no error"


def on_a_rank(with_adapters: bool) -> dict[str, Any]:
    """All that these tests look at, so that two processes are started once."""
    return {
        "training": {setting: of_training(*setting) for setting in SETTINGS},
        "options": of_options(),
        "part": [of_part(True), of_part(False)],
        "shape": of_unknown_shape(),
        "adapters": of_adapters() if with_adapters else None,
    }


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return in_processes(on_a_rank, importlib.util.find_spec("peft") is not None)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_it_is_gathered_and_training_goes_on_as_without(
    ranks: list[dict[str, Any]], setting: tuple[str, bool]
) -> None:
    first, second = (rank["training"][setting] for rank in ranks)
    assert first == second
    undisturbed, checks = first
    assert undisturbed
    model = seeded()
    start = take_snapshot(find_layer(model))
    assert start.bias is not None
    assert checks[0] == (
        "decoder.generator",
        True,
        (9, 4),
        4 * 9 * (4 + 1),
        start.weight.tolist(),
        start.bias.tolist(),
    )
    trained(model, False, [])
    end = take_snapshot(find_layer(model))
    assert torch.allclose(torch.tensor(checks[-1][4]), end.weight, atol=1e-5)
    assert checks[0][4] != checks[-1][4]


def test_a_tied_layer_and_a_bias_elsewhere(ranks: list[dict[str, Any]]) -> None:
    model = seeded()
    weight, own = model.decoder.generator.weight, model.decoder.generator.bias
    shift = own.detach().double() + torch.arange(9.0).double()
    for rank in ranks:
        assert rank["options"]["tied"] == (model.decoder.embedding.weight.tolist(), None)
        assert rank["options"]["biased"] == (weight.tolist(), shift.tolist())


def test_without_its_wrapper_it_is_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        for text in rank["part"]:
            assert "give the outermost wrapped model" in text


def test_a_shape_that_can_not_be_told_is_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "(Head) is sharded by FullyShardedDataParallel, and its shape" in rank["shape"]


def test_adapters_that_are_wrapped_by_themselves(ranks: list[dict[str, Any]]) -> None:
    pytest.importorskip("peft")
    for rank in ranks:
        plain, merged = rank["adapters"]
        assert torch.allclose(torch.tensor(merged), torch.tensor(plain))
