"""Figures 1, 2 and 7: what is in the pictures is what is true of the layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")

from paper.figures_1_2_7 import BIAS, WEIGHT
from unarg_callback import OutputLayer, Status, verify
from unarg_callback.errors import LayerError
from unarg_callback.figures.canvas import save
from unarg_callback.figures.plane import draw_braid, draw_hull, draw_regions, hull


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def labels(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_class_that_never_wins_has_no_region() -> None:
    left, right = draw_regions(WEIGHT).axes
    assert sorted(texts(left)) == ["c1", "c2", "c3"]
    assert labels(right) == ["c1", "c2", "c3", "c4, never"]
    assert verify(OutputLayer(WEIGHT)).ids(Status.UNARGMAXABLE).tolist() == [3]


def test_with_the_bias_it_has_one() -> None:
    left, right = draw_regions(WEIGHT, BIAS, names=list("abcd")).axes
    assert sorted(texts(left)) == ["a", "b", "c", "d"]
    assert labels(right) == ["a", "b", "c", "d"]


def test_points_inside_the_hull_are_marked() -> None:
    (axes,) = draw_hull(WEIGHT).axes
    corners, inside = (collection.get_offsets() for collection in axes.collections)
    assert len(corners) == 3
    assert inside.tolist() == [[0.05, 0.1]]


def test_the_numbers_of_rankings_are_those_of_the_tables() -> None:
    without, with_space, biased, biased_space = draw_braid(WEIGHT, BIAS).axes
    assert without.get_title() == "Wx: 12 rankings"
    assert biased.get_title() == "Wx + b: 18 rankings"
    assert len(texts(without)) == 12
    for space, count in ((with_space, 12), (biased_space, 18)):
        (polygons,) = space.collections
        assert len(polygons.get_facecolor()) == count
        assert len(space.lines) == 6


def test_special_positions_say_what_would_be_most() -> None:
    square = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    assert draw_braid(square).axes[0].get_title() == "Wx: 8 rankings (at most 12)"


@given(seed=st.integers(0, 2**32 - 1), classes=st.integers(3, 30))
@settings(max_examples=30)
def test_the_hull_is_who_can_win(seed: int, classes: int) -> None:
    points = np.random.default_rng(seed).normal(size=(classes, 2))
    assert sorted(hull(points)) == verify(OutputLayer(points)).ids(Status.ARGMAXABLE).tolist()


def test_hulls_of_few_points() -> None:
    assert hull(np.zeros((3, 2))) == [0]
    assert sorted(hull(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))) == [0, 2]


@pytest.mark.parametrize("classes", [2, 3, 5, 40])
def test_other_numbers_of_classes(classes: int, tmp_path: Path) -> None:
    draws = np.random.default_rng(classes)
    weight, bias = draws.normal(size=(classes, 2)), draws.normal(size=classes)
    save(draw_regions(weight, bias), tmp_path / "regions.png")
    save(draw_hull(weight), tmp_path / "hull.png")
    if classes < 8:
        save(draw_braid(weight, bias), tmp_path / "rankings.png")


def test_other_numbers_of_features_are_refused() -> None:
    for draw in (draw_regions, draw_hull, draw_braid):
        with pytest.raises(LayerError, match="only a layer of two features can be drawn"):
            draw(np.zeros((4, 3)))


def test_so_many_classes_that_it_would_take_for_ever_are_refused() -> None:
    weight = np.random.default_rng(0).normal(size=(5001, 2))
    bias = np.ones(len(weight))
    with pytest.raises(LayerError, match="at most 20 whose rankings are drawn"):
        draw_braid(weight[:21])
    with pytest.raises(LayerError, match="at most 100 where no radius is given"):
        draw_regions(weight[:101], bias[:101])
    with pytest.raises(LayerError, match="at most 5,000"):
        draw_regions(weight, bias, None, 1.0)
    draw_regions(weight[:200], bias[:200], None, 1.0)
