"""Label sets of a head that a monitor watches, in plain training loops."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from unarg_callback import Monitor
from unarg_callback.errors import UnargError
from unarg_callback.heads import MultilabelHead
from unarg_callback.heads.named_maps import named_map

pytestmark = pytest.mark.usefixtures("time_enough")

LABELS = 6


class Net(nn.Module):
    """Two features below six labels: most sets are out of reach."""

    def __init__(self, method: str = "sparsemax+huber", labels: int = LABELS) -> None:
        super().__init__()
        self.body = nn.Linear(4, 2)
        self.head = MultilabelHead.named(method, in_features=2, num_labels=labels)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = self.head.loss(self.head(self.body(x)), y)
        return loss


def net(*arguments: Any) -> Net:
    torch.manual_seed(0)
    return Net(*arguments)


def batch(seed: int = 0, labels: int = LABELS) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(32, 4, generator=draw), torch.rand(32, labels, generator=draw) < 0.4


def watch(**options: Any) -> Monitor:
    return Monitor(**{"every_n_steps": 1, "on_error": "raise", "max_overhead": None, **options})


def train(monitor: Monitor, model: Any, steps: int = 3, start: int = 0, **options: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor.start(model, start)
    for step in range(start + 1, start + 1 + steps):
        x, y = batch(step, **options)
        optimizer.zero_grad()
        model.loss(x, y).backward()
        optimizer.step()
        monitor.see((x, y))
        monitor.step(model, step)


def numbers(monitor: Monitor) -> list[dict[str, float]]:
    (head,) = monitor.heads.values()
    kept = ("seen", "out_of_reach", "undecided")
    return [{k: r.label_sets[k] for k in kept} if r.label_sets else {} for r in head.records]


class TestWhatIsAsked:
    def test_targets_by_default(self) -> None:
        monitor, model = watch(), net()
        train(monitor, model)
        assert list(monitor.heads) == ["head"]
        found = numbers(monitor)
        assert found[0] == {}
        distinct = [
            len(torch.cat([batch(i)[1] for i in range(1, n)]).unique(dim=0)) for n in (2, 3)
        ]
        assert [one["seen"] for one in found[1:3]] == distinct
        assert found[-1]["out_of_reach"] > 0
        assert int(monitor.label_sets["head"].asked.times.sum()) == 96
        assert monitor.label_sets["head"].asked.exact
        monitor.finish(model, 3)
        assert not model.head.loss._forward_pre_hooks

    def test_none_if_not_wanted(self) -> None:
        monitor, model = watch(label_sets=False), net()
        train(monitor, model)
        assert monitor.label_sets == {}
        assert not model.head.loss._forward_pre_hooks
        assert numbers(monitor)[-1] == {}

    def test_nobody_asks_of_a_plain_layer(self) -> None:
        model = net()
        monitor = watch(layer="body", rule=None, domain="box:1")
        train(monitor, model)
        assert monitor.label_sets == {}

    def test_sets_that_are_given_to_a_plain_layer(self) -> None:
        model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, LABELS, bias=False))
        monitor = watch(label_sets=[[0], list(range(LABELS))], rule="top")
        monitor.start(model)
        (found,) = monitor.label_sets.values()
        assert found.report.rule == "largest logits"
        assert len(found.report.status) == 2
        with pytest.raises(UnargError, match="expected label ids from 0"):
            watch(label_sets=[[LABELS]]).start(model)
        assert watch(rule="threshold:0.5").start(model).records[0].label_sets == {}

    def test_a_function_of_the_batch(self) -> None:
        model = net()
        monitor = watch(label_sets=lambda batch: batch[1][:4])
        train(monitor, model)
        assert int(monitor.label_sets["head"].asked.times.sum()) == 12
        assert not model.head.loss._forward_pre_hooks
        monitor.finish(model, 3)
        monitor.see(batch())
        monitor.state_dict()

    @pytest.mark.parametrize("value", [3, 1.5, b"sets", {1, 2}, "no_such_module:f"])
    def test_no_label_sets(self, value: Any) -> None:
        with pytest.raises(UnargError, match="label_sets"):
            watch(label_sets=value)

    def test_ranked_by_size(self) -> None:
        model = net()
        model.head.map = named_map("spherical_softmax")
        monitor = watch()
        train(monitor, model)
        assert monitor.label_sets == {}
        report = monitor.last_report
        assert report is not None
        assert any("size of their logits" in note for note in report.notes)
        with pytest.raises(UnargError, match=r"ranked by \|z\|, and no rule is known"):
            watch(label_sets=[[0]]).start(model)
        by_hand = watch(rule="absolute", layer="body")
        by_hand.start(model)
        assert by_hand.last_report is not None
        assert any("size of their logits" in note for note in by_hand.last_report.notes)

    def test_the_rule_follows_the_threshold_and_what_is_learned(self) -> None:
        model = net()
        model.head.map = named_map("sparsegen_lin", lambda_=-1.0, learnable=True)
        monitor = watch()
        train(monitor, model, 1)
        rules = [monitor.label_sets["head"].report.rule]
        with torch.no_grad():
            for parameter in model.head.map.parameters():
                parameter.add_(1)
        train(monitor, model, 1, 1)
        rules.append(monitor.label_sets["head"].report.rule)
        model.head.threshold.fill_(0.2)
        train(monitor, model, 1, 2)
        assert not monitor.label_sets["head"].asked.exact
        rules.append(monitor.label_sets["head"].report.rule)
        assert len(set(rules)) == 3
        assert rules[0].startswith("sparsegen-lin")
        assert rules[2] == "largest logits"

    def test_a_map_of_its_own_needs_a_rule(self) -> None:
        class Own(nn.Module):
            def forward(self, z: Tensor) -> Tensor:
                return z

        model = net()
        model.head.map = Own()
        with pytest.raises(UnargError, match="name the rule"):
            watch().start(model)
        monitor = watch(rule="threshold:0.25")
        train(monitor, model)
        assert monitor.label_sets["head"].report.rule == "threshold 0.25"


class TestSeveralHeads:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = MultilabelHead.named("sparsemax+huber", in_features=2, num_labels=5)
            self.second = nn.Linear(2, 4)

        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            z = self.second(x[:, :2])
            loss: Tensor = self.first.loss(self.first(x[:, :2]), y) + z.square().mean()
            return loss

    def test_dictionaries_by_head(self) -> None:
        torch.manual_seed(0)
        model = self.Two()
        monitor = watch(
            layer=["first", "second"],
            label_sets={"second": [[0, 1, 2, 3], []]},
            rule={"second": "threshold:0", "first": "top"},
        )
        train(monitor, model, labels=5)
        found = monitor.label_sets
        assert set(found) == {"first", "second"}
        assert found["first"].report.rule == "largest logits"
        assert found["second"].asked.sets.tolist() == [[True] * 4, [False] * 4]
        records = [monitor.heads[name].records[-1].label_sets["seen"] for name in found]
        assert records[1] == 2.0
        assert records[0] > 2
        state = monitor.state_dict()
        other = watch(layer=["first", "second"], label_sets={"second": [[0]]})
        other.load_state_dict(state)
        other.start(model, 3)
        other.finish(model, 3)
        with pytest.raises(UnargError, match="other"):
            watch(layer=["first", "second"], label_sets={"other": [[0]]})


class TestTrouble:
    def test_nan_and_back(self) -> None:
        monitor, model = watch(), net()
        train(monitor, model, 1)
        with torch.no_grad():
            kept = model.head.linear.weight.clone()
            model.head.linear.weight[0, 0] = float("nan")
        model.loss(*batch(7))
        with pytest.warns(UserWarning, match="no check at step 2"):
            assert monitor.step(model, 2).records[0].label_sets == {}
        with torch.no_grad():
            model.head.linear.weight.copy_(kept)
        found = monitor.step(model, 3).records[0].label_sets
        # What was seen meanwhile isn't lost.
        assert int(monitor.label_sets["head"].asked.times.sum()) == 64
        assert found["seen"] > 0

    def test_a_head_that_is_replaced(self) -> None:
        monitor, model = watch(), net()
        train(monitor, model, 2)
        old = model.head.loss
        model.head = MultilabelHead.named("sparsemax+huber", in_features=2, num_labels=LABELS)
        monitor.step(model, 3)
        assert not old._forward_pre_hooks
        model.loss(*batch(3))
        monitor.step(model, 4)
        assert int(monitor.label_sets["head"].asked.times.sum()) == 96

    def test_a_loss_that_is_replaced(self) -> None:
        monitor, model = watch(), net()
        train(monitor, model, 1)
        old, model.head.loss = model.head.loss, copy.deepcopy(model.head.loss)
        monitor.step(model, 2)
        assert not old._forward_pre_hooks
        model.loss(*batch(3))
        monitor.step(model, 3)
        assert int(monitor.label_sets["head"].asked.times.sum()) == 64

    def test_a_layer_that_grows(self) -> None:
        monitor, model = watch(), net()
        train(monitor, model, 2)
        model.head.linear = nn.Linear(2, LABELS + 3)
        with pytest.warns(UserWarning, match="none was seen yet"):
            monitor.step(model, 3)
        assert model.head.loss._forward_pre_hooks
        for step in (4, 5):
            model.loss(*batch(step, LABELS + 3))
            monitor.step(model, step)
        asked = monitor.label_sets["head"].asked
        assert asked.sets.shape[1] == LABELS + 3
        assert int(asked.times.sum()) == 64

    def test_a_compiled_model_is_told_once(self) -> None:
        torch._dynamo.reset()
        monitor, model = watch(), net()
        compiled = torch.compile(model.loss, backend="eager", fullgraph=True)
        monitor.start(model)
        compiled(*batch(1)).backward()
        with pytest.warns(UserWarning, match="no label sets of head: none was seen yet"):
            monitor.step(model, 1)
        for step in (2, 3):  # Another warning would be an error.
            compiled(*batch(step)).backward()
            monitor.step(model, step)
        assert numbers(monitor)[-1] == {}

    def test_what_a_compiled_model_shows_to_a_function(self) -> None:
        torch._dynamo.reset()
        monitor, model = watch(label_sets=lambda batch: batch[1]), net()
        model.loss = torch.compile(model.loss, backend="eager", fullgraph=True)  # type: ignore[method-assign]
        train(monitor, model)
        assert int(monitor.label_sets["head"].asked.times.sum()) == 96

    def test_a_function_that_fails_retires_the_monitor(self) -> None:
        def labels(batch: Any) -> Any:
            raise KeyError("labels")

        monitor, model = watch(label_sets=labels, on_error="warn"), net()
        with pytest.warns(UserWarning, match="label_sets failed on a training batch: KeyError"):
            train(monitor, model)
        assert monitor.retired is not None
        assert "label_sets failed" in monitor.retired
        with pytest.raises(UnargError, match="label_sets failed"):
            train(watch(label_sets=labels), net())

    def test_a_retired_monitor_watches_no_longer(self) -> None:
        monitor, model = watch(label_sets=lambda batch: 1 / 0, on_error="warn"), net()
        with pytest.warns(UserWarning, match="ZeroDivisionError"):
            train(monitor, model)
        monitor.finish(model, 3)
        assert monitor.state_dict()["heads"]["head"]["label_sets"]["seen"]["left_out"] == 0


class TestGoingOn:
    def test_copies_of_the_monitor_and_of_the_model(self) -> None:
        monitor, model = watch(), net()
        train(monitor, model)
        for other in (copy.deepcopy(monitor), pickle.loads(pickle.dumps(monitor))):
            twin = pickle.loads(pickle.dumps(model))
            train(other, twin, 1, 3)
            assert int(other.label_sets["head"].asked.times.sum()) == 128
        assert int(monitor.label_sets["head"].asked.times.sum()) == 96

    def test_a_second_training_starts_from_nothing(self) -> None:
        monitor, model = watch(), net()
        train(monitor, model)
        monitor.finish(model, 3)
        train(monitor, model, 1)
        assert int(monitor.label_sets["head"].asked.times.sum()) == 32

    def test_rows_that_no_check_has_counted_yet_are_saved(self) -> None:
        monitor, model = watch(every_n_steps=3), net()
        train(monitor, model, 4)
        assert int(monitor.label_sets["head"].asked.times.sum()) == 96
        other = watch(every_n_steps=3)
        other.load_state_dict(monitor.state_dict())
        train(other, model, 2, 4)
        assert int(other.label_sets["head"].asked.times.sum()) == 192
        assert other.records[-1].label_sets["seen"] >= monitor.records[-1].label_sets["seen"]

    def test_heads_that_get_their_names_late(self) -> None:
        """The state of a head found by itself is taken up when it is opened already."""
        model = net()
        first = watch(layer={"a": "head"})
        train(first, model)
        second = watch(layer={"a": "head"})
        second._saved = first.state_dict()["heads"]
        train(second, model, 1, 3)
        assert int(second.label_sets["a"].asked.times.sum()) == 128

    @pytest.mark.parametrize("label_sets", [None, [[0, 1]]])
    def test_a_saved_state_without_label_sets(self, label_sets: Any) -> None:
        model = net()
        first = watch(label_sets=False)
        train(first, model)
        second = watch(label_sets=label_sets)
        second._saved = first.state_dict()["heads"]
        train(second, model, 1, 3)
        assert len(second.label_sets["head"].asked.times) > 0

    # A check of a run this short is late.
    @pytest.mark.filterwarnings("ignore:UnargmaxabilityMonitor. the check due")
    def test_in_the_background(self) -> None:
        monitor, model = watch(background=True), net()
        train(monitor, model)
        monitor.finish(model, 3)
        line, other = watch(), net()
        train(line, other)
        line.finish(other, 3)
        assert numbers(monitor)[-1] == numbers(line)[-1]

    def test_the_observed_domain(self) -> None:
        monitor, model = watch(domain="observed"), net()
        train(monitor, model)
        (bound,) = {str(monitor.label_sets["head"].report.domain)}
        assert bound == str(monitor.heads["head"].domain) != "box:-100,100"

    def test_every_epoch(self) -> None:
        monitor, model = watch(every_n_steps=0, every_n_epochs=2, at_start=False), net()
        monitor.start(model)
        for epoch in range(4):
            model.loss(*batch(epoch))
            monitor.step(model, epoch + 1)
            monitor.epoch_end(model, epoch + 1, epoch)
        assert [record.step for record in monitor.records] == [2, 4]
        assert int(monitor.label_sets["head"].asked.times.sum()) == 128

    def test_what_evaluation_gives_to_the_loss_is_not_seen(self) -> None:
        monitor, model = watch(), net()
        train(monitor, model, 1)
        model.eval()
        model.loss(*batch(9))
        model.train()
        monitor.step(model, 2)
        assert int(monitor.label_sets["head"].asked.times.sum()) == 32

    def test_excluded_labels(self) -> None:
        monitor, model = watch(exclude=[0, 5]), net()
        train(monitor, model)
        asked = monitor.label_sets["head"].asked
        assert asked.ids.tolist() == [1, 2, 3, 4]
        assert len({tuple(row) for row in asked.sets.tolist()}) == len(asked.sets)
        assert int(asked.times.sum()) == 96


def test_a_sigmoid_at_threshold_0_is_no_reason_to_fail() -> None:
    """It is what a head that is only trained, and read elsewhere, comes with."""
    head = MultilabelHead(3, 8, nn.Sigmoid(), nn.MultiLabelSoftMarginLoss())
    monitor = Monitor(every_n_steps=1, max_overhead=None, on_error="raise")
    monitor.start(head)
    head.loss(head(torch.randn(4, 3)), torch.rand(4, 8).round())
    with pytest.warns(UserWarning, match="the same labels; expected one between 0 and 1"):
        record = monitor.step(head, 1).records[0]
    assert record.classes == 8
    assert not record.label_sets
    head.threshold.fill_(0.5)
    assert monitor.step(head, 2).records[0].label_sets["seen"] > 0
