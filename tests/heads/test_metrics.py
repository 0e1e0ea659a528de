"""Metrics against scipy and counts by hand, in pieces and as a whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from unarg_callback.activations import sparsemax
from unarg_callback.heads.metrics import (
    LabelSetDivergence,
    LabelSetSize,
    SupportSize,
    multilabel_metrics,
)


def example(rows: int = 40, labels: int = 6) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    p = sparsemax(torch.randn(rows, labels, generator=draw))
    return p, (torch.rand(rows, labels, generator=draw) < 0.3).int()


def test_divergence_is_scipys_squared_distance() -> None:
    p, y = example()
    labelled = y.any(-1).numpy()
    assert not labelled.all()
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = jensenshannon(p.numpy()[labelled], y.numpy()[labelled], axis=-1)
    metric = LabelSetDivergence()
    metric.update(p, y)
    assert float(metric.compute()) == pytest.approx((distance**2).mean(), rel=1e-5)


def test_divergence_is_between_0_and_log_2() -> None:
    metric = LabelSetDivergence()
    metric.update(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[1, 1, 0]]))
    assert float(metric.compute()) == pytest.approx(0, abs=1e-6)
    metric.reset()
    metric.update(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0, 0, 1]]))
    assert float(metric.compute()) == pytest.approx(math.log(2), rel=1e-6)


def test_divergence_of_no_labelled_row_is_nan() -> None:
    metric = LabelSetDivergence()
    metric.update(torch.tensor([[1.0, 0.0]]), torch.tensor([[0, 0]]))
    assert metric.compute().isnan()


def test_sizes_are_counted() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    support, size = SupportSize(), LabelSetSize()
    support.update(p)
    size.update(p > 0.5)
    assert (float(support.compute()), float(size.compute())) == (1.5, 0.5)


def test_f_counts_all_labels_and_rows() -> None:
    p, y = example()
    preds = (p > 0).int()
    hits, both = (preds & y).sum(0).double(), (preds.sum(0) + y.sum(0)).double()
    metrics = multilabel_metrics(6, prefix="test/")
    metrics.update(preds=preds, probabilities=p, target=y)
    found = metrics.compute()
    assert float(found["test/f_micro"]) == pytest.approx(float(2 * hits.sum() / both.sum()))
    assert float(found["test/f_macro"]) == pytest.approx(float((2 * hits / both).mean()))
    assert float(found["test/support"]) == float(found["test/labels"])


def test_a_label_that_never_occurs_counts_0_in_the_macro_average() -> None:
    metrics = multilabel_metrics(2)
    preds = torch.tensor([[1, 0]])
    metrics.update(preds=preds, probabilities=preds.float(), target=preds)
    assert float(metrics.compute()["f_macro"]) == 0.5


def test_batches_add_up() -> None:
    p, y = example()
    whole, pieces = multilabel_metrics(6), multilabel_metrics(6)
    whole.update(preds=(p > 0.1).int(), probabilities=p, target=y)
    for part, labels in zip(p.split(7), y.split(7), strict=True):
        pieces.update(preds=(part > 0.1).int(), probabilities=part, target=labels)
    for name, value in whole.compute().items():
        torch.testing.assert_close(pieces.compute()[name], value)
