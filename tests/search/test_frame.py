from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.search import Stage
from unarg_callback.search.frame import raw_frame, whitening_frame


def skewed(classes: int, dim: int, rank: int | None = None) -> np.ndarray:
    """Rows around a far centre, with variances over four orders of magnitude."""
    rng = np.random.default_rng(dim)
    mix = rng.normal(size=(rank or dim, dim)) * np.logspace(-2, 2, rank or dim)[:, None]
    return np.asarray(rng.normal(size=(classes, rank or dim)) @ mix + 50.0)


@pytest.mark.parametrize("classes", [50, 5000])
def test_whitened_rows_have_mean_0_and_covariance_1(classes: int) -> None:
    stage = Stage.of(skewed(classes, 6))
    rows = stage.checker.sweep.rows(slice(None))
    white = (rows - stage.frame.mean) @ stage.frame.root
    assert torch.allclose(white.mean(0), torch.zeros(6).double(), atol=1e-6)
    assert torch.allclose(white.T @ white / classes, torch.eye(6).double(), atol=1e-6)


def test_the_metric_is_the_square_of_its_root() -> None:
    frame = Stage.of(skewed(100, 5)).frame
    relative = (frame.root @ frame.root.T - frame.metric).abs().amax() / frame.metric.abs().amax()
    assert relative < 1e-12


def test_the_start_is_the_whitened_row_in_x() -> None:
    stage = Stage.of(skewed(100, 5))
    rows = stage.checker.sweep.rows(slice(None))
    white = (rows - stage.frame.mean) @ stage.frame.root
    start = stage.frame.start(rows)
    torch.testing.assert_close(start, white @ stage.frame.root.T, rtol=1e-6, atol=1e-6)
    # Logits are the same, up to a number for each point: w.x = y.y' + const.
    logits, whitened = start @ rows.T, white @ white.T
    gap = logits - whitened
    assert (gap - gap.mean(1, keepdim=True)).abs().amax() < 1e-6 * whitened.abs().amax()


def test_rows_that_do_not_span_the_space() -> None:
    stage = Stage.of(skewed(200, 6, rank=3))
    rows = stage.checker.sweep.rows(slice(None))
    white = (rows - stage.frame.mean) @ stage.frame.root
    values = torch.linalg.eigvalsh(white.T @ white / 200)
    assert torch.allclose(values[:3], torch.zeros(3).double(), atol=1e-6)
    assert torch.allclose(values[3:], torch.ones(3).double(), atol=1e-6)
    assert torch.isfinite(stage.frame.metric).all()


@pytest.mark.parametrize("weight", [np.full((4, 3), 0.7), np.zeros((1, 2))])
def test_rows_that_are_all_equal(weight: np.ndarray) -> None:
    frame = Stage.of(weight).frame
    assert torch.isfinite(frame.metric).all()
    assert not frame.metric.abs().sum()


def test_only_active_rows_count() -> None:
    weight = skewed(60, 4)
    polluted = np.insert(weight, 3, np.nan, axis=0)
    one, other = Stage.of(weight).frame, Stage.of(polluted, excluded=(3,)).frame
    assert torch.equal(one.metric, other.metric)
    assert torch.equal(one.mean, other.mean)


def test_no_active_rows() -> None:
    frame = whitening_frame(Stage.of(np.ones((2, 2)), excluded=(0, 1)).checker.sweep)
    assert not frame.mean.any()


def test_the_raw_frame_changes_nothing() -> None:
    frame = raw_frame(3, torch.device("cpu"))
    rows = torch.randn(4, 3, dtype=torch.float64, generator=torch.manual_seed(0))
    assert torch.equal(frame.start(rows), rows)


def test_whitened_rows_are_their_own_witnesses_where_raw_ones_are_not() -> None:
    """DESIGN, fact 1."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(16, 16)) * np.logspace(-1, 1, 16)[:, None]
    stage = Stage.of(rng.normal(size=(300, 16)) @ mix, domain="free", dtype=torch.float64)
    rows = stage.checker.sweep.rows(slice(None))
    raw = stage.checker.witnesses(stage.everyone, rows).accepted.sum()
    whitened = stage.checker.witnesses(stage.everyone, stage.frame.start(rows)).accepted.sum()
    assert whitened > 260
    assert raw < 30
