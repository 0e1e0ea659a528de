"""One head: its layer, its names, and where its rows are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import LayerError, UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.copies import Copy, NoLayer
from unarg_callback.monitoring.head import Head
from unarg_callback.monitoring.head import _in_order as in_order
from unarg_callback.monitoring.head_monitor import HeadMonitor

ALONE = Ranks()


def head(choice: Any = None, **options: Any) -> Head:
    return Head(choice, HeadMonitor("box:10"), **options)


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 12))


def test_its_name_is_its_path_unless_it_was_given_one() -> None:
    one, other = head(), head("1", name="some words")
    assert one.name == "output"
    one.open(model())
    other.open(model())
    assert (one.name, other.name) == ("1", "some_words")
    assert one.monitor.head == "1"


def test_names_from_a_file_and_excluded_classes(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(f"w{index}" for index in range(12)))
    one = head(labels=path, excluded=[3])
    one.open(model())
    layer = one.snapshot(model(), ALONE)
    assert isinstance(layer, OutputLayer)
    assert layer.name(11) == "w11"
    assert layer.excluded == (3,)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"labels": ["a"]}, "1 names for 12 classes"),
        ({"excluded": [12]}, "out of range"),
        ({"device": "nowhere"}, "can't be used"),
        ({"bias": "missing"}, "missing"),
    ],
)
def test_what_does_not_fit_is_told_when_it_is_opened(options: Any, told: str) -> None:
    with pytest.raises(UnargError, match=told):
        head(**options).open(model())


def test_a_layer_with_nan_is_no_layer() -> None:
    net, one = model(), head()
    one.open(net)
    with torch.no_grad():
        net[1].weight[2, 0] = torch.nan
    told = one.snapshot(net, ALONE)
    assert isinstance(told, NoLayer)
    assert told.not_finite
    finding = one.examine(Copy(told), ALONE, 5, 5, None)
    assert finding.record.skipped == told.reason
    assert finding.report is None
    assert [event.kind for event in finding.events] == ["not_finite"]


def test_what_was_found_stays_that_layer_whatever_else_comes() -> None:
    net, one = model(), head()
    one.open(net)
    net.append(nn.Linear(12, 40))
    layer = one.snapshot(net, ALONE)
    assert isinstance(layer, OutputLayer)
    assert layer.classes == 12
    net[1] = nn.Linear(2, 15)
    layer = one.snapshot(net, ALONE)
    assert isinstance(layer, OutputLayer)
    assert layer.classes == 15
    net[1] = nn.ReLU()
    with pytest.raises(LayerError):
        one.snapshot(net, ALONE)


def test_a_check_and_its_state() -> None:
    net, one = model(), head()
    one.open(net)
    copy = Copy(one.snapshot(net, ALONE))
    finding = one.examine(copy, ALONE, 7, 5, None)
    assert (finding.record.step, finding.record.due, finding.head) == (7, 5, "1")
    assert finding.report is not None
    again = head()
    again.load_state_dict(one.state_dict())
    assert [record.step for record in again.monitor.records] == [7]
    kept = pickle.loads(pickle.dumps(one))
    kept.open(net)
    assert kept.examine(copy, ALONE, 9, 9, None).record.warm


@pytest.mark.parametrize(
    ("spans", "fits"),
    [
        ([(0, 5), (5, 7)], True),
        ([(0, 12), (12, 0)], True),
        ([(0, 0), (0, 12)], True),
        ([(0, 6), (0, 6)], False),
        ([(6, 6), (0, 6)], False),
        ([(0, 6), None], False),
        ([(0, 5), (5, 6)], False),
        ([(0, 12), (0, 12)], False),
    ],
)
def test_rows_in_order(spans: Any, fits: bool) -> None:
    assert in_order(spans, 12) is fits
