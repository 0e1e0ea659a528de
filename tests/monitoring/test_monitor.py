"""The monitor in plain training loops: heads, cadence, trouble, threads and state."""

from __future__ import annotations

import io
import pickle
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unarg_callback.errors import LayerError, UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.head_monitor import HeadMonitor
from unarg_callback.monitoring.monitor import Monitor
from unarg_callback.verification import verify

pytestmark = pytest.mark.usefixtures("time_enough")

DIM, CLASSES = 2, 12


class Kept:
    """An output that remembers."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.ends: list[tuple[str, OutputLayer]] = []

    def show(self, finding: Finding, *, seen: bool) -> None:
        self.findings.append(finding)

    def finish(self, finding: Finding, layer: OutputLayer) -> None:
        self.ends.append((finding.head, layer))

    @property
    def steps(self) -> list[tuple[str, int]]:
        return [(finding.head, finding.record.step) for finding in self.findings]


def two_heads() -> Any:
    torch.manual_seed(0)
    return nn.ModuleDict({"source": nn.Linear(DIM, CLASSES), "target": nn.Linear(DIM, 2 * CLASSES)})


def one_head() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, DIM), nn.Linear(DIM, CLASSES))


def train(
    model: nn.Module,
    monitor: Monitor,
    steps: int = 10,
    begin: int = 0,
    after: Callable[[int], None] | None = None,
) -> None:
    """A loop that moves every parameter, with its own random numbers."""
    draw = torch.Generator().manual_seed(begin + 1)
    monitor.start(model, begin)
    for step in range(begin + 1, begin + steps + 1):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
        monitor.step(model, step)
        if after is not None:
            after(step)
    monitor.finish(model, begin + steps)


def reason(monitor: Monitor) -> str | None:
    return monitor.retired


def steps_of(monitor: Monitor) -> list[int]:
    return [record.step for record in monitor.records]


class TestCadence:
    def test_start_every_so_often_and_end(self) -> None:
        monitor = Monitor(every_n_steps=4)
        train(one_head(), monitor)
        assert steps_of(monitor) == [0, 4, 8, 10]

    def test_not_at_the_start(self) -> None:
        monitor = Monitor(every_n_steps=4, at_start=False)
        train(one_head(), monitor)
        assert steps_of(monitor) == [4, 8, 10]

    def test_epochs(self) -> None:
        monitor, model = Monitor(every_n_steps=0, every_n_epochs=2), one_head()
        monitor.start(model)
        for epoch in range(5):
            monitor.epoch_end(model, 3 * (epoch + 1), epoch)
        monitor.finish(model, 15)
        assert steps_of(monitor) == [0, 6, 12, 15]

    def test_an_epoch_ends_where_a_check_was_just_made(self) -> None:
        monitor, model = Monitor(every_n_steps=3, every_n_epochs=1), one_head()
        monitor.start(model)
        for epoch in range(2):
            step = 3 * (epoch + 1)
            monitor.step(model, step)
            monitor.epoch_end(model, step, epoch)
        monitor.finish(model, 6)
        assert steps_of(monitor) == [0, 3, 6]

    def test_steps_that_repeat_and_jump(self) -> None:
        monitor, model = Monitor(every_n_steps=5), one_head()
        for step in (0, 0, 2, 4, 4, 6, 8, 10, 10):
            monitor.step(model, step)
        assert steps_of(monitor) == [0, 6, 10]

    def test_a_loop_without_start(self) -> None:
        monitor, model = Monitor(every_n_steps=5), one_head()
        found = [monitor.step(model, step) for step in range(1, 7)]
        assert [len(outcome.records) for outcome in found] == [1, 0, 0, 0, 1, 0]
        assert found[0].values["unarg/1/provable"] == monitor.records[0].provable

    @pytest.mark.parametrize("wrong", [{"every_n_epochs": -1}, {"every_n_epochs": 1.5}])
    def test_no_such_cadence(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(UnargError, match="every_n_epochs"):
            Monitor(**wrong)


class TestHeads:
    def test_several_by_path(self) -> None:
        kept = Kept()
        monitor = Monitor(["source", "target"], 5, outputs=[kept])
        train(two_heads(), monitor, 5)
        assert kept.steps == [("source", 0), ("target", 0), ("source", 5), ("target", 5)]
        assert [head for head, _ in kept.ends] == ["source", "target"]
        assert [layer.classes for _, layer in kept.ends] == [CLASSES, 2 * CLASSES]

    def test_several_by_name_each_with_its_own_settings(self) -> None:
        model = two_heads()
        monitor = Monitor(
            {"x": "source", "y": model["target"], "z": lambda m: m["source"].weight * 2},
            domain={"y": "nonnegative:5"},
            labels={"x": [f"w{i}" for i in range(CLASSES)]},
            exclude={"x": "0-2"},
        )
        monitor.start(model)
        reports = {name: head.last_report for name, head in monitor.heads.items()}
        x, y, z = reports["x"], reports["y"], reports["z"]
        assert x is not None
        assert y is not None
        assert z is not None
        assert x.counts["excluded"] == 3
        assert x.name(4) == "w4"
        assert str(x.domain).startswith("box")
        assert str(y.domain) == "box:0,5"
        assert (
            y.status.tolist()
            == verify(
                OutputLayer(*model["target"].parameters()),
                "nonnegative:5",
            ).status.tolist()
        )
        assert z.classes == CLASSES

    def test_the_only_one_is_asked_for(self) -> None:
        monitor = Monitor(["source", "target"])
        with pytest.raises(UnargError, match="several heads .*'source', 'target'"):
            _ = monitor.last_report

    def test_two_of_one_name(self) -> None:
        model = two_heads()
        monitor = Monitor([*("source",) * 2])
        with pytest.raises(UnargError, match="two heads have the name 'source'"):
            monitor.start(model)

    def test_a_layer_that_is_not_there(self) -> None:
        with pytest.raises(LayerError, match="no layer 'decoder'"):
            Monitor("decoder").start(one_head())

    def test_time_is_shared_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limits: list[float | None] = []
        check = HeadMonitor.check

        def watch(self: HeadMonitor, *arguments: Any, **options: Any) -> Any:
            limits.append(options["time_limit"])
            return check(self, *arguments, **options)

        monkeypatch.setattr(HeadMonitor, "check", watch)
        monitor = Monitor(["source", "target"], 5)
        train(two_heads(), monitor, 6)
        first, second = limits[:2]
        assert first == pytest.approx(1800, abs=60)
        assert second == pytest.approx(3600, abs=60)
        # The last check has no limit.
        assert limits[-2:] == [None, None]


class TestGrowth:
    def test_classes_that_are_added_while_training(self) -> None:
        model: Any = one_head()
        monitor = Monitor("1", 5, labels=[f"w{i}" for i in range(CLASSES)])

        def grow(step: int) -> None:
            if step == 5:
                old, model[1] = model[1], nn.Linear(DIM, CLASSES + 3)
                with torch.no_grad():
                    model[1].weight[:CLASSES] = old.weight
                    model[1].bias[:CLASSES] = old.bias

        lost: dict[int, int] = {}

        def remember(step: int) -> None:
            grow(step)
            if step == 5:
                lost.update(monitor.heads["1"].provable_since)

        train(model, monitor, 10, after=remember)
        report = monitor.last_report
        assert report is not None
        assert report.classes == CLASSES + 3
        assert [record.classes for record in monitor.records] == [CLASSES] * 2 + [CLASSES + 3]
        assert report.names is not None
        assert report.names[CLASSES - 1] == f"w{CLASSES - 1}"
        since = monitor.heads["1"].provable_since
        stayed = [index for index in lost if index in since]
        assert stayed
        assert all(since[index] == lost[index] for index in stayed)


class TestHarmless:
    def test_nothing_global_changes(self) -> None:
        def drawn() -> tuple[Any, ...]:
            return torch.rand(3).tolist(), np.random.rand(), random.random()  # noqa: NPY002

        def run(watched: bool, background: bool = False) -> tuple[Any, ...]:
            torch.manual_seed(3)
            np.random.seed(3)  # noqa: NPY002
            random.seed(3)
            model = two_heads().train()
            monitor = Monitor(
                {"a": "source", "b": lambda m: m["target"].weight + torch.rand(()) * 0},
                every_n_steps=100 if background else 2,
                max_overhead=None,
                background=background,
            )
            with torch.enable_grad():
                if watched:
                    train(model, monitor, 6)
                else:
                    train(model, Monitor("source", 0, at_start=False), 6)
                return drawn(), torch.is_grad_enabled(), torch.get_default_dtype(), model.training

        assert run(watched=True) == run(watched=False)
        assert run(watched=True, background=True) == run(watched=False)

    def test_what_was_copied_may_change(self) -> None:
        monitor, model = Monitor(every_n_steps=1), one_head()
        outcome = monitor.start(model)
        before = monitor.last_report
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        assert outcome.records[0].provable < CLASSES
        assert before is not None
        assert before.counts["unargmaxable"] == outcome.records[0].provable

    def test_an_exception_is_one_warning_and_the_end_of_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("out of memory")

        monitor, model = Monitor(every_n_steps=1), one_head()
        monitor.start(model)
        monkeypatch.setattr(HeadMonitor, "check", fail)

        def go_on() -> None:
            for step in (1, 2, 3):
                assert not monitor.step(model, step).records
            monitor.finish(model, 3)

        with pytest.warns(UserWarning, match="failed at step 1 .* RuntimeError: out of mem") as w:
            go_on()
        assert len(w) == 1
        assert monitor.retired == "RuntimeError: out of memory"
        assert [record.step for record in monitor.records] == [0, 1]
        assert monitor.last_report is None
        monkeypatch.undo()
        train(model, monitor, 2, begin=3)
        assert not reason(monitor)
        assert monitor.records[-1].skipped is None

    def test_it_can_raise_instead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("out of memory")

        monkeypatch.setattr(HeadMonitor, "check", fail)
        monitor = Monitor(on_error="raise")
        with pytest.raises(RuntimeError, match="out of memory"):
            monitor.start(one_head())
        with pytest.raises(UnargError, match="on_error is 'ignore'"):
            Monitor(on_error="ignore")  # type: ignore[arg-type]

    def test_nan_is_an_event_and_the_next_check_is_made(self) -> None:
        seen: list[Event] = []
        monitor, model = Monitor(every_n_steps=1, on_event=seen.append), one_head()
        monitor.start(model)
        weight: Tensor = model.get_parameter("1.weight")
        with torch.no_grad():
            value = float(weight[0, 0])
            weight[0, 0] = torch.nan
            with pytest.warns(UserWarning, match="no check at step 1: weight has NaN"):
                monitor.step(model, 1)
            weight[0, 0] = value
        monitor.step(model, 2)
        assert [record.skipped is None for record in monitor.records] == [True, False, True]
        assert [event.kind for event in seen] == ["not_finite"]
        assert monitor.records[-1].warm

    def test_a_layer_that_goes_away(self) -> None:
        model: Any = two_heads()
        monitor = Monitor("target", 1)
        monitor.start(model)
        del model["target"]
        with pytest.warns(UserWarning, match="no layer 'target'"):
            monitor.step(model, 1)
        assert monitor.retired is not None

    def test_stop(self) -> None:
        monitor, model = Monitor("1", 1, on_event=lambda event: "stop"), one_head()
        assert not monitor.start(model).stop
        with torch.no_grad():
            model.get_parameter("1.weight")[0] = torch.inf
        with pytest.warns(UserWarning, match="no check"):
            outcome = monitor.step(model, 1)
        assert outcome.stop
        assert not monitor.step(model, 1).stop


class TestBackground:
    def test_findings_have_the_step_they_belong_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        go = threading.Event()
        check = HeadMonitor.check
        threads: list[str] = []

        def wait(self: HeadMonitor, *arguments: Any, **options: Any) -> Any:
            threads.append(threading.current_thread().name)
            go.wait(60)
            return check(self, *arguments, **options)

        monkeypatch.setattr(HeadMonitor, "check", wait)
        kept, model = Kept(), one_head()
        monitor = Monitor(every_n_steps=2, background=True, outputs=[kept])
        copied = OutputLayer(*model[1].parameters()).copy()
        monitor.start(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(-1).add_(0.3)
        assert not monitor.step(model, 1).records
        assert not monitor.step(model, 2).records
        go.set()
        monitor._background._thread.join()  # type: ignore[union-attr]
        assert [record.step for record in monitor.step(model, 3).records] == [0]
        # The check that was due at 2 had to wait, and begins now.
        monitor._background._thread.join()  # type: ignore[union-attr]
        assert [record.step for record in monitor.step(model, 4).records] == [3]
        monitor.finish(model, 5)
        assert kept.steps == [("1", 0), ("1", 3), ("1", 4), ("1", 5)]
        assert threads[:3] == ["unarg_callback"] * 3
        report = kept.findings[0].report
        assert report is not None
        assert report.status.tolist() == verify(copied).status.tolist()

    def test_the_same_verdicts_as_in_line(self) -> None:
        kept = [Kept(), Kept()]
        for output, background in zip(kept, (False, True), strict=True):
            monitor = Monitor(every_n_steps=3, background=background, outputs=[output])

            def wait(step: int, monitor: Monitor = monitor) -> None:
                if monitor._background is not None and monitor._background._thread is not None:
                    monitor._background._thread.join()

            train(one_head(), monitor, 10, after=wait)
        assert kept[0].steps == kept[1].steps
        for inline, beside in zip(kept[0].findings, kept[1].findings, strict=True):
            assert inline.report is not None
            assert beside.report is not None
            assert inline.report.status.tolist() == beside.report.status.tolist()

    def test_what_fails_there_retires_the_monitor_here(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("out of memory")

        monkeypatch.setattr(HeadMonitor, "check", fail)
        monitor, model = Monitor(background=True), one_head()
        monitor.start(model)
        with pytest.warns(UserWarning, match="out of memory"):
            monitor.finish(model, 1)
        assert monitor.retired is not None

    def test_an_interrupted_training_loses_no_finding(self) -> None:
        kept, model = Kept(), one_head()
        monitor = Monitor(background=True, outputs=[kept])
        monitor.start(model)
        assert [finding.record.step for finding in monitor.interrupt().findings] == [0]
        assert kept.steps == [("1", 0)]

    def test_a_state_can_be_saved_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        go, begun = threading.Event(), threading.Event()
        monitor, model = Monitor(every_n_steps=1, background=True), one_head()
        monitor.start(model)
        monitor._background._thread.join()  # type: ignore[union-attr]
        update = type(monitor.heads["1"].verifier).update

        def wait(*arguments: Any, **options: Any) -> Any:
            begun.set()
            go.wait(60)
            return update(*arguments, **options)

        monkeypatch.setattr(type(monitor.heads["1"].verifier), "update", wait)
        monitor.step(model, 1)
        assert begun.wait(60)
        state = monitor.state_dict()
        go.set()
        assert [record["step"] for record in state["heads"]["1"]["records"]] == [0]
        # A run that goes on from here makes the check that this state doesn't have.
        assert state["last_step"] == 0
        monitor.finish(model, 1)


class TestState:
    @pytest.mark.parametrize("at", range(1, 9))
    def test_resume_at_any_step(self, at: int) -> None:
        model, whole = one_head(), Monitor(every_n_steps=3)
        states: dict[int, Any] = {}
        weights: dict[int, Any] = {}

        def save(step: int) -> None:
            buffer = io.BytesIO()
            torch.save(whole.state_dict(), buffer)
            states[step] = buffer
            weights[step] = {k: v.clone() for k, v in model.state_dict().items()}

        train(model, whole, 9, after=save)
        states[at].seek(0)
        again, resumed = one_head(), Monitor(every_n_steps=3)
        resumed.load_state_dict(torch.load(states[at], weights_only=True))
        again.load_state_dict(weights[at])
        resumed.start(again, at)
        for step in range(at + 1, 10):
            again.load_state_dict(weights[step])
            resumed.step(again, step)
        resumed.finish(again, 9)
        assert steps_of(resumed) == steps_of(whole)
        assert resumed.heads["1"].provable_since == whole.heads["1"].provable_since
        assert all(r.warm for r in resumed.records if r.step)

    def test_each_head_has_its_own(self) -> None:
        first, second = (Monitor({"x": "source", "y": "target"}, 5) for _ in range(2))
        model = two_heads()
        train(model, first, 5)
        second.load_state_dict(first.state_dict())
        assert not second.start(model, 6).records
        outcome = second.step(model, 10)
        assert [record.warm for record in outcome.records] == [True, True]
        for name in ("x", "y"):
            assert second.heads[name].provable_since == first.heads[name].provable_since

    def test_heads_that_get_their_names_when_training_starts(self) -> None:
        model = two_heads()
        first, second = (Monitor([model["source"], model["target"]], 5) for _ in range(2))
        train(model, first, 5)
        second.load_state_dict(first.state_dict())
        second.start(model, 6)
        assert second.step(model, 10).records[1].warm
        assert second.heads["target"].provable_since == first.heads["target"].provable_since

    def test_an_earlier_training_is_not_gone_on_with(self) -> None:
        model, monitor = one_head(), Monitor(every_n_steps=5)
        train(model, monitor, 10)
        train(model, monitor, 3)
        assert steps_of(monitor) == [0, 5, 10, 0, 3]
        assert set(monitor.heads["1"].provable_since.values()) <= {0, 3}

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"heads": 3},
            {"heads": {"1": 3}},
            {"last_step": "x", "budget": 7, "heads": {"1": {}}},
        ],
    )
    def test_a_damaged_state_is_a_fresh_start(self, wrong: dict[str, Any]) -> None:
        monitor = Monitor(every_n_steps=5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            monitor.load_state_dict(wrong)
        train(one_head(), monitor, 5)
        assert steps_of(monitor) == [0, 5]

    def test_its_size_is_bounded(self) -> None:
        torch.manual_seed(0)
        model = nn.Linear(64, 4000, bias=False)
        monitor = Monitor()
        monitor.start(model)
        buffer = io.BytesIO()
        torch.save(monitor.state_dict(), buffer)
        report = monitor.last_report
        assert report is not None
        lost = report.counts["unargmaxable"]
        assert buffer.tell() < 0.7 * 4 * 64 * 4000 + 50 * 65 * lost + 20_000

    def test_it_pickles_in_the_middle_of_a_training(self) -> None:
        monitor, model = Monitor(background=True), one_head()
        monitor.start(model)
        again = pickle.loads(pickle.dumps(monitor))
        monitor.finish(model, 1)
        again.finish(model, 1)
        train(model, again, 2)
        assert again.records[-1].step == 2
