"""Regions of layers of two features against what the logits say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.problems import SQUARE
from unarg_callback import OutputLayer, Status, verify
from unarg_callback.errors import LayerError
from unarg_callback.rankings import cells, wins
from unarg_callback.rankings.plane import Floats, reach_of

SEEDS = st.integers(0, 2**32 - 1)


def random_layer(seed: int, classes: int) -> tuple[Floats, Floats]:
    draws = np.random.default_rng(seed)
    return draws.normal(size=(classes, 2)), draws.normal(size=classes)


def area(polygon: Floats) -> float:
    if not len(polygon):
        return 0.0
    x, y = polygon.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


@given(seed=SEEDS, classes=st.integers(2, 6))
def test_cells_cover_the_square_and_hold_their_ranking(seed: int, classes: int) -> None:
    weight, bias = random_layer(seed, classes)
    found = cells(weight, bias, 3.0)
    assert sum(area(cell.corners) for cell in found) == pytest.approx(36.0)
    for cell in found:
        # Next to each corner too, a little towards the middle.
        inside = cell.corners + 1e-3 * (cell.corners.mean(axis=0) - cell.corners)
        order = np.argsort(-(inside @ weight.T + bias), axis=1)
        assert (order == cell.ranking).all()


@given(seed=SEEDS, classes=st.integers(2, 12))
@settings(max_examples=40)
def test_classes_that_win_nowhere_are_unargmaxable(seed: int, classes: int) -> None:
    weight, bias = random_layer(seed, classes)
    regions = wins(weight, bias, 100.0)
    status = verify(OutputLayer(weight, bias), 100.0).status
    for region, verdict in zip(regions, status, strict=True):
        if area(region) > 1e-2:
            assert verdict == Status.ARGMAXABLE
        elif not len(region):
            assert verdict == Status.UNARGMAXABLE
    assert sum(area(region) for region in regions) == pytest.approx(200.0**2)


def test_equal_classes_share_no_region() -> None:
    twice = np.vstack([SQUARE, SQUARE[:1]])
    sizes = [area(region) for region in wins(twice, None, 1.0)]
    assert sizes == pytest.approx([1, 1, 1, 1, 1])  # Both of the pair win, but only as a tie.


def test_the_reach_shows_all_bounded_regions() -> None:
    weight, bias = random_layer(3, 5)
    reach = reach_of(weight, bias)
    assert len(cells(weight, bias)) == len(cells(weight, bias, 10 * reach))
    assert len(cells(weight, bias, 0.5 * reach)) <= len(cells(weight, bias))
    assert reach_of(np.eye(2), None) == 1.0


@pytest.mark.parametrize("shape", [(4, 3), (4, 1), (4,)])
def test_other_numbers_of_features_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match="expected \\(classes, 2\\)"):
        cells(np.zeros(shape))
