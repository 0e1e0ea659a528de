"""Charts show every value, at its place."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unarg_callback.reports.charts import Dots, histogram, scatter


def heights(chart: str) -> list[float]:
    path = re.search(r'class="bars [a-z]+" d="([^"]*)"', chart)
    assert path is not None
    return [float(height) for height in re.findall(r"v-([0-9.]+)h", path[1])]


def ticks(chart: str, axis: str) -> list[str]:
    inner = re.search(rf'<div class="{axis}ticks">(.*?)</div>', chart)
    assert inner is not None
    return re.findall(r"<span[^>]*>(.*?)</span>", inner[1])


def test_dots_at_their_places() -> None:
    ids = np.array([0, 50, 100])
    chart = scatter([Dots("a", "a", ids, np.array([0, 9, 99]))], 101, "x", "y")
    found = re.findall(r"M(\d+) (\d+)h0", chart)
    assert [int(x) for x, _ in found] == [0, 500, 1000]
    down = [int(y) for _, y in found]
    assert down[0] == 300
    # On a scale of log(1 + steps) 9 is half way to 99.
    assert abs((300 - down[1]) * 2 - (300 - down[2])) <= 2
    assert ticks(chart, "y") == ["0", "1", "10", "99"]
    assert ticks(chart, "x") == ["0", "20", "40", "60", "80", "100"]


def test_dots_on_one_another_are_drawn_once() -> None:
    ids = np.arange(100_000)
    chart = scatter([Dots("a", "a", ids, np.zeros(100_000, np.int64))], 100_000, "x", "y")
    assert len(re.findall("h0", chart)) == 1001


def test_bars_count_what_they_show() -> None:
    chart = histogram(np.array([0.011, 0.012, 0.013, 0.9, 5.0, 5.1]), "a", "x", "y")
    found = heights(chart)
    assert len(found) == 3
    assert [round(h / max(found) * 3) for h in found] == [3, 1, 2]
    assert ticks(chart, "x") == ["0.01", "0.1", "1", "10"][: len(ticks(chart, "x"))]


def test_values_that_are_not_positive_fall_in_the_first_bar() -> None:
    chart = histogram(np.array([0.0, -1.0, 1e-300, 1.0, 1.0, 1.0, 1.0]), "a", "x", "y")
    found = heights(chart)
    assert len(found) == 2
    assert round(found[0] / found[1], 2) == 0.75


@given(arrays(np.float64, st.integers(1, 20), elements=st.floats(-1e300, 1e300)))
def test_any_values_make_a_chart(values: np.ndarray) -> None:
    chart = histogram(values, "a", "x", "y")
    assert 1 <= len(heights(chart)) <= len(values)
    assert "nan" not in chart
    assert "inf" not in chart


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_any_steps_make_a_chart(steps: list[int]) -> None:
    kind = Dots("a", "a", np.arange(len(steps)), np.array(steps))
    chart = scatter([kind], len(steps), "x", "y")
    assert all(0 <= int(y) <= 300 for y in re.findall(r"M\d+ (-?\d+)h0", chart))
    assert len(ticks(chart, "y")) <= 9
    assert len(ticks(chart, "x")) <= 7
