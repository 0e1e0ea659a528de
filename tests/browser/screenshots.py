"""The pictures of the documentation: ``python -m tests.browser.screenshots [folder]``.

Needs the shared data (see tests/shared_data.py), Chromium, chromedriver and selenium.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.browser.page import browser, find_all, tensorboard, text_of, wait_for, wait_for_text
from tests.dashboards.checks import finding_of
from tests.shared_data import load_layer, load_snapshot
from unarg_callback.dashboards.charts import BANDS
from unarg_callback.dashboards.json_lines import JsonLines
from unarg_callback.dashboards.projector import projector_tag
from unarg_callback.dashboards.summary_writer import TensorBoardDashboard
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.head_monitor import HeadMonitor

HEADS = ("decoder.generator", "syllables/out-2")
_CHECKS = 130
_EVERY = 3
_LANGUAGE_CLASSES = 4000


def write_run(folder: Path) -> None:
    """A run of two heads: a language model's, between its snapshots, and g2pM's, from noise."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))
    board = TensorBoardDashboard(writer, HEADS)
    lines = JsonLines(folder)
    weight, bias, names = load_layer("g2pm")
    noise = np.random.default_rng(0).standard_normal(weight.shape) * weight.std()
    monitors = [HeadMonitor("box:100", head=head) for head in HEADS]
    layers: list[OutputLayer] = []
    for step in range(0, _CHECKS * _EVERY + 1, _EVERY):
        share = min(step / 300, 1.0)
        layers = [
            _language_model(step),
            OutputLayer(
                torch.tensor(share * weight + (1 - share) * noise), share * bias, names=names
            ),
        ]
        for monitor, layer in zip(monitors, layers, strict=True):
            # Little time, as in a training run: some classes stay undecided for a while.
            monitor.check(layer, step, time_limit=0.25 if step < _CHECKS * _EVERY else None)
            finding = finding_of(monitor)
            board.show(finding)
            lines.show(finding)
    for monitor, layer in zip(monitors, layers, strict=True):
        board.finish(finding_of(monitor), layer)
    writer.close()


def _language_model(step: int) -> OutputLayer:
    """Its most frequent words at a step, in a straight line between two snapshots."""
    before = min(step // 100, 3) * 100
    share = (step - before) / 100
    pairs = zip(load_snapshot(f"ru16_{before}"), load_snapshot(f"ru16_{before + 100}"), strict=True)
    weight, bias = (
        torch.tensor((1 - share) * a[:_LANGUAGE_CLASSES] + share * b[:_LANGUAGE_CLASSES])
        for a, b in pairs
    )
    return OutputLayer(weight, bias)


def save(driver: Any, path: Path) -> None:
    """A picture of the page, with few colours, which keeps it small."""
    from PIL import Image

    driver.save_screenshot(str(path))
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(192, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def show_custom_scalars(driver: Any, address: str) -> None:
    """Open the custom scalars, with the charts of all heads drawn."""
    driver.get(f"{address}/#custom_scalars")
    wait_for_text(driver, BANDS, *(f"unarg: {head}" for head in HEADS))
    time.sleep(5)  # For the charts to be drawn.


def show_projector(driver: Any, address: str, head: str) -> None:
    """Open the projector at a head's view, coloured by status."""
    driver.get(f"{address}/#projector")
    for _ in range(2):
        driver.switch_to.frame(wait_for(lambda: find_all(driver, "iframe"))[0])
    panel = wait_for(lambda: find_all(driver, "vz-projector-data-panel"))[0]

    def set_option(name: str, value: str) -> None:
        driver.execute_script(f"arguments[0].{name} = arguments[1]", panel, value)
        time.sleep(4)

    wait_for(lambda: head in text_of(driver))
    names = driver.execute_script("return arguments[0].tensorNames.map(one => one.name)", panel)
    set_option("selectedTensor", next(name for name in names if projector_tag(head) in name))
    set_option("selectedColorOptionName", "status")
    set_option("selectedLabelOption", "token")


def main() -> None:
    """Write a run and take the pictures."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    with tempfile.TemporaryDirectory() as scratch:
        write_run(Path(scratch) / "run")
        with tensorboard(Path(scratch)) as address, browser() as driver:
            show_custom_scalars(driver, address)
            save(driver, target / "tensorboard_layout.png")
            show_projector(driver, address, HEADS[1])
            save(driver, target / "tensorboard_projector.png")


if __name__ == "__main__":
    main()
