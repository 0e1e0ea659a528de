"""Label sets of a training, checked again and again: where they come from, and since when."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unarg_callback import Domain, OutputLayer
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.label_sets import LabelHead, LabelSetError, ThresholdRule, TopRule
from unarg_callback.label_sets.report import LabelSetReport
from unarg_callback.losses import SparsemaxHuberLoss
from unarg_callback.monitoring import seen_sets
from unarg_callback.monitoring.label_set_monitor import AskedSets, LabelSetMonitor, labelled

BOX = Domain.box(10.0)
ROWS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
"""With threshold 0 neither {0, 1} nor {2} can be put out; nor {2} with the last row halved."""
APART = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]]
"""Here both can."""


def first_batch(batch: Any) -> Any:
    return batch["labels"]


def opened(given: Any = None, labels: int = 3, loss: nn.Module | None = None) -> LabelSetMonitor:
    monitor = LabelSetMonitor(given)
    monitor.open(labels, loss)
    return monitor


def check(monitor: LabelSetMonitor, rows: Any, step: int = 1, **options: Any) -> Any:
    monitor.collect(Ranks())
    asked = monitor.asked(ThresholdRule(), True)
    assert asked is not None
    return monitor.check(LabelHead(rows), asked, step, domain=BOX, **options)


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def listed(found: Any) -> list[tuple[list[int], int, int]]:
    """(labels, rows, since) of the sets that are out of reach."""
    asked = found.asked
    return [
        (asked.ids[asked.sets[at]].tolist(), int(asked.times[at]), int(found.since[at]))
        for at in found.out_of_reach.tolist()
    ]


class TestSources:
    def test_targets_of_the_loss(self) -> None:
        loss = SparsemaxHuberLoss()
        monitor = opened(loss=loss)
        monitor.collect(Ranks())
        assert monitor.asked(ThresholdRule(), True) is None
        z = torch.zeros(4, 3)
        loss(z, torch.tensor([[1, 1, 0], [0, 0, 1], [1, 1, 0], [0, 0, 0]]))
        found = check(monitor, ROWS)
        assert found.asked.times.tolist() == [2, 1, 1]
        assert listed(found) == [([0, 1], 2, 1), ([2], 1, 1)]
        loss(z[:1], torch.tensor([2]))
        loss(z[:2], torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5]]))
        found = check(monitor, ROWS, 2)
        assert listed(found) == [([2], 3, 1), ([0, 1], 2, 1)]
        assert found.numbers() == {
            "seen": 4.0,
            "out_of_reach": 2.0,
            "undecided": 0.0,
            "rows_out_of_reach": 5 / 7,
            "seconds": found.report.seconds,
        }
        monitor.close()
        assert not loss._forward_pre_hooks

    @pytest.mark.parametrize(
        "labels",
        [
            torch.tensor([[1, 1, 0], [0, 0, 1]]),
            torch.tensor([[True, True, False], [False, False, True]]),
            np.array([[1, 1, 0], [0, 0, 1]]),
            [[0, 1], [2]],
            ((1, 0), [2]),
            torch.tensor([[0.1, 0.9, 0.0], [0.0, 0.0, 1.0]]),
        ],
    )
    def test_a_function_of_the_batch(self, labels: Any) -> None:
        monitor = opened(first_batch)
        for _ in range(3):
            monitor.see({"labels": labels})
        monitor.see({"labels": None})
        monitor.see({"labels": []})
        monitor.raise_failure()
        assert listed(check(monitor, ROWS)) == [([0, 1], 3, 1), ([2], 3, 1)]

    def test_class_indices_of_a_batch(self) -> None:
        monitor = opened(first_batch)
        monitor.see({"labels": torch.tensor([2, 2, -100, 0])})
        assert listed(check(monitor, ROWS)) == [([2], 2, 1)]

    @pytest.mark.parametrize(
        ("labels", "told"),
        [
            (torch.zeros(2, 4), "LabelSet|targets are"),
            (np.zeros((2, 4)), "expected"),
            ([[3]], "expected label ids from 0 to 2"),
            ([["a"]], "expected label ids"),
            (7, "of type int"),
            (torch.tensor(1.0), "targets are torch.float32 of shape"),
            (torch.full((2, 3), float("nan")), "other values than 0 and 1"),
            (torch.tensor([[2, 0, 1]]), "other values than 0 and 1"),
            (torch.tensor([[0.3, 0.9, 0.8]]), "other values than 0 and 1"),
            (ZeroDivisionError("mine"), "ZeroDivisionError: mine"),
        ],
    )
    def test_a_function_that_fails(self, labels: Any, told: str) -> None:
        def given(batch: Any) -> Any:
            if isinstance(labels, Exception):
                raise labels
            return labels

        monitor = opened(given)
        for _ in range(2):
            monitor.see(None)
        with pytest.raises(UnargError, match=f"label_sets failed on a training batch: .*({told})"):
            monitor.raise_failure()
        monitor.raise_failure()

    @pytest.mark.parametrize("given", [[[0, 1], [2], [2]], np.array([[1, 1, 0], [0, 0, 1]])])
    def test_given(self, given: Any) -> None:
        monitor = opened(given)
        monitor.open(3, None)
        expected = [[0, 1], [2]] if isinstance(given, np.ndarray) else [[2], [0, 1]]
        assert [labels for labels, _, _ in listed(check(monitor, ROWS))] == expected
        monitor.forget()
        assert len(listed(check(monitor, ROWS))) == 2
        monitor.see("a batch is nothing to it")
        with pytest.raises(LabelSetError, match="expected"):
            opened(given, labels=2)

    def test_nothing_to_see_them_by(self) -> None:
        with pytest.raises(UnargError, match="give label_sets: the sets, or a function"):
            opened(None)

    def test_most_sets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seen_sets, "MOST_SETS", 2)
        loss = SparsemaxHuberLoss()
        monitor = opened(loss=loss)
        for _ in range(2):
            loss(torch.zeros(4, 3), torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]))
        found = check(monitor, ROWS)
        assert found.asked.times.tolist() == [2, 2]
        assert found.asked.left_out == 4
        assert found.numbers()["rows_out_of_reach"] == 0.5
        loss(torch.zeros(1, 3), torch.tensor([1]))
        state = monitor.state_dict()
        assert state["seen"]["left_out"] == 5
        assert check(monitor, ROWS).asked.left_out == 5


class TestSince:
    def test_a_set_comes_back_and_goes_again(self) -> None:
        monitor = opened([[0, 1], [2], [0]])
        steps = [(10, ROWS), (20, ROWS), (30, APART), (40, ROWS)]
        found = [listed(check(monitor, rows, step)) for step, rows in steps]
        assert found[0] == found[1] == [([0, 1], 1, 10), ([2], 1, 10)]
        assert found[2] == []
        assert found[3] == [([0, 1], 1, 40), ([2], 1, 40)]

    def test_undecided_changes_nothing(self) -> None:
        monitor = opened([[0, 1], [2]])
        check(monitor, ROWS, 10)
        cut = check(monitor, APART, 20, stop=lambda: True)
        assert isinstance(cut.report, LabelSetReport)
        undecided = cut.report.counts["undecided"]
        assert undecided > 0
        assert not cut.report.complete
        assert [row[2] for row in listed(check(monitor, ROWS, 30))].count(10) >= undecided

    def test_warm_from_a_file(self) -> None:
        loss = SparsemaxHuberLoss()
        first = opened(loss=loss)
        loss(torch.zeros(2, 3), torch.tensor([[1, 1, 0], [0, 0, 1]]))
        check(first, ROWS, 10)
        loss(torch.zeros(2, 3), torch.tensor([[1, 1, 0], [1, 1, 1]]))
        state = through_a_file(first.state_dict())
        loss.eval()
        second = opened(loss=loss)
        second.load_state_dict(state)
        assert second.last is None
        found, again = check(second, ROWS, 20), check(first, ROWS, 20)
        assert listed(found) == listed(again) == [([0, 1], 2, 10), ([2], 1, 10)]
        assert found.asked.times.tolist() == [2, 1, 1]
        assert found.report.reuse.warm
        # Loaded before it is opened, as callbacks are.
        third = LabelSetMonitor()
        third.load_state_dict(state)
        third.open(3, loss)
        assert listed(check(third, ROWS, 20)) == listed(found)
        # Another head has other sets.
        third.open(4, loss)
        assert third.asked(ThresholdRule(), True) is None
        assert third.state_dict()["since_step"].tolist() == []

    def test_a_state_without_sets(self) -> None:
        for state in ({}, opened([[0]]).state_dict(), LabelSetMonitor().state_dict()):
            monitor = opened([[0, 1]])
            monitor.load_state_dict(through_a_file(state))
            assert listed(check(monitor, ROWS)) == [([0, 1], 1, 1)]

    @pytest.mark.parametrize(
        "damage",
        [
            {"seen": 3},
            {"seen": {"labels": 3}},
            {"since_sets": torch.zeros(1, 7, dtype=torch.uint8)},
            {"since_sets": torch.zeros(2)},
            {"since_sets": torch.zeros(5, 1, dtype=torch.uint8)},
            {"since_step": None},
        ],
    )
    @pytest.mark.filterwarnings("ignore:the saved label sets are left out")
    def test_damage(self, damage: dict[str, Any]) -> None:
        first = opened([[0, 1], [2]])
        check(first, ROWS, 10)
        monitor = opened([[0, 1], [2]])
        with pytest.warns(UserWarning, match="the saved label sets are left out"):
            monitor.load_state_dict({**first.state_dict(), **damage})
        found = check(monitor, ROWS, 20)
        assert [since for _, _, since in listed(found)] == [20, 20]
        assert not found.report.reuse.warm

    @pytest.mark.parametrize("proofs", [5, {"version": 99}])
    def test_damaged_proofs_are_told_by_the_report(self, proofs: Any) -> None:
        first = opened([[0, 1]])
        check(first, ROWS, 10)
        state = first.state_dict()
        state["proofs"] = proofs
        monitor = opened([[0, 1]])
        monitor.load_state_dict(state)
        found = check(monitor, ROWS, 20)
        assert any("Started from nothing" in note for note in found.report.notes)
        assert listed(found) == [([0, 1], 1, 10)]

    def test_forget(self) -> None:
        loss = SparsemaxHuberLoss()
        monitor = opened(loss=loss)
        loss(torch.zeros(1, 3), torch.tensor([2]))
        check(monitor, ROWS, 10)
        loss(torch.zeros(1, 3), torch.tensor([2]))
        monitor.forget()
        assert monitor.last is None
        monitor.collect(Ranks())
        assert monitor.asked(ThresholdRule(), True) is None


class TestCopies:
    def test_deepcopy_and_pickle(self) -> None:
        loss = SparsemaxHuberLoss()
        monitor = opened(loss=loss)
        loss(torch.zeros(2, 3), torch.tensor([[1, 1, 0], [0, 0, 1]]))
        check(monitor, ROWS, 10)
        loss(torch.zeros(1, 3), torch.tensor([[1, 1, 0]]))
        copies = [copy.deepcopy(monitor), pickle.loads(pickle.dumps(monitor))]
        loss(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]))
        for other in copies:
            assert listed(check(other, ROWS, 20)) == [([0, 1], 2, 10), ([2], 1, 10)]
        assert len(check(monitor, ROWS, 20).asked.times) == 3

    def test_which_loss_is_watched(self) -> None:
        loss = SparsemaxHuberLoss()
        monitor = LabelSetMonitor()
        assert not monitor.watches(3, loss)
        monitor.open(3, loss)
        assert monitor.watches(3, loss)
        assert not monitor.watches(4, loss)
        assert not monitor.watches(3, SparsemaxHuberLoss())
        monitor.open(4, loss)
        assert len(loss._forward_pre_hooks) == 1
        assert opened([[0]]).watches(3, None)


class TestExcluded:
    def asked(self, sets: Any, rule: Any = None) -> AskedSets:
        rows = np.array(sets, dtype=np.bool_)
        rule = rule or TopRule()
        times = np.arange(1, len(rows) + 1)
        return AskedSets(rows, times, 0, rule, True, np.arange(rows.shape[1]), rows.shape[1])

    def test_the_sets_of_the_others(self) -> None:
        layer = OutputLayer(
            [[1.0, 0.0], [9.0, 9.0], [0.0, 1.0]],
            [1.0, 2.0, 3.0],
            names=["a", "b", "c"],
            excluded=[1],
        )
        sets = [[1, 1, 0], [1, 0, 0], [0, 1, 1]]
        head, asked = labelled(layer, self.asked(sets, ThresholdRule([1.0, 2.0, 3.0])))
        assert head.names == ("a", "c")
        assert head.weight.tolist() == [[1.0, 0.0], [0.0, 1.0]]
        assert head.bias.tolist() == [1.0, 3.0]
        assert asked.ids.tolist() == [0, 2]
        # Two sets that only the excluded label tells apart are one.
        assert asked.sets.tolist() == [[True, False], [False, True]]
        assert asked.times.tolist() == [3, 3]
        assert isinstance(head.rule, ThresholdRule)
        assert head.rule.vector(2).tolist() == [1.0, 3.0]

    def test_keys_are_of_labels_not_of_columns(self) -> None:
        layer = OutputLayer(np.eye(9, 3), excluded=[0])
        other = OutputLayer(np.eye(9, 3), excluded=[8])
        sets = np.eye(9)[[1, 2]]
        keys = [labelled(one, self.asked(sets))[1].keys() for one in (layer, other)]
        assert keys[0] == keys[1] == self.asked(sets).keys()
        assert len(set(keys[0])) == 2

    def test_since_when_others_are_excluded_later(self) -> None:
        monitor = opened([[0, 1], [2]])
        for step, excluded in ((1, []), (2, [0]), (3, [])):
            asked = monitor.asked(ThresholdRule(), True)
            assert asked is not None
            head, asked = labelled(OutputLayer(ROWS, excluded=excluded), asked)
            found = monitor.check(head, asked, step, domain=BOX)
            through_a_file(monitor.state_dict())
        # At step 2 label 2 alone could be put out, and {0, 1} wasn't asked for.
        assert listed(found) == [([0, 1], 1, 1), ([2], 1, 3)]


def test_tensors_of_a_batch_keep_their_gradients() -> None:
    z = torch.zeros(2, 3, requires_grad=True)
    monitor = opened(lambda batch: batch.sigmoid() > 0.4)
    monitor.see(z)
    monitor.raise_failure()
    assert monitor._watch is not None
    assert all(
        isinstance(sets, Tensor) and not sets.requires_grad for sets, _ in monitor._watch._pending
    )
    assert len(monitor._watch._pending) == 1
