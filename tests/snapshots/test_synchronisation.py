"""Nothing but the copies waits for the device that a layer is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils._python_dispatch import TorchDispatchMode

from tests.snapshots.models import Model
from unarg_callback.snapshots.find import find_layer
from unarg_callback.snapshots.snapshot import take_snapshot

WAITING = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "unique")
"""Operators that need values on the host."""


class Recorder(TorchDispatchMode):
    """Names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def plain() -> Any:
    return Model()


def normed() -> Any:
    model = Model()
    parametrizations.weight_norm(model.decoder.generator)
    return model


def biased() -> Any:
    model = Model()
    model.register_buffer("final_logits_bias", torch.ones(1, 9))
    return model


def adapted() -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["decoder.generator"], use_dora=True)
    return peft.get_peft_model(Model(), config)


@pytest.mark.parametrize("make", [plain, normed, biased, adapted])
def test_no_operator_waits_before_the_copies(make: Callable[[], nn.Module]) -> None:
    model = make()
    with Recorder() as recorder:
        found = find_layer(model)
        before = len(recorder.names)
        take_snapshot(found)
    assert not set(recorder.names[:before]) & {*WAITING, "_to_copy"}
    copies = [at for at, name in enumerate(recorder.names) if name == "_to_copy"]
    expected = 3 if make is biased else 2
    assert not set(recorder.names[: copies[expected - 1]]) & set(WAITING)
    # What follows reads the copies: they are checked for NaN.
    assert set(recorder.names[copies[expected - 1] :]) & set(WAITING)
