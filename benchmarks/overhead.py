"""Training time of the translation example with the monitor at its defaults, and without it.

Usage: ``python -m benchmarks.overhead [--pairs 3] [--epochs 20]``

Runs take turns, each in a process of its own; only ``trainer.fit`` is timed. The ratio of each pair
is shown, with and without the check at the end of training, and their median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.timing import ratio

ROOT = Path(__file__).resolve().parent.parent

_RUN = """
import json, sys, time
sys.path[:0] = [{examples!r}, {root!r}]
from train_mt import TranslationCLI, find_monitor
from mt.data import TranslationData
from mt.model import Translator
from unarg_callback import UnargmaxabilityMonitor
cli = TranslationCLI(Translator, TranslationData, run=False, args={arguments!r})
monitor = find_monitor(cli.trainer)
if monitor is not None:
    cli.trainer.callbacks.remove(monitor)
if {watched!r}:
    # As in the configuration, but for the budget, which is the default.
    monitor = UnargmaxabilityMonitor(layer="generator", every_n_steps=50, exclude=[0, 2])
    monitor.labels = str(cli.datamodule.labels_file)
    cli.trainer.callbacks.append(monitor)
begin = time.perf_counter()
cli.trainer.fit(cli.model, datamodule=cli.datamodule)
seconds = time.perf_counter() - begin
records = [record.to_dict() for record in monitor.records] if {watched!r} else []
print("RESULT " + json.dumps({{"seconds": seconds, "records": records}}))
"""


def train(watched: bool, epochs: int, folder: str) -> dict[str, Any]:
    """Train once in a new process; returns the seconds and the monitor's records."""
    arguments = ["--config", str(ROOT / "configs" / "mt_small.yaml"), "--workdir", folder]
    arguments += ["--trainer.max_epochs", str(epochs), "--trainer.enable_progress_bar", "false"]
    code = _RUN.format(
        examples=str(ROOT / "examples"), root=str(ROOT), arguments=arguments, watched=watched
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(lines[-1][len("RESULT ") :])
    return found


def main() -> None:
    """Print one line a pair of runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    ratios = []
    print(
        f"{'without s':>10}{'with s':>9}{'ratio':>8}{'before end':>12}{'checks':>8}{'late':>6}"
        f"{'incomplete':>12}"
    )
    for at in range(arguments.pairs):
        seconds: dict[bool, float] = {}
        records: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory() as folder:
            for watched in (at % 2 == 0, at % 2 == 1):
                found = train(watched, arguments.epochs, folder)
                seconds[watched] = found["seconds"]
                records = found["records"] or records
        ratios.append(seconds[True] / seconds[False])
        last = records[-1]["seconds"]
        before = (seconds[True] - last) / seconds[False]
        late = sum(record["step"] > record["due"] for record in records)
        incomplete = sum(not record["complete"] for record in records)
        print(
            f"{seconds[False]:>10.1f}{seconds[True]:>9.1f}{ratios[-1]:>8.3f}{before:>12.3f}"
            f"{len(records):>8}"
            f"{late:>6}{incomplete:>12}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.3f}")
    ratio("training with / without the monitor", statistics.median(ratios))


if __name__ == "__main__":
    main()
