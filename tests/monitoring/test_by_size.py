"""A monitor of classes that are ranked by |z|: the same verdicts warm, cold and from a file."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

from tests.independent import check_proofs
from tests.layer_updates import DOMAINS, random_drift
from unarg_callback import Domain, OutputLayer, Status
from unarg_callback.absolute import verify_absolute
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import LayerError
from unarg_callback.monitoring.copies import NoLayer, Rows
from unarg_callback.monitoring.head import Head
from unarg_callback.monitoring.head_labels import HeadLabels
from unarg_callback.monitoring.head_monitor import HeadMonitor


def by_size(domain: Any = "box:10") -> HeadMonitor:
    monitor = HeadMonitor(domain)
    monitor.by_size = True
    return monitor


def through_a_file(state: dict[str, Any]) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def rows(seed: int, classes: int = 25, dim: int = 2) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(classes, dim))


@pytest.mark.parametrize(
    "seed", [0, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4, 5, 7))]
)
def test_warm_is_cold(seed: int) -> None:
    drift = random_drift(seed, DOMAINS[seed % len(DOMAINS)], updates=3, largest=8)
    monitor = by_size(drift.domain)
    for number, step in enumerate(drift.steps):
        try:
            layer = step.layer()
        except LayerError:
            continue
        record = monitor.check(layer, number)
        cold, warm = verify_absolute(layer, drift.domain), monitor.last_report
        assert warm is not None
        both = (warm.status != Status.UNDECIDED) & (cold.status != Status.UNDECIDED)
        assert (warm.status == cold.status)[both].all(), str(drift)
        if drift.domain != "free":
            assert both.all()
        assert record.classes == len(step.weight)
        assert record.excluded == len(step.excluded)


def test_proofs_are_those_of_the_mirrored_layer(tmp_path: Any) -> None:
    monitor, weight = by_size(), rows(0)
    for step in range(3):
        weight = weight + 0.05 * rows(step + 1)
        monitor.check(OutputLayer(weight), step)
        assert monitor.last_report is not None
        path = monitor.last_report.save_proofs(tmp_path / f"{step}.npz")
        summary = check_proofs(path, np.concatenate([weight, -weight]), None)
        assert summary.argmaxable + summary.unargmaxable == 50
        assert monitor.records[-1].warm == (step > 0)


def test_the_state_goes_on_warm() -> None:
    first, weight = by_size(), rows(0)
    first.check(OutputLayer(weight), 10)
    second = by_size()
    second.load_state_dict(through_a_file(first.state_dict()))
    assert second.provable_since == first.provable_since
    assert second.provable_since
    for monitor in (first, second):
        record = monitor.check(OutputLayer(weight + 0.01), 20)
        assert record.warm
    assert first.last_report is not None
    assert second.last_report is not None
    assert first.last_report.status.tolist() == second.last_report.status.tolist()
    assert first.provable_since == second.provable_since
    assert not second.moved(OutputLayer(weight + 0.01))
    assert second.moved(OutputLayer(weight))


def test_a_layer_that_grows() -> None:
    monitor, weight = by_size(), rows(0)
    monitor.check(OutputLayer(weight), 1)
    before = monitor.provable_since
    grown = np.concatenate([weight, np.zeros((2, 2))])
    monitor.check(OutputLayer(grown), 2)
    assert monitor.last_report is not None
    assert monitor.last_report.status.tolist()[25:] == [Status.UNARGMAXABLE] * 2
    assert monitor.provable_since == {**before, 25: 2, 26: 2}
    assert monitor.last_report.duplicate_of.tolist()[25:] == [26, 25]


def test_excluded_classes_keep_nobody_from_the_first_place() -> None:
    monitor = by_size()
    layer = OutputLayer([[1.0], [-2.0]], excluded=[1], names=["a", "b"])
    record = monitor.check(layer, 1)
    assert (record.argmaxable, record.excluded, record.provable) == (1, 1, 0)
    assert monitor.check(OutputLayer([[1.0], [-2.0]]), 2).provable == 1
    assert monitor.last_report is not None
    assert monitor.check(OutputLayer([[1.0], [-2.0]], names=["a", "b"]), 3).classes == 2
    assert monitor.last_report.names == ("a", "b")


def test_by_size_and_not_are_different_questions() -> None:
    weight = np.array([[1.0], [-1.0], [3.0]])
    domain = Domain.box(-1.0, 0.0)
    monitor = HeadMonitor(domain)
    assert monitor.check(OutputLayer(weight), 1).provable == 2
    assert monitor.last_report is not None
    assert monitor.last_report.status.tolist() == [2, 1, 2]
    monitor.by_size = True
    assert monitor.check(OutputLayer(weight), 2).provable == 2
    assert monitor.last_report.status.tolist() == [2, 2, 1]


def test_rows_that_stay_on_their_ranks_are_not_checked_by_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else they would be checked as if the largest logit were the prediction."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 5))
    head = Head("0", HeadMonitor(), labelling=HeadLabels("absolute"))
    head.open(model)
    monkeypatch.setattr(Head, "_rows", lambda *_: Rows(None))
    copied = head.snapshot(model, Ranks())
    assert isinstance(copied, NoLayer)
    assert "raise most_gathered" in copied.reason
