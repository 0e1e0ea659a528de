"""A person opens TensorBoard on a run: the charts and the table are there, in a real browser."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.page import (
    browser,
    find_all,
    missing,
    tensorboard,
    text_of,
    wait_for,
    wait_for_text,
)
from tests.dashboards.checks import finding_of
from unarg_callback.dashboards.charts import BANDS
from unarg_callback.dashboards.summary_writer import TensorBoardDashboard
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.head_monitor import HeadMonitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]

HEADS = ("decoder.generator", "tags/out-2")
NAMES = ["▁north", "▁south", "▁west", "<b>|mitte\n"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A TensorBoard that shows a run of two heads, the last class of which was overtaken."""
    from torch.utils.tensorboard import SummaryWriter

    folder = tmp_path_factory.mktemp("logs") / "run"
    with SummaryWriter(str(folder)) as writer:
        board = TensorBoardDashboard(writer)
        for head in HEADS:
            monitor = HeadMonitor("box:10", head=head)
            for step in range(5):
                last = [2.0 - 0.5 * step, 0.0]
                layer = OutputLayer([[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0], last], names=NAMES)
                monitor.check(layer, 50 * step)
                board.show(finding_of(monitor))
            board.finish(finding_of(monitor), layer)
    with tensorboard(folder.parent) as address:
        yield address


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as driver:
        yield driver


def test_the_custom_scalars_show_every_head(driver: Any, address: str) -> None:
    driver.get(f"{address}/#custom_scalars")
    wait_for_text(driver, BANDS, *HEADS, *(f"unarg: {head}" for head in HEADS))
    matches = [f"unarg/{HEADS[0]}/{what} (run)" for what in ("potential", "provable", "undecided")]
    matches += [f"unarg_lead/{HEADS[0]}/p10 (run)", f"unarg_cost/{HEADS[0]}/reused (run)"]
    wait_for_text(driver, *matches, "Matches (3)", "Matches (4)")
    # Bands that lack a tag, or whose steps differ, say so in place of a chart.
    wait_for(lambda: len(find_all(driver, "tf-custom-scalar-margin-chart-card")) == len(HEADS))
    page = text_of(driver)
    for trouble in ("Missing Tags", "do not match", "is invalid"):
        assert trouble not in page


def test_the_text_shows_the_table(driver: Any, address: str) -> None:
    driver.get(f"{address}/#text")
    page = wait_for_text(
        driver,
        f"unarg/{HEADS[0]}/unargmaxable",
        "1 of 4 classes are provably unargmaxable",
        "3 <b>|mitte\\n unargmaxable",
        "since step",
        "beaten by",
    )
    assert "lowest leads to expect" in page


def test_each_head_has_a_view_in_the_projector(driver: Any, address: str) -> None:
    with urllib.request.urlopen(f"{address}/data/plugin/projector/runs") as answer:
        assert json.load(answer) == ["run"]
    driver.get(f"{address}/#projector")
    for _ in range(2):
        driver.switch_to.frame(wait_for(lambda: find_all(driver, "iframe"))[0])
    wait_for_text(driver, "2 tensors found", "Points: 4", "Dimension: 2")
    panel = find_all(driver, "vz-projector-data-panel")[0]
    for head in reversed(HEADS):
        driver.execute_script(
            "arguments[0].selectedTensor = arguments[1]", panel, f"unarg-{head}:00200"
        )
        wait_for_text(driver, f"unarg-{head}:00200", "Points: 4")
        assert "Error fetching" not in text_of(driver)
    driver.execute_script("arguments[0].selectedColorOptionName = 'status'", panel)
    wait_for_text(driver, "unargmaxable 1", "at risk 3")
    driver.switch_to.default_content()
