"""The callback with either Lightning package, with both, and without."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

RUN = """
import sys

for package in {hidden!r}:
    sys.modules[package] = None
import unarg_callback
{code}
"""

TRAIN = """
import {package} as pl
from {package}.callbacks import EarlyStopping
from {package}.demos.boring_classes import BoringModel
from {package}.loggers import TensorBoardLogger
from unarg_callback import UnargmaxabilityMonitor

monitor = UnargmaxabilityMonitor("layer", every_n_steps=2, max_overhead=None)
model = BoringModel()
model.layer = __import__("torch").nn.Linear(32, 40)
stop = EarlyStopping("unarg/layer/provable", patience=100)
trainer = pl.Trainer(
    max_steps=4, callbacks=[monitor, stop], logger=TensorBoardLogger({folder!r}),
    enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
    default_root_dir={folder!r}, limit_val_batches=1, val_check_interval=2,
)
trainer.fit(model)
trainer.save_checkpoint({folder!r} + "/saved.ckpt")
print("checked at", [record.step for record in monitor.records])
"""


def run(code: str, *hidden: str) -> subprocess.CompletedProcess[str]:
    script = RUN.format(hidden=set(hidden) or set(), code=code)
    return subprocess.run(
        [sys.executable, "-W", "error:::unarg_callback", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.parametrize("package", ["pytorch_lightning", "lightning.pytorch"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_training(tmp_path: Path, package: str, alone: bool) -> None:
    pytest.importorskip(package)
    other = {"pytorch_lightning": "lightning", "lightning.pytorch": "pytorch_lightning"}[package]
    hidden = (other,) if alone else ()
    done = run(TRAIN.format(package=package, folder=str(tmp_path)), *hidden)
    assert done.returncode == 0, done.stderr
    assert "checked at [0, 2, 4]" in done.stdout
    (folder,) = tmp_path.glob("lightning_logs/version_*")
    assert (folder / "unargmaxability.jsonl").read_text().count("\n") == 3


def test_it_is_a_callback_of_both() -> None:
    from unarg_callback import UnargmaxabilityMonitor

    monitor = UnargmaxabilityMonitor()
    for package in ("pytorch_lightning.callbacks", "lightning.pytorch.callbacks"):
        pytest.importorskip(package)
        assert isinstance(monitor, import_module(package).Callback)


PLAIN = """
import torch
from unarg_callback import Monitor

model = torch.nn.Linear(2, 12)
monitor = Monitor(every_n_steps=5)
monitor.start(model)
for step in range(1, 11):
    monitor.step(model, step)
monitor.finish(model, 10)
print("checked at", [record.step for record in monitor.records])
try:
    unarg_callback.UnargmaxabilityMonitor
except ImportError as cause:
    print(cause)
assert not {"pytorch_lightning", "lightning", "transformers"} & {
    name for name, module in __import__("sys").modules.items() if module is not None
}
"""


def test_a_plain_loop_without_either() -> None:
    done = run(PLAIN, "pytorch_lightning", "lightning", "transformers")
    assert done.returncode == 0, done.stderr
    assert "checked at [0, 5, 10]" in done.stdout
    assert "needs pytorch-lightning or lightning; a training loop without" in done.stdout
