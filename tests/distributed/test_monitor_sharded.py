"""The monitor in training loops whose layer lies in parts on two ranks."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.distributed.processes import in_processes
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.monitor import Monitor
from unarg_callback.verification import verify

FEATURES, DIM, CLASSES = 6, 2, 13
KINDS = ("ddp", "fully_shard", "fsdp1", "rows", "columns", "rows where they are")


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Linear(FEATURES, DIM)
        self.generator = nn.Linear(DIM, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.generator(self.encoder(inputs))
        return logits


def wrapped(kind: str) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = Classifier()
    mesh = init_device_mesh("cpu", (2,))
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fully_shard":
        fully_shard(model.generator, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    if kind == "fsdp1":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    style = (
        ColwiseParallel(output_layouts=Replicate())
        if kind.startswith("rows")
        else RowwiseParallel(input_layouts=Replicate())
    )
    parallelize_module(model, mesh, {"generator": style})
    return model


def whole(model: nn.Module, kind: str) -> OutputLayer:
    """The layer put together by other means than the monitor's."""
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as Wrapper

        with Wrapper.summon_full_params(model, writeback=False):
            generator: Any = model.generator
            return OutputLayer(generator.weight.clone(), generator.bias.clone())
    generator = model.module.generator if kind == "ddp" else model.generator  # type: ignore[union-attr]
    parts = [generator.weight, generator.bias]
    full = [part.full_tensor() if hasattr(part, "full_tensor") else part for part in parts]
    return OutputLayer(full[0].detach().clone(), full[1].detach().clone())


def train(kind: str) -> dict[str, Any]:
    model = wrapped(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    names = [f"w{index}" for index in range(CLASSES)]
    monitor = Monitor(
        "generator",
        every_n_steps=2,
        labels=names,
        max_overhead=None,
        on_error="raise",
        most_gathered=0 if kind.endswith("are") else 2**31,
    )
    draw = torch.Generator().manual_seed(5)
    monitor.start(model)
    for step in range(1, 6):
        inputs = torch.randn(8, FEATURES, generator=draw)
        targets = torch.randint(CLASSES, (8,), generator=draw)
        optimizer.zero_grad()
        logits = model(inputs)
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        F.cross_entropy(logits[:, :CLASSES], targets).backward()
        optimizer.step()
        monitor.step(model, step)
    monitor.finish(model, 5)
    report = monitor.last_report
    assert report is not None
    return {
        "steps": [record.step for record in monitor.records],
        "status": report.status.tolist(),
        "warm": [record.warm for record in monitor.records],
        "names": report.names == tuple(names),
        "expected": verify(whole(model, kind)).status.tolist(),
    }


def everything() -> dict[str, Any]:
    return {kind: train(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def trainings() -> list[dict[str, Any]]:
    return in_processes(everything)


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdicts_are_those_of_the_whole_layer(
    trainings: list[dict[str, Any]], kind: str
) -> None:
    for rank in trainings:
        assert rank[kind]["steps"] == [0, 2, 4, 5]
        assert rank[kind]["status"] == rank[kind]["expected"]
        assert rank[kind]["warm"] == [False, True, True, True]
        assert rank[kind]["names"]
