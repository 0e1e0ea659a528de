"""Layers that a function of the model returns."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.snapshots.models import Model
from unarg_callback.errors import LayerError
from unarg_callback.snapshots.find import find_layer, refind
from unarg_callback.snapshots.snapshot import take_snapshot


class TransposedHead(nn.Module):
    """A head without a linear layer: a bare parameter, kept as (features, classes)."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Parameter(torch.arange(20.0).reshape(4, 5))
        self.shift = nn.Parameter(torch.arange(5.0))
        self.dropout = nn.Dropout()


def rows(model: Any) -> Tensor:
    transposed: Tensor = model.projection.T
    return transposed


def rows_and_shift(model: Any) -> tuple[Tensor, Tensor]:
    return model.projection.T, model.shift


def test_a_weight() -> None:
    model = TransposedHead()
    found = find_layer(model, rows)
    assert (found.path, found.module, found.function) == ("rows", None, rows)
    assert (found.classes, found.features, found.collective) == (5, 4, False)
    snapshot = take_snapshot(found)
    assert torch.equal(snapshot.weight, model.projection.T)
    assert snapshot.bias is None


def test_a_weight_and_a_bias() -> None:
    model = TransposedHead()
    snapshot = take_snapshot(find_layer(model, rows_and_shift))
    assert snapshot.bias is not None
    assert torch.equal(snapshot.bias, model.shift)
    assert snapshot.bias.data_ptr() != model.shift.data_ptr()
    assert take_snapshot(find_layer(model, lambda one: [one.projection.T, None])).bias is None


def test_a_bias_by_its_path() -> None:
    model = TransposedHead()
    found = find_layer(model, rows, bias="shift")
    assert found.bias_path == "shift"
    bias = take_snapshot(found).bias
    assert bias is not None
    assert torch.equal(bias, model.shift)
    assert take_snapshot(find_layer(model, rows_and_shift, bias="shift")).bias is not None


def test_names() -> None:
    model = TransposedHead()
    assert find_layer(model, lambda one: one.projection.T).path == "output"
    assert find_layer(model, functools.partial(rows)).path == "output"


def test_it_is_called_anew_at_each_snapshot_and_sees_a_grown_layer() -> None:
    model = TransposedHead()
    found = find_layer(model, rows)
    model.projection = nn.Parameter(torch.ones(4, 8))
    assert take_snapshot(found).classes == 8
    assert refind(found, model).classes == 8


def test_it_leaves_no_trace_and_finds_the_model_as_it_is() -> None:
    model = TransposedHead()
    model.dropout.eval()
    seen: list[tuple[bool, bool, bool]] = []

    def careless(one: TransposedHead) -> Tensor:
        seen.append((one.training, one.dropout.training, torch.is_grad_enabled()))
        one.eval()
        torch.manual_seed(7)
        np.random.seed(7)
        torch.set_default_dtype(torch.float64)
        return one.projection.T + 0 * torch.rand(5, 4, dtype=torch.float32)

    before = torch.get_rng_state()
    found = find_layer(model, careless)
    take_snapshot(found)
    assert seen[0] == seen[1] == (True, False, False)
    assert (model.training, model.dropout.training) == (True, False)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "returned NoneType; expected a tensor of shape"),
        (torch.ones(3), r"weight of shape \(3,\); expected two dimensions"),
        ((torch.ones(3, 2),), r"returned \(Tensor\); expected a tensor"),
        ((torch.ones(3, 2), torch.ones(3), 0), r"returned \(Tensor, Tensor, int\)"),
        ((torch.ones(3, 2), 1.0), "bias that is a float"),
        ((torch.ones(3, 2), torch.ones(2)), r"its bias has shape \(2,\); expected \(3,\)"),
        (torch.ones(3, 2, dtype=torch.int64), "dtype torch.int64"),
        (torch.ones(3, 2, device="meta"), "meta device"),
        (np.ones((3, 2)), "returned ndarray"),
    ],
    ids=str,
)
def test_other_results_are_refused(result: object, message: str) -> None:
    def head(model: object) -> object:
        return result

    with pytest.raises(LayerError, match=message) as caught:
        find_layer(Model(), head)
    assert "layer 'head' (a function)" in str(caught.value)


def test_its_own_errors_are_not_hidden() -> None:
    with pytest.raises(LayerError, match="failed: AttributeError: .*projection") as caught:
        find_layer(Model(), rows)
    assert isinstance(caught.value.__cause__, AttributeError)
