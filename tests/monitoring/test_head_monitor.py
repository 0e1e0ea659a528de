"""When a check is due, what is known since when, and what of it survives in a checkpoint."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import unarg_callback.monitoring.head_monitor as monitor_module
from unarg_callback.errors import DomainError, UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.head_monitor import KEPT_RECORDS, HeadMonitor
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report, Reuse

CORNERS = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]


def layer(*inside: list[float], names: list[str] | None = None) -> OutputLayer:
    """Four classes at the corners of a square, and others: those inside it are unargmaxable."""
    return OutputLayer([*CORNERS, *inside], names=names)


INNER = [0.1, 0.2]
OUTER = [3.0, 0.0]


class TestCheck:
    def test_counts(self) -> None:
        record = HeadMonitor("box:10").check(layer(INNER, INNER, OUTER), 7)
        assert (record.step, record.classes, record.skipped) == (7, 7, None)
        assert record.provable == 2
        assert record.argmaxable == 5
        assert record.undecided == record.excluded == 0
        assert record.duplicates == 2
        assert record.potential >= record.provable - record.duplicates
        assert record.complete
        assert record.seconds > 0

    def test_excluded_classes_are_counted_apart(self) -> None:
        excluded = OutputLayer([*CORNERS, INNER], excluded=[4])
        record = HeadMonitor().check(excluded, 1)
        assert (record.provable, record.excluded, record.argmaxable) == (0, 1, 4)

    def test_since_when(self) -> None:
        monitor = HeadMonitor("box:10")
        for step, rows in ((10, [INNER, OUTER]), (20, [INNER, [0.0, 0.5]]), (30, [INNER, OUTER])):
            monitor.check(layer(*rows), step)
            if step == 20:
                assert monitor.provable_since == {4: 10, 5: 20}
        assert monitor.provable_since == {4: 10}

    def test_an_interruption_begins_a_new_time(self) -> None:
        monitor = HeadMonitor("box:10")
        for step, row in ((1, INNER), (2, OUTER), (3, INNER)):
            monitor.check(layer(row), step)
        assert monitor.provable_since == {4: 3}

    def test_who_appeared_and_who_returned(self) -> None:
        monitor = HeadMonitor("box:10")
        changes = []
        for step, rows in enumerate([[INNER, INNER], [OUTER, INNER], [INNER, OUTER]]):
            record = monitor.check(layer(*rows), step)
            changes.append((record.appeared, record.returned))
        assert changes == [(2, 0), (0, 1), (1, 1)]

    def test_potential_is_kept_apart_from_provable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        status = [Status.ARGMAXABLE, Status.UNDECIDED, Status.UNARGMAXABLE]
        monitor = faked(monkeypatch, [status], [True, False, True])
        record = monitor.check(layer(), 5)
        assert monitor.provable_since == {2: 5}
        assert monitor.potential_since == {0: 5, 1: 5, 2: 5}
        assert (record.potential, record.provable, record.undecided) == (2, 1, 1)

    def test_provable_then_undecided_has_not_returned(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = [[Status.UNARGMAXABLE] * 4, [Status.UNDECIDED] * 4]
        monitor = faked(monkeypatch, found, [True] * 4)
        for step in range(2):
            record = monitor.check(layer(), step)
        assert (record.appeared, record.returned) == (0, 0)
        assert monitor.provable_since == dict.fromkeys(range(4), 0)
        assert monitor.potential_since == dict.fromkeys(range(4), 0)

    def test_a_check_starts_from_the_last_one(self) -> None:
        monitor = HeadMonitor("box:10")
        first = monitor.check(layer(INNER), 1)
        second = monitor.check(layer(INNER), 2)
        assert (first.warm, second.warm) == (False, True)
        assert (second.kept, second.provable) == (4, 1)

    def test_options_reach_the_verifier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        options: dict[str, Any] = {}
        monitor = faked(
            monkeypatch,
            [[Status.ARGMAXABLE] * 4],
            [False] * 4,
            options,
            patience=7,
            time_limit=2.0,
            device="cpu",
        )
        monitor.check(layer(), 1)
        assert (options["patience"], options["device"], options["time_limit"]) == (7, "cpu", 2.0)

    def test_another_shape_is_another_layer(self) -> None:
        monitor = HeadMonitor("box:10")
        monitor.check(layer(INNER), 1)
        record = monitor.check(layer(OUTER, INNER), 2)
        assert (record.classes, record.appeared) == (6, record.provable)
        assert set(monitor.provable_since.values()) == {2}

    def test_a_warm_check_gives_the_verdicts_of_a_cold_one(self) -> None:
        draw = torch.Generator().manual_seed(3)
        weight = torch.randn(60, 4, generator=draw)
        warm = HeadMonitor("box:10")
        for step in range(6):
            weight = weight + 0.2 * torch.randn(60, 4, generator=draw)
            snapshot = OutputLayer(weight)
            warm.check(snapshot, step)
            cold = HeadMonitor("box:10")
            cold.check(snapshot, step)
            assert warm.last_report is not None
            assert cold.last_report is not None
            assert warm.last_report.status.tolist() == cold.last_report.status.tolist()

    def test_a_skipped_check_forgets_nothing(self) -> None:
        monitor = HeadMonitor("box:10")
        monitor.check(layer(INNER), 1)
        record = monitor.skip(2, "weight has NaN")
        assert (record.skipped, record.classes) == ("weight has NaN", 0)
        monitor.check(layer(INNER), 3)
        assert monitor.provable_since == {4: 1}
        assert [record.step for record in monitor.records] == [1, 2, 3]

    def test_bad_arguments_are_refused_at_once(self) -> None:
        with pytest.raises(DomainError):
            HeadMonitor("sphere:1")
        with pytest.raises(UnargError, match="patience"):
            HeadMonitor(patience=-1)
        with pytest.raises(UnargError, match="time_limit"):
            HeadMonitor(time_limit=0.0)


def test_no_training_framework_is_imported() -> None:
    rooms = ("monitoring.head_monitor", "snapshots.snapshot", "dashboards.tables")
    modules = ", ".join(f"unarg_callback.{room}" for room in rooms)
    code = f"import sys, unarg_callback, {modules}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"pytorch_lightning", "lightning", "tensorboard"} & set(loaded.stdout.split())


class TestState:
    def test_it_survives_a_safe_load(self) -> None:
        monitor = HeadMonitor("box:10")
        monitor.check(layer(INNER), 4)
        monitor.skip(6, "NaN")
        buffer = io.BytesIO()
        torch.save(monitor.state_dict(), buffer)
        buffer.seek(0)
        other = HeadMonitor("box:10")
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert other.records == monitor.records
        assert other.provable_since == monitor.provable_since == {4: 4}
        assert other.potential_since == monitor.potential_since
        other.check(layer(INNER), 8)
        assert other.provable_since == {4: 4}
        assert other.records[-1].appeared == 0

    def test_a_check_after_a_resume_is_warm(self) -> None:
        monitor, other = HeadMonitor("box:10"), HeadMonitor("box:10")
        monitor.check(layer(INNER), 4)
        other.load_state_dict(monitor.state_dict())
        record = other.check(layer([0.2, 0.2]), 8)
        assert (record.warm, record.provable, record.appeared) == (True, 1, 0)

    def test_changes_are_seen_across_a_resume(self) -> None:
        seen: list[Event] = []
        monitor, other = HeadMonitor("box:10"), HeadMonitor("box:10", on_event=seen.append)
        monitor.check(layer(OUTER), 4)
        assert [entry.index for entry in monitor.at_risk]
        other.load_state_dict(monitor.state_dict())
        assert other.at_risk == monitor.at_risk
        record = other.check(layer(INNER), 8)
        assert [(event.kind, event.classes) for event in seen] == [("unargmaxable", (4,))]
        assert (record.lost, record.forewarned) == (1, 1)

    def test_proofs_of_another_domain_are_tried_again_and_it_says_so(self) -> None:
        monitor, other = HeadMonitor("box:10"), HeadMonitor("box:20")
        monitor.check(layer(INNER), 4)
        other.load_state_dict(monitor.state_dict())
        assert other.check(layer(INNER), 8).warm
        assert other.last_report is not None
        assert "another domain" in other.last_report.notes[0]

    @pytest.mark.parametrize("wrong", [None, "x", 3, [1], float("nan"), torch.zeros(2)])
    def test_a_damaged_state_is_left_out(self, wrong: Any) -> None:
        monitor = HeadMonitor("box:10")
        monitor.check(layer(INNER), 4)
        good = monitor.state_dict()
        for key in good:
            other = HeadMonitor("box:10")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                other.load_state_dict({**good, key: wrong})
            assert other.check(layer(INNER), 8).provable == 1, key

    def test_damage_is_said(self) -> None:
        with pytest.warns(UserWarning, match="saved state can't be used"):
            HeadMonitor().load_state_dict({"records": 3})

    def test_another_number_of_classes_after_a_resume_is_said(self) -> None:
        monitor, other = HeadMonitor("box:10"), HeadMonitor("box:10")
        monitor.check(layer(INNER), 4)
        other.load_state_dict(monitor.state_dict())
        other.check(layer(INNER, INNER), 8)
        assert other.last_report is not None
        assert "the layer was 5 x 2 and is 6 x 2" in other.last_report.notes[0]

    def test_an_empty_state_is_a_fresh_start(self) -> None:
        monitor = HeadMonitor()
        monitor.load_state_dict({})
        assert monitor.records == []
        assert monitor.provable_since == {}

    def test_records_are_bounded(self) -> None:
        monitor = HeadMonitor()
        for step in range(KEPT_RECORDS + 5):
            monitor.skip(step, "")
        kept = monitor.state_dict()["records"]
        assert len(kept) == KEPT_RECORDS
        assert kept[-1]["step"] == KEPT_RECORDS + 4

    def test_unknown_fields_of_a_record_are_left_out(self) -> None:
        assert CheckRecord.from_dict({"step": 3, "new_field": 1}) == CheckRecord(step=3)

    def test_what_was_found_in_another_domain_is_forgotten(self) -> None:
        monitor, other = HeadMonitor("box:10"), HeadMonitor("box:20")
        monitor.check(layer(INNER), 4)
        other.load_state_dict(monitor.state_dict())
        assert other.provable_since == {}
        assert other.records == monitor.records

    def test_state_of_a_smaller_layer_is_kept_for_its_classes(self) -> None:
        monitor, other = HeadMonitor("box:10"), HeadMonitor("box:10")
        monitor.check(layer(INNER), 4)
        other.load_state_dict(monitor.state_dict())
        other.check(layer(INNER, INNER), 8)
        assert other.provable_since == {4: 4, 5: 8}
        assert "Started from nothing" in " ".join(other.last_report.notes)  # type: ignore[union-attr]

    def test_state_of_a_larger_layer_is_forgotten(self) -> None:
        monitor, other = HeadMonitor("box:10"), HeadMonitor("box:10")
        monitor.check(layer(INNER, INNER), 4)
        other.load_state_dict(monitor.state_dict())
        other.check(layer(INNER), 8)
        assert other.provable_since == {4: 8}


def faked(
    monkeypatch: pytest.MonkeyPatch,
    found: list[list[Status]],
    potential: list[bool],
    options: dict[str, Any] | None = None,
    **given: Any,
) -> HeadMonitor:
    """A monitor whose verifier finds one of these after the other, whatever the layer."""
    told = {} if options is None else options
    left = iter(found)

    class Verifier:
        def __init__(self, domain: Any, **options: Any) -> None:
            self.domain = domain
            told.update(options)

        def reset(self) -> None:
            pass

        def update(
            self, snapshot: OutputLayer, *, time_limit: float | None, domain: Domain, stop: object
        ) -> Report:
            told["time_limit"] = time_limit
            status = np.array(next(left), np.int8)
            nobody = np.full(len(status), -1)
            return Report(
                dim=snapshot.dim,
                domain=self.domain,
                min_lead=0.0,
                scale=1.0,
                status=status,
                lead=np.zeros(len(status)),
                measured=np.ones(len(status), bool),
                reflections=np.zeros(len(status), np.int64),
                rival=nobody,
                duplicate_of=nobody,
                potential=np.array(potential),
                names=None,
                age=np.zeros(len(status), np.int64),
                reuse=Reuse(),
                evidence=None,  # type: ignore[arg-type]
                seconds=0.0,
                complete=True,
            )

    monkeypatch.setattr(monitor_module, "IncrementalVerifier", Verifier)
    return HeadMonitor("free", **given)
