"""What one dashboard writes over a run: each point once, tables and histograms when they change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from torch.utils.tensorboard import SummaryWriter

from tests.dashboards.checks import findings, layer, skipped
from unarg_callback.dashboards.summary_writer import TensorBoardDashboard
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.tags import scalars


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), STORE_EVERYTHING_SIZE_GUIDANCE).Reload()


def layouts(events: EventAccumulator) -> list[list[str]]:
    found = []
    for event in events.Tensors("custom_scalars__config__"):
        layout = Layout.FromString(event.tensor_proto.string_val[0])
        found.append([chart.title for chart in layout.category[0].chart])
    return found


def text_steps(events: EventAccumulator, tag: str) -> list[int]:
    return [event.step for event in events.Tensors(f"{tag}/text_summary")]


def show(folder: Path, shown: list[Finding], **options: Any) -> EventAccumulator:
    with SummaryWriter(str(folder)) as writer:
        board = TensorBoardDashboard(writer, **options)
        for finding in shown:
            board.show(finding)
    return read(folder)


def test_each_scalar_once_a_step(tmp_path: Path) -> None:
    shown = list(findings())
    events = show(tmp_path, shown)
    assert set(events.Tags()["scalars"]) == set(scalars("generator", shown[-1].record))
    for tag in events.Tags()["scalars"]:
        assert [event.step for event in events.Scalars(tag)] == [0, 50, 100]
    assert [event.value for event in events.Scalars("unarg/generator/provable")] == [0, 0, 1]


def test_scalars_are_left_to_others(tmp_path: Path) -> None:
    events = show(tmp_path, list(findings()), scalars=False)
    assert events.Tags()["scalars"] == []
    assert "custom_scalars__config__" in events.Tags()["tensors"]


def test_tables_only_when_they_change(tmp_path: Path) -> None:
    events = show(tmp_path, list(findings(easts=(2.0, 1.5, 0.1, 0.1, 0.1, 2.0))))
    assert text_steps(events, "unarg/generator/unargmaxable") == [0, 100, 250]


def test_a_skipped_check_says_why(tmp_path: Path) -> None:
    events = show(tmp_path, [skipped()])
    assert events.Tags()["scalars"] == []
    (event,) = events.Tensors("unarg/generator/unargmaxable/text_summary")
    assert event.tensor_proto.string_val == [b"Step 7: not checked. weight has NaN\n"]


def test_a_second_check_at_a_step_adds_no_point(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        board = TensorBoardDashboard(writer)
        for finding in findings(easts=(2.0, 0.0)):
            again = replace(finding, record=replace(finding.record, step=7))
            board.show(again, seen=finding.record.step > 0)
    events = read(tmp_path)
    assert [event.step for event in events.Scalars("unarg/generator/provable")] == [7]
    assert [event.step for event in events.Histograms("unarg_lead/generator/log10")] == [7]
    assert text_steps(events, "unarg/generator/unargmaxable") == [7, 7]


class TestLayout:
    def test_once_with_all_heads(self, tmp_path: Path) -> None:
        shown = [*findings("a"), *findings("b")]
        assert layouts(show(tmp_path, shown, heads=["a", "b"])) == [["a", "b"]]

    def test_heads_that_are_told_later(self, tmp_path: Path) -> None:
        heads = ["a"]
        with SummaryWriter(str(tmp_path)) as writer:
            board = TensorBoardDashboard(writer, lambda: heads)
            board.show(next(findings("a")))
            heads.append("b")
            for finding in findings("a"):
                board.show(finding)
        assert layouts(read(tmp_path)) == [["a"], ["a", "b"]]

    def test_the_last_one_has_heads_that_came_later(self, tmp_path: Path) -> None:
        # TensorBoard shows the last: see tests/browser.
        shown = [*findings("a"), *findings("b")]
        assert layouts(show(tmp_path, shown)) == [["a"], ["a", "b"]]


class TestHistogram:
    tag = "unarg_lead/generator/log10"

    def test_when_leads_change(self, tmp_path: Path) -> None:
        events = show(tmp_path, list(findings(easts=(2.0, 2.0, 0.9, 0.9, 0.9))))
        found = events.Histograms(self.tag)
        assert [event.step for event in found] == [0, 100]
        assert [event.histogram_value.num for event in found] == [4, 4]
        assert found[0].histogram_value.max <= 0

    def test_none_in_the_free_domain(self, tmp_path: Path) -> None:
        assert show(tmp_path, list(findings(domain="free"))).Tags()["histograms"] == []

    def test_a_long_run_has_few(self) -> None:
        steps: list[int] = []

        class Writer:
            def add_histogram(self, tag: str, values: Any, global_step: int, bins: Any) -> None:
                steps.append(global_step)

        board = TensorBoardDashboard(Writer())
        far, near = findings(easts=(2.0, 0.9))
        for _ in range(2000):
            board.show(far)
            board.show(near)
        assert 100 < len(steps) <= 100 * 7


class TestFinish:
    def test_projector(self, tmp_path: Path) -> None:
        finding = list(findings())[-1]
        with SummaryWriter(str(tmp_path)) as writer:
            TensorBoardDashboard(writer).finish(finding, layer(0.0))
        assert (tmp_path / "00100" / "unarg-generator" / "metadata.tsv").is_file()


def test_a_writer_with_less(tmp_path: Path) -> None:
    class Bare:
        def __init__(self) -> None:
            self.values: dict[str, float] = {}

        def add_scalar(self, tag: str, value: float, global_step: int) -> None:
            self.values[tag] = value

    bare = Bare()
    board = TensorBoardDashboard(bare)
    finding = list(findings())[-1]
    board.show(finding)
    board.finish(finding, layer(0.0))
    assert bare.values == scalars("generator", finding.record)


def test_what_a_writer_raises_comes_out_and_the_next_check_is_shown() -> None:
    class Full:
        def __init__(self) -> None:
            self.steps: list[int] = []

        def add_text(self, tag: str, text: str, global_step: int) -> None:
            self.steps.append(global_step)
            if global_step == 0:
                raise OSError("No space left on device")

    full = Full()
    board = TensorBoardDashboard(full)
    first, *_, last = findings()
    with pytest.raises(OSError, match="No space"):
        board.show(first)
    board.show(last)
    assert full.steps == [0, 100, 100]
