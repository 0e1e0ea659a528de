"""What users have reported about callbacks in trainings of several processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.strategies import ModelParallelStrategy
from torch.distributed.tensor import DTensor

from tests.distributed.processes import in_processes
from tests.tiny_training import Classifier, batches, seeded, trainer
from unarg_callback import UnargmaxabilityMonitor, verify
from unarg_callback.geometry.layer import OutputLayer


class Sharded(Classifier):
    """Its layers are sharded by ``fully_shard``."""

    def configure_model(self) -> None:
        from torch.distributed.fsdp import fully_shard

        for part in (self.generator, self.encoder, self):
            fully_shard(part, mesh=self.device_mesh["data_parallel"])  # type: ignore[index]


class AtTheEnd(pl.Callback):
    """Logs at the end of an epoch, reduced over ranks."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        pl_module.log("epoch", float(trainer.current_epoch), sync_dist=True)


def whole(parameter: Any) -> torch.Tensor:
    value = parameter.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value


SCENARIOS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp in the background": {"background": True},
    "ddp accumulating": {},
    "sharded": {},
    "sharded and observed": {"domain": "observed", "background": True},
}


def scenario(name: str, folder: Path) -> dict[str, Any]:
    sharded = name.startswith("sharded")
    monitor = UnargmaxabilityMonitor(
        "generator", 3, **{"max_overhead": None, "on_error": "raise", **SCENARIOS[name]}
    )
    # Until the first check has ended there is nothing to choose by.
    chosen = None if "background" in SCENARIOS[name] else "unarg/generator/potential"
    best = ModelCheckpoint(folder / "saved", "{step}", monitor=chosen, every_n_epochs=1)
    run = trainer(
        folder,
        monitor,
        AtTheEnd(),
        best,
        devices=2,
        strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
        if sharded
        else "ddp",
        accumulate_grad_batches=2 if "accumulating" in name else 1,
        logger=CSVLogger(folder, version="v"),
        enable_checkpointing=True,
    )
    kept: dict[str, torch.Tensor] = {}

    class Last(pl.Callback):
        def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            for part in ("weight", "bias"):
                kept[part] = whole(pl_module.get_parameter(f"generator.{part}"))

    run.callbacks.append(Last())  # type: ignore[attr-defined]
    run.fit(seeded(Sharded if sharded else Classifier), batches(14), batches(2))
    report = monitor.last_report
    expected = None
    if report is not None:
        expected = verify(OutputLayer(kept["weight"], kept["bias"]), report.domain).status.tolist()
    return {
        "step": run.global_step,
        "steps": [record.step for record in monitor.records],
        "status": None if report is None else report.status.tolist(),
        "expected": expected,
        "metric": float(run.callback_metrics["unarg/generator/potential"]),
        "best": best.best_model_path,
    }


def everything(folder: Path) -> dict[str, Any]:
    import torch.distributed as dist

    import unarg_callback.monitoring.monitor as module

    rank, size = dist.get_rank(), dist.get_world_size()
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        TORCHELASTIC_RUN_ID="test",
        GROUP_RANK="0",
    )
    module._CREDIT = 3600.0
    return {name: scenario(name, folder / name) for name in SCENARIOS}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("ranks")
    for name in SCENARIOS:
        (folder / name).mkdir()
    return in_processes(everything, folder)


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_mismatched_collectives_hang(ranks: Any, name: str) -> None:
    """https://github.com/Lightning-AI/pytorch-lightning/issues/19045, 21264, 16417, 19604, 19783:
    a decision or a metric on one rank alone; with ModelCheckpoint on what the monitor found.
    17600 and 20255: parameters of a sharded layer are whole when the last check is made.
    """
    first, second = (rank[name] for rank in ranks)
    assert first["step"] == second["step"] == (8 if "accumulating" in name else 14)
    assert first["steps"][-1] == first["step"]
    assert first["status"] == first["expected"] is not None
    assert first["metric"] == second["metric"]
    assert first["best"] == second["best"] != ""
    if not SCENARIOS[name].get("background"):
        assert second["steps"] == first["steps"]
        assert second["status"] == first["status"]
