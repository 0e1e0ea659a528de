"""What happened to classes between two checks, and what is done about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unarg_callback.errors import UnargError
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.import_path import resolved, told
from unarg_callback.monitoring.warn import warn
from unarg_callback.report import printable

EventKind = Literal["unargmaxable", "returned", "not_finite"]
"""Became provably unargmaxable; is argmaxable again; no check, as the layer has NaN or inf."""

MAX_NAMES = 8
"""Most classes that a sentence names."""

_NAME_CHARACTERS = 48
_ACTIONS = ("log", "warn", "stop", "ignore")
_EXPECTED = (
    f"expected {', '.join(repr(action) for action in _ACTIONS)}, a callable that takes one Event, "
    "or the import path of one, such as 'package.module:function'"
)


@dataclass(frozen=True)
class Event:
    """Something that a check found and the one before it had not.

    Args:
        kind: "unargmaxable", "returned" or "not_finite".
        step: optimizer steps taken when the layer was copied.
        classes: ids of the classes that it is about, ascending; none if it is about the layer.
        names: a name for each of them, or empty where classes have none.
        head: the layer's part of each tag.

    Raises:
        UnargError: there is no such kind, or names don't fit the classes.
    """

    kind: EventKind
    step: int
    classes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    head: str = "output"

    def __post_init__(self) -> None:
        if self.kind not in get_args(EventKind):
            raise UnargError(
                f"kind is {self.kind!r}; expected one of {', '.join(get_args(EventKind))}"
            )
        if self.names and len(self.names) != len(self.classes):
            raise UnargError(
                f"{len(self.names)} names for {len(self.classes)} classes; expected one for each"
            )

    def text(self) -> str:
        """One sentence, of bounded length, that no name can break out of.

        >>> Event("returned", 1200, (4, 9), ("jian3", "nan1"), "generator").text()
        'generator, step 1,200: 2 classes are argmaxable again: 4 jian3, 9 nan1.'
        """
        where = f"{_short(self.head)}, step {self.step:,}"
        if self.kind == "not_finite":
            return f"{where}: not checked, as the layer has NaN or infinite values."
        count = len(self.classes)
        verb = "became provably unargmaxable"
        if self.kind == "returned":
            verb = f"{'is' if count == 1 else 'are'} argmaxable again"
        who = ", ".join(self._labels())
        more = f" and {count - MAX_NAMES:,} more" if count > MAX_NAMES else ""
        return f"{where}: {count:,} {'class' if count == 1 else 'classes'} {verb}: {who}{more}."

    def _labels(self) -> list[str]:
        """Id and name of the first classes; the id alone where there is no name."""
        ids = [str(index) for index in self.classes[:MAX_NAMES]]
        if not self.names:
            return ids
        return [
            f"{index} {_short(name)}".rstrip() for index, name in zip(ids, self.names, strict=False)
        ]


def changes(
    before: NDArray[np.int8] | None,
    after: NDArray[np.int8],
    *,
    step: int,
    names: Sequence[str] | None = None,
    head: str = "output",
) -> tuple[Event, ...]:
    """What a check changed: at most one event for classes lost and one for classes returned.

    Both need a proof on either side: a class that was never argmaxable isn't lost. An undecided
    class is neither, so that ``before`` should be the last *decided* status of each class, as
    :func:`last_decided` keeps it: else argmaxable, undecided, unargmaxable would go unnoticed.

    Args:
        before: (C,) int8, last decided values of :class:`Status`; None before the first check.
            Another number of classes is another layer, and nothing has changed in it yet.
        after: (C,) int8, what the check found.
        step: optimizer steps taken when the layer was copied.
        names: C names or None.
        head: the layer's part of each tag.

    Raises:
        UnargError: there are names, but not C.

    >>> before, after = np.array([1, 1, 2], np.int8), np.array([1, 2, 1], np.int8)
    >>> [(event.kind, event.classes) for event in changes(before, after, step=50)]
    [('unargmaxable', (1,)), ('returned', (2,))]
    """
    if names is not None and len(names) != len(after):
        raise UnargError(f"{len(names)} names for {len(after)} classes; expected one for each")
    if before is None or before.shape != after.shape:
        return ()
    moves: tuple[tuple[EventKind, Status, Status], ...] = (
        ("unargmaxable", Status.ARGMAXABLE, Status.UNARGMAXABLE),
        ("returned", Status.UNARGMAXABLE, Status.ARGMAXABLE),
    )
    events = []
    for kind, source, target in moves:
        ids: list[int] = np.flatnonzero((before == source) & (after == target)).tolist()
        if ids:
            named = () if names is None else tuple(names[index] for index in ids)
            events.append(Event(kind, step, tuple(ids), named, head))
    return tuple(events)


def last_decided(before: NDArray[np.int8] | None, after: NDArray[np.int8]) -> NDArray[np.int8]:
    """The status of each class at the last check that decided it; undecided if none did.

    Args:
        before: (C,) int8, what this function gave at the check before; None before the first.
            Another number of classes is another layer.
        after: (C,) int8, what the check found.
    """
    if before is None or before.shape != after.shape:
        return after.copy()
    return np.where(after == Status.UNDECIDED, before, after)


class EventHandler:
    """Does with events what the user asked for; a callable that fails doesn't end training.

    ===========  ==============================================================================
    "log"        each event to the logger ``unarg_callback``, at level INFO
    "warn"       one Python warning for all events of a check
    "stop"       asks for training to stop when a class became unargmaxable or the layer has NaN
                 or inf, and logs why, at level WARNING; a class that returned stops nothing
    "ignore"     nothing, as None does
    other text   import path of a callable, "package.module:function" or "package.module.function"
    a callable   is called with each :class:`Event`, and asks to stop by returning "stop"
    ===========  ==============================================================================

    A callable that raises is called again at the next event; the first time, a warning tells the
    cause. Import paths are resolved at once, and again in a process that the handler is sent to.

    Args:
        on_event: one of these.

    Raises:
        UnargError: it is none of these, can't be imported, or can't be called with one argument.

    >>> handler = EventHandler.of("stop")
    >>> handler.handle([Event("returned", 50, (3,))])
    >>> handler.stop_requested
    False
    """

    def __init__(self, on_event: str | Callable[[Event], Any] | None = None) -> None:
        self.on_event = on_event.strip() if isinstance(on_event, str) else on_event
        """What was asked for: text as given, or the callable itself."""
        self.stop_requested = False
        """Whether training should stop; set here, for the owner to act on and to reset."""
        self._warned = False
        self._function = _resolved(self.on_event)

    @classmethod
    def of(cls, on_event: EventHandler | str | Callable[[Event], Any] | None) -> EventHandler:
        """A handler for what the user gave; a handler is taken as it is."""
        return on_event if isinstance(on_event, EventHandler) else cls(on_event)

    def handle(self, events: Sequence[Event]) -> None:
        """Act on the events of one check.

        Args:
            events: all of them, in order; none is fine.
        """
        if self._function is not None:
            for event in events:
                self._call(self._function, event)
        elif self.on_event == "warn" and events:
            warn(" ".join(event.text() for event in events))
        elif self.on_event == "log":
            for event in events:
                _log(logging.INFO, event.text())
        elif self.on_event == "stop":
            for event in events:
                if event.kind != "returned":
                    self._stop(event)

    def _call(self, function: Callable[[Event], Any], event: Event) -> None:
        try:
            answer = function(event)
        except Exception as cause:  # A run of days must not end for what watches it.
            if not self._warned:
                self._warned = True
                warn(
                    f"on_event failed with {told(cause)}; training goes on, and "
                    "later failures are not reported",
                    stacklevel=3,
                )
            return
        if isinstance(answer, str) and answer == "stop":
            self._stop(event)

    def _stop(self, event: Event) -> None:
        self.stop_requested = True
        _log(logging.WARNING, f"{event.text()} Training is asked to stop.")

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if isinstance(self.on_event, str):
            # What a path leads to may not be picklable, and another process can import it itself.
            del state["_function"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_function" not in state:
            self._function = _resolved(self.on_event)


def _resolved(on_event: Any) -> Callable[[Event], Any] | None:
    """The callable to call with each event, or None where there is none."""
    if on_event is None or (isinstance(on_event, str) and on_event in _ACTIONS):
        return None
    return resolved("on_event", on_event, _EXPECTED)


def _short(name: str) -> str:
    """A name of bounded length: cut by characters too, as combining ones take no columns."""
    return printable(name[:_NAME_CHARACTERS])


def _log(level: int, text: str) -> None:
    logging.getLogger("unarg_callback").log(level, "%s", text)
