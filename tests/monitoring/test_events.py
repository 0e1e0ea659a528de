"""What changed between two checks, the sentence that says so, and what is done about it."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unarg_callback.errors import UnargError
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.events import Event, EventHandler, EventKind, changes, last_decided

LOST = Event("unargmaxable", 50, (3, 7), ("jian3", "nan1"), "generator")
RETURNED = Event("returned", 50, (4,), (), "generator")
NOT_FINITE = Event("not_finite", 50, head="generator")
ALL = (LOST, RETURNED, NOT_FINITE)

A, U, OPEN, OUT = Status.ARGMAXABLE, Status.UNARGMAXABLE, Status.UNDECIDED, Status.EXCLUDED


def statuses(*values: Status) -> np.ndarray:
    return np.array(values, np.int8)


class TestEvent:
    def test_sentences(self) -> None:
        assert [event.text() for event in ALL] == [
            "generator, step 50: 2 classes became provably unargmaxable: 3 jian3, 7 nan1.",
            "generator, step 50: 1 class is argmaxable again: 4.",
            "generator, step 50: not checked, as the layer has NaN or infinite values.",
        ]

    def test_many_classes(self) -> None:
        ids = tuple(range(1000, 3500))
        text = Event("returned", 1_000_000, ids).text()
        assert text.endswith(
            "2,500 classes are argmaxable again: 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007 "
            "and 2,492 more."
        )

    def test_exactly_as_many_as_are_named(self) -> None:
        assert Event("returned", 1, tuple(range(8))).text().endswith(": 0, 1, 2, 3, 4, 5, 6, 7.")

    def test_a_name_without_characters(self) -> None:
        assert Event("returned", 1, (4,), ("",)).text().endswith("again: 4.")

    def test_bad_kinds_and_names(self) -> None:
        with pytest.raises(UnargError, match="'gone'.*returned"):
            Event("gone", 1)  # type: ignore[arg-type]
        with pytest.raises(UnargError, match="1 names for 2 classes"):
            Event("returned", 1, (1, 2), ("a",))

    @given(
        kind=st.sampled_from(get_args(EventKind)),
        names=st.lists(st.text(st.characters()), max_size=12),
        head=st.text(st.characters()),
    )
    def test_no_name_breaks_out(self, kind: EventKind, names: list[str], head: str) -> None:
        text = Event(kind, 10**9, tuple(range(len(names))), tuple(names), head).text()
        assert text.isprintable()
        assert len(text) < 700

    def test_combining_characters_are_bounded_too(self) -> None:
        name = "a" + "\u0301" * 100_000
        assert len(Event("returned", 1, (1,) * 8, (name,) * 8, name).text()) < 700


class TestChanges:
    def test_both_ways(self) -> None:
        before = statuses(A, A, U, U, A, OPEN, OPEN, OUT)
        after = statuses(A, U, A, U, U, A, U, OUT)
        names = ["a", "b", "c", "d", "e", "f", "g", "h"]
        assert changes(before, after, step=9, names=names, head="out") == (
            Event("unargmaxable", 9, (1, 4), ("b", "e"), "out"),
            Event("returned", 9, (2,), ("c",), "out"),
        )

    def test_builtins(self) -> None:
        (event,) = changes(statuses(A), statuses(U), step=9)
        assert (event.names, type(event.classes[0])) == ((), int)

    def test_nothing_changed(self) -> None:
        assert changes(statuses(A, U, OPEN), statuses(A, U, OPEN), step=1) == ()

    def test_no_check_before(self) -> None:
        assert changes(None, statuses(A, U), step=1) == ()

    def test_another_layer(self) -> None:
        assert changes(statuses(A, A), statuses(U, U, U), step=1) == ()
        assert last_decided(statuses(A, A), statuses(U, OPEN, U)).tolist() == [U, OPEN, U]

    def test_names_of_another_layer(self) -> None:
        with pytest.raises(UnargError, match="1 names for 2 classes"):
            changes(statuses(A, A), statuses(A, U), step=1, names=["a"])

    def test_undecided_in_between(self) -> None:
        known: np.ndarray | None = None
        found: list[Event] = []
        for step, status in enumerate([A, OPEN, OPEN, U, OPEN, A, OPEN, A]):
            found += changes(known, statuses(status), step=step)
            known = last_decided(known, statuses(status))
        assert found == [Event("unargmaxable", 3, (0,)), Event("returned", 5, (0,))]

    def test_last_decided_is_a_copy(self) -> None:
        first = statuses(A, U)
        kept = last_decided(None, first)
        first[0] = U
        assert kept.tolist() == [A, U]
        assert last_decided(kept, statuses(OPEN, A)).dtype == np.int8

    @given(st.lists(st.lists(st.sampled_from(Status), min_size=3, max_size=3), max_size=8))
    def test_events_are_those_of_the_decided_checks(self, run: list[list[Status]]) -> None:
        known: np.ndarray | None = None
        found: list[tuple[int, int, str]] = []
        for step, row in enumerate(run):
            for event in changes(known, statuses(*row), step=step):
                found += [(index, step, event.kind) for index in event.classes]
            known = last_decided(known, statuses(*row))
        expected = []
        for index in range(3):
            decided = [(step, row[index]) for step, row in enumerate(run) if row[index] != OPEN]
            for (_, old), (step, new) in zip(decided, decided[1:], strict=False):
                if {old, new} == {A, U}:
                    kind = "unargmaxable" if new == U else "returned"
                    expected.append((index, step, kind))
        assert sorted(found) == sorted(expected)


class TestBuiltInActions:
    def test_log(self, caplog: pytest.LogCaptureFixture) -> None:
        handler = EventHandler.of("log")
        with caplog.at_level(logging.INFO, "unarg_callback"):
            handler.handle(ALL)
        assert caplog.messages == [event.text() for event in ALL]
        assert {(r.name, r.levelno) for r in caplog.records} == {("unarg_callback", logging.INFO)}
        assert not handler.stop_requested

    def test_a_percent_sign_is_only_text(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "unarg_callback"):
            EventHandler.of("log").handle([Event("returned", 1, (1,), ("%s %d",))])
        assert "%s %d" in caplog.messages[0]

    def test_warn_once_a_check(self) -> None:
        handler = EventHandler.of("warn")
        with pytest.warns(UserWarning, match="generator") as caught:
            handler.handle(ALL)
        assert [str(one.message) for one in caught] == [" ".join(event.text() for event in ALL)]
        with pytest.warns(UserWarning, match="argmaxable again"):
            handler.handle([RETURNED])
        assert not handler.stop_requested

    @pytest.mark.parametrize("action", ["ignore", None, " ignore "])
    def test_ignore(self, action: str | None, caplog: pytest.LogCaptureFixture) -> None:
        handler = EventHandler.of(action)
        with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
            warnings.simplefilter("error")
            handler.handle(ALL)
        assert not caplog.records
        assert not handler.stop_requested

    @pytest.mark.parametrize(
        ("event", "stops"), [(LOST, True), (RETURNED, False), (NOT_FINITE, True)]
    )
    def test_stop(self, event: Event, stops: bool, caplog: pytest.LogCaptureFixture) -> None:
        handler = EventHandler.of("stop")
        handler.handle([event])
        assert handler.stop_requested is stops
        assert [event.text() in message for message in caplog.messages] == [True] * stops

    @pytest.mark.parametrize("action", ["log", "warn", "stop", "ignore", None])
    def test_no_events(self, action: str | None, caplog: pytest.LogCaptureFixture) -> None:
        handler = EventHandler.of(action)
        with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
            warnings.simplefilter("error")
            handler.handle([])
        assert not caplog.records
        assert not handler.stop_requested

    def test_a_handler_is_taken_as_it_is(self) -> None:
        handler = EventHandler.of("log")
        assert EventHandler.of(handler) is handler


class Recorder:
    """Keeps the events it is called with."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def __call__(self, event: Event) -> list[Event]:
        self.seen.append(event)
        return self.seen


class TestCallables:
    def test_each_event(self) -> None:
        recorder = Recorder()
        handler = EventHandler.of(recorder)
        handler.handle(ALL)
        assert tuple(recorder.seen) == ALL
        assert not handler.stop_requested

    def test_builtin_methods(self) -> None:
        seen: list[Event] = []
        EventHandler.of(seen.append).handle(ALL)
        assert tuple(seen) == ALL

    @pytest.mark.parametrize("answer", [None, True, "go on", "STOP", np.ones(2), ["stop"]])
    def test_other_answers_stop_nothing(self, answer: Any) -> None:
        handler = EventHandler.of(lambda event: answer)
        handler.handle(ALL)
        assert not handler.stop_requested

    def test_it_may_stop_for_any_event(self) -> None:
        handler = EventHandler.of(lambda event: "stop" if event.kind == "returned" else None)
        handler.handle([LOST, NOT_FINITE])
        assert not handler.stop_requested
        handler.handle([RETURNED])
        assert handler.stop_requested

    def test_failures_are_told_once_and_end_nothing(self) -> None:
        seen = []

        def failing(event: Event) -> None:
            seen.append(event)
            raise OSError("no route\nto host")

        handler = EventHandler.of(failing)
        with pytest.warns(UserWarning, match=r"OSError: no route\\nto host; training") as caught:
            handler.handle(ALL)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            handler.handle(ALL)
        assert len(caught) == 1
        assert tuple(seen) == ALL * 2

    def test_an_interrupt_gets_through(self) -> None:
        def interrupted(event: Event) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            EventHandler.of(interrupted).handle(ALL)

    def test_optional_arguments_are_fine(self) -> None:
        seen: list[Event] = []

        def on_event(event: Event, verbose: bool = False, *rest: Any, **options: Any) -> None:
            seen.append(event)

        EventHandler.of(on_event).handle([LOST])
        assert seen == [LOST]


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package ``site_hooks.alerts`` that can be imported, and modules that can't."""
    package = tmp_path / "site_hooks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "alerts.py").write_text(
        "seen = []\n"
        "on_event = lambda event: seen.append(event)\n"
        "def no_argument(): pass\n"
        "class Pager:\n"
        "    @staticmethod\n"
        "    def page(event): return 'stop'\n"
    )
    (package / "broken.py").write_text("import a_package_that_is_not_there\n")
    (package / "leaving.py").write_text("raise SystemExit(3)\n")
    (package / "lazy.py").write_text("def __getattr__(name): raise RuntimeError('no GPU')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "site_hooks"]:
        del sys.modules[name]


class TestImportPaths:
    @pytest.mark.parametrize("path", ["site_hooks.alerts:on_event", "site_hooks.alerts.on_event"])
    def test_both_forms(self, hooks: Path, path: str) -> None:
        EventHandler.of(f" {path}\n").handle([LOST])
        assert sys.modules["site_hooks.alerts"].seen == [LOST]

    def test_a_method(self, hooks: Path) -> None:
        handler = EventHandler.of("site_hooks.alerts:Pager.page")
        handler.handle([RETURNED])
        assert handler.stop_requested

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ("", "blank"),
            (" \n", "blank"),
            ("Log", "'Log'; expected 'log', 'warn', 'stop', 'ignore'"),
            ("site_hooks.alerts:", "import path"),
            (":on_event", "import path"),
            (".alerts:on_event", "import path"),
            ("site hooks:on_event", "import path"),
            ("site_hooks.alert:on_event", "site_hooks.alert can't be imported .*No module named"),
            ("no_such_module.on_event", "no_such_module can't be imported"),
            ("site_hooks.broken:f", "can't be imported .*a_package_that_is_not_there"),
            ("site_hooks.leaving:f", "can't be imported .*SystemExit: 3"),
            ("site_hooks.lazy:f", "site_hooks.lazy has no f"),
            ("site_hooks.alerts:on_evnt", "site_hooks.alerts has no on_evnt; check its spelling"),
            ("site_hooks.alerts:Pager.pager", "has no Pager.pager"),
            ("site_hooks.alerts:seen", "of type list and not callable; expected"),
            ("site_hooks.alerts:no_argument", "can't be called with one argument"),
            (lambda: None, "can't be called with one argument"),
            (lambda event, trainer: None, "can't be called with one argument.*trainer"),
            (3, "on_event is 3, of type int and not callable"),
            (False, "on_event is False"),
            (["log"], "on_event is .*of type list"),
            (np.zeros(2), "of type ndarray"),
        ],
    )
    def test_what_can_not_be_used(self, hooks: Path, given: Any, told: str) -> None:
        with pytest.raises(UnargError, match=told) as caught:
            EventHandler.of(given)
        assert str(caught.value).isprintable()


class TestCopies:
    @pytest.mark.parametrize("action", ["log", "warn", "stop", "ignore", None])
    def test_of_actions(self, action: str | None) -> None:
        handler = EventHandler.of(action)
        handler.stop_requested = True
        for other in (copy.deepcopy(handler), pickle.loads(pickle.dumps(handler))):
            assert (other.on_event, other.stop_requested) == (action, True)

    def test_of_a_path_to_what_no_pickle_holds(self, hooks: Path) -> None:
        handler = EventHandler.of("site_hooks.alerts:on_event")
        for other in (copy.deepcopy(handler), pickle.loads(pickle.dumps(handler))):
            other.handle([LOST])
            assert other.on_event == "site_hooks.alerts:on_event"
        assert sys.modules["site_hooks.alerts"].seen == [LOST, LOST]

    def test_of_a_callable(self) -> None:
        handler = EventHandler.of(Recorder())
        for other in (copy.deepcopy(handler), pickle.loads(pickle.dumps(handler))):
            other.handle([LOST])
            assert isinstance(other.on_event, Recorder)
            assert other.on_event.seen == [LOST]

    def test_in_another_process(self, hooks: Path) -> None:
        pickled = pickle.dumps(EventHandler.of("site_hooks.alerts:Pager.page"))
        code = (
            "import pickle, sys\n"
            f"sys.path.insert(0, {str(hooks)!r})\n"
            f"handler = pickle.loads({pickled!r})\n"
            "from unarg_callback.monitoring.events import Event\n"
            "handler.handle([Event('returned', 1, (2,))])\n"
            "print(handler.stop_requested, 'pytorch_lightning' in sys.modules)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["True", "False"]

    def test_events(self) -> None:
        for event in ALL:
            assert pickle.loads(pickle.dumps(event)) == copy.deepcopy(event) == event
