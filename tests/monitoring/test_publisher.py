"""Findings on their way to outputs that may fail."""

from __future__ import annotations

import warnings

import pytest

from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.publisher import Publisher
from unarg_callback.monitoring.record import CheckRecord

LAYER = OutputLayer([[1.0], [-1.0]])


class Kept:
    def __init__(self, failing: bool = False) -> None:
        self.shown: list[tuple[str, int, bool]] = []
        self.ended: list[str] = []
        self.failing = failing

    def show(self, finding: Finding, *, seen: bool) -> None:
        if self.failing:
            raise OSError("disk full")
        self.shown.append((finding.head, finding.record.step, seen))

    def finish(self, finding: Finding, layer: OutputLayer) -> None:
        self.ended.append(finding.head)


def finding(head: str, step: int, skipped: str | None = None) -> Finding:
    return Finding(head, CheckRecord(step=step, skipped=skipped))


def test_every_output_gets_every_finding() -> None:
    kept = [Kept(), Kept()]
    publisher = Publisher(kept)
    publisher.show([finding("a", 1), finding("b", 1)])
    publisher.show([finding("a", 1), finding("b", 2)])
    for output in kept:
        assert output.shown == [("a", 1, False), ("b", 1, False), ("a", 1, True), ("b", 2, False)]
    publisher.finish("b", LAYER)
    assert kept[1].ended == ["b"]


def test_one_that_fails_is_said_once_and_the_others_go_on() -> None:
    broken, kept = Kept(failing=True), Kept()
    publisher = Publisher([broken, kept])
    with pytest.warns(
        UserWarning, match="Kept can't write what was found: OSError: disk full"
    ) as w:
        publisher.show([finding("a", 1), finding("a", 2)])
    assert len(w) == 1
    assert len(kept.shown) == 2
    publisher.restart()
    with pytest.warns(UserWarning, match="disk full"):
        publisher.show([finding("a", 3)])


def test_what_is_held_back_is_shown_later() -> None:
    kept = Kept()
    publisher = Publisher([kept])
    publisher.hold([finding("a", 1)])
    publisher.release(1)
    assert not kept.shown
    publisher.release(2)
    publisher.release(3)
    assert kept.shown == [("a", 1, False)]


def test_what_is_replaced_at_its_step_gets_no_point() -> None:
    kept = Kept()
    publisher = Publisher([kept])
    publisher.show([finding("a", 1)])
    publisher.hold([finding("a", 5)])
    publisher.replace(5)
    publisher.show([finding("a", 5)])
    assert kept.shown == [("a", 1, False), ("a", 5, True), ("a", 5, False)]


def test_strict_raises() -> None:
    with pytest.raises(OSError, match="disk full"):
        Publisher([Kept(failing=True)], strict=True).show([finding("a", 1)])


def test_a_skipped_check_is_said_once() -> None:
    publisher = Publisher()
    with pytest.warns(UserWarning, match="no check at step 4: NaN") as caught:
        publisher.show([finding("a", 4, "NaN"), finding("a", 5, "NaN")])
    assert len(caught) == 1


def test_a_silent_one_does_nothing() -> None:
    kept = Kept()
    publisher = Publisher([kept])
    publisher.silent = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        publisher.show([finding("a", 1, "NaN")])
        publisher.finish("a", LAYER)
        publisher.warn_once("x", "y")
    assert not kept.shown
    assert not publisher.latest
