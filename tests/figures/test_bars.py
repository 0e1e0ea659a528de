"""Figure 6 from real reports, and from the paper's numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")

from paper.figure6 import printed
from unarg_callback import OutputLayer, verify
from unarg_callback.figures.bars import Bar, draw_bars, read_bars
from unarg_callback.figures.canvas import FigureError


def test_reports_become_bars_in_decreasing_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for dim in (3, 8, 2):
        verify(OutputLayer(rng.normal(size=(60, dim)))).to_json(tmp_path / f"d{dim}.json")
    bars = read_bars([tmp_path / f"d{dim}.json" for dim in (3, 8, 2)])
    assert [bar.name for bar in bars] == ["d3", "d8", "d2"]
    (axes,) = draw_bars(bars).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["d2", "d3", "d8"]
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == sorted((bar.unargmaxable for bar in bars), reverse=True)
    assert heights[0] > heights[1] > 0


def test_undecided_classes_are_on_top() -> None:
    (axes,) = draw_bars([Bar("a", 3, 2), Bar("b", 0)]).axes
    heights = [(patch.get_y(), patch.get_height()) for patch in axes.patches]
    assert heights == [(0, 3), (0, 0), (3, 2), (0, 0)]
    assert axes.get_legend() is not None


def test_the_papers_numbers() -> None:
    bars = printed()
    assert len(bars) == 32
    assert sum(bar.unargmaxable > 0 for bar in bars) == 13


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"counts": {"unargmaxable": null}}'])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(FigureError, match="expected a report of `unarg check --json`"):
        read_bars([path])
    with pytest.raises(FigureError, match="can't be read"):
        read_bars([tmp_path / "absent.json"])
    with pytest.raises(FigureError, match="no model"):
        draw_bars([])
