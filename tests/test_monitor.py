"""When a check is due, what is known since when, and what of it survives in a checkpoint."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import unarg_callback.monitor as monitor_module
from unarg_callback.errors import DomainError, UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.monitor import KEPT_RECORDS, Cadence, CheckRecord, Monitor
from unarg_callback.report import Report

CORNERS = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]


def layer(*inside: list[float], names: list[str] | None = None) -> OutputLayer:
    """Four classes at the corners of a square, and others: those inside it are unargmaxable."""
    return OutputLayer([*CORNERS, *inside], names=names)


INNER = [0.1, 0.2]
OUTER = [3.0, 0.0]


def due_steps(cadence: Cadence, seen: list[int]) -> list[int]:
    fired = []
    for step in seen:
        if cadence.due(step):
            cadence.mark(step)
            fired.append(step)
    return fired


class TestCadence:
    def test_every_multiple_once(self) -> None:
        assert due_steps(Cadence(3), list(range(1, 11))) == [3, 6, 9]

    def test_accumulated_batches_see_a_step_several_times(self) -> None:
        assert due_steps(Cadence(2), [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4]) == [2, 4]

    def test_steps_that_jump_over_a_multiple(self) -> None:
        assert due_steps(Cadence(5), list(range(2, 16, 2))) == [6, 10]
        assert due_steps(Cadence(3), list(range(2, 16, 2))) == [4, 6, 10, 12]

    def test_a_jump_over_several_multiples_is_one_check(self) -> None:
        assert due_steps(Cadence(2), [1, 9, 10, 11]) == [9, 10]

    def test_step_zero_only_if_asked(self) -> None:
        assert due_steps(Cadence(2), [0, 0, 1, 2]) == [2]
        assert due_steps(Cadence(2, at_start=True), [0, 0, 1, 2]) == [0, 2]

    def test_never(self) -> None:
        assert due_steps(Cadence(0), list(range(10))) == []

    def test_asking_changes_nothing(self) -> None:
        cadence = Cadence(2)
        assert cadence.due(2)
        assert cadence.due(2)

    def test_a_mark_from_an_earlier_run_is_forgotten(self) -> None:
        cadence = Cadence(2)
        cadence.mark(100)
        assert cadence.restart(0)
        assert due_steps(cadence, [1, 2, 3]) == [2]

    def test_a_mark_from_the_same_run_is_kept(self) -> None:
        cadence = Cadence(10)
        cadence.mark(20)
        assert not cadence.restart(25)
        assert due_steps(cadence, [26, 29, 30]) == [30]

    @pytest.mark.parametrize("every", [-1, 1.5, "3", True, None])
    def test_bad_intervals(self, every: Any) -> None:
        with pytest.raises(UnargError, match="every_n_steps"):
            Cadence(every)


class TestCheck:
    def test_counts(self) -> None:
        record = Monitor("box:10").check(layer(INNER, INNER, OUTER), 7)
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
        record = Monitor().check(excluded, 1)
        assert (record.provable, record.excluded, record.argmaxable) == (0, 1, 4)

    def test_since_when(self) -> None:
        monitor = Monitor("box:10")
        for step, rows in ((10, [INNER, OUTER]), (20, [INNER, [0.0, 0.5]]), (30, [INNER, OUTER])):
            monitor.check(layer(*rows), step)
            if step == 20:
                assert monitor.provable_since == {4: 10, 5: 20}
        assert monitor.provable_since == {4: 10}

    def test_an_interruption_begins_a_new_time(self) -> None:
        monitor = Monitor("box:10")
        for step, row in ((1, INNER), (2, OUTER), (3, INNER)):
            monitor.check(layer(row), step)
        assert monitor.provable_since == {4: 3}

    def test_who_appeared_and_who_returned(self) -> None:
        monitor = Monitor("box:10")
        changes = []
        for step, rows in enumerate([[INNER, INNER], [OUTER, INNER], [INNER, OUTER]]):
            record = monitor.check(layer(*rows), step)
            changes.append((record.appeared, record.returned))
        assert changes == [(2, 0), (0, 1), (1, 1)]

    def test_potential_is_kept_apart_from_provable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        status = np.array([Status.ARGMAXABLE, Status.UNDECIDED, Status.UNARGMAXABLE], np.int8)
        monkeypatch.setattr(monitor_module, "verify", faked(status, [True, False, True]))
        monitor = Monitor()
        record = monitor.check(layer(), 5)
        assert monitor.provable_since == {2: 5}
        assert monitor.potential_since == {0: 5, 1: 5, 2: 5}
        assert (record.potential, record.provable, record.undecided) == (2, 1, 1)

    def test_provable_then_undecided_has_not_returned(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monitor = Monitor()
        for step, status in enumerate([Status.UNARGMAXABLE, Status.UNDECIDED]):
            fake = faked(np.full(4, status, np.int8), [True] * 4)
            monkeypatch.setattr(monitor_module, "verify", fake)
            record = monitor.check(layer(), step)
        assert (record.appeared, record.returned) == (0, 0)
        assert monitor.provable_since == {}
        assert monitor.potential_since == dict.fromkeys(range(4), 0)

    def test_a_check_starts_from_the_last_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[Any] = []
        fake = faked(np.ones(4, np.int8), [False] * 4, calls)
        monkeypatch.setattr(monitor_module, "verify", fake)
        monitor = Monitor("free", patience=7, time_limit=2.0, device="cpu")
        monitor.check(layer(), 1)
        first = monitor.last_report
        monitor.check(layer(), 2)
        assert [call["warm_start"] for call in calls] == [None, first]
        assert (calls[0]["patience"], calls[0]["time_limit"]) == (7, 2.0)
        assert calls[0]["device"] == "cpu"

    def test_another_shape_is_another_layer(self) -> None:
        monitor = Monitor("box:10")
        monitor.check(layer(INNER), 1)
        record = monitor.check(layer(OUTER, INNER), 2)
        assert (record.classes, record.appeared) == (6, record.provable)
        assert set(monitor.provable_since.values()) == {2}

    def test_a_warm_check_gives_the_verdicts_of_a_cold_one(self) -> None:
        draw = torch.Generator().manual_seed(3)
        weight = torch.randn(60, 4, generator=draw)
        warm = Monitor("box:10")
        for step in range(6):
            weight = weight + 0.2 * torch.randn(60, 4, generator=draw)
            snapshot = OutputLayer(weight)
            warm.check(snapshot, step)
            cold = Monitor("box:10")
            cold.check(snapshot, step)
            assert warm.last_report is not None
            assert cold.last_report is not None
            assert warm.last_report.status.tolist() == cold.last_report.status.tolist()

    def test_a_skipped_check_forgets_nothing(self) -> None:
        monitor = Monitor("box:10")
        monitor.check(layer(INNER), 1)
        record = monitor.skip(2, "weight has NaN")
        assert (record.skipped, record.classes) == ("weight has NaN", 0)
        monitor.check(layer(INNER), 3)
        assert monitor.provable_since == {4: 1}
        assert [record.step for record in monitor.records] == [1, 2, 3]

    def test_bad_arguments_are_refused_at_once(self) -> None:
        with pytest.raises(DomainError):
            Monitor("sphere:1")
        with pytest.raises(UnargError, match="patience"):
            Monitor(patience=-1)
        with pytest.raises(UnargError, match="time_limit"):
            Monitor(time_limit=0.0)


def test_no_training_framework_is_imported() -> None:
    modules = ", ".join(f"unarg_callback.{name}" for name in ("monitor", "snapshot", "tensorboard"))
    code = f"import sys, unarg_callback, {modules}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"pytorch_lightning", "lightning", "tensorboard"} & set(loaded.stdout.split())


class TestState:
    def test_it_survives_a_safe_load(self) -> None:
        monitor = Monitor("box:10")
        monitor.check(layer(INNER), 4)
        monitor.skip(6, "NaN")
        buffer = io.BytesIO()
        torch.save(monitor.state_dict(), buffer)
        buffer.seek(0)
        other = Monitor("box:10")
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert other.records == monitor.records
        assert other.provable_since == monitor.provable_since == {4: 4}
        assert other.potential_since == monitor.potential_since
        other.check(layer(INNER), 8)
        assert other.provable_since == {4: 4}
        assert other.records[-1].appeared == 0

    def test_it_is_json(self) -> None:
        monitor = Monitor("box:10")
        monitor.check(layer(INNER), 4)
        state = json.loads(json.dumps(monitor.state_dict()))
        other = Monitor("box:10")
        other.load_state_dict(state)
        assert other.state_dict() == monitor.state_dict()

    def test_an_empty_state_is_a_fresh_start(self) -> None:
        monitor = Monitor()
        monitor.load_state_dict({})
        assert monitor.records == []
        assert monitor.provable_since == {}

    def test_records_are_bounded(self) -> None:
        monitor = Monitor()
        for step in range(KEPT_RECORDS + 5):
            monitor.skip(step, "")
        kept = monitor.state_dict()["records"]
        assert len(kept) == KEPT_RECORDS
        assert kept[-1]["step"] == KEPT_RECORDS + 4

    def test_unknown_fields_of_a_record_are_left_out(self) -> None:
        assert CheckRecord.from_dict({"step": 3, "new_field": 1}) == CheckRecord(step=3)

    def test_what_was_found_in_another_domain_is_forgotten(self) -> None:
        monitor, other = Monitor("box:10"), Monitor("box:20")
        monitor.check(layer(INNER), 4)
        other.load_state_dict(monitor.state_dict())
        assert other.provable_since == {}
        assert other.records == monitor.records

    def test_state_of_another_layer_is_forgotten(self) -> None:
        monitor, other = Monitor("box:10"), Monitor("box:10")
        monitor.check(layer(INNER), 4)
        other.load_state_dict(monitor.state_dict())
        other.check(layer(INNER, INNER), 8)
        assert other.provable_since == {4: 8, 5: 8}


def faked(status: np.ndarray, potential: list[bool], calls: list[Any] | None = None) -> Any:
    """A stand-in for ``verify`` that returns these verdicts whatever the layer."""

    def verify(snapshot: OutputLayer, domain: Any, **options: Any) -> Report:
        if calls is not None:
            calls.append(options)
        nobody = np.full(len(status), -1)
        return Report(
            dim=snapshot.dim,
            domain=domain,
            min_lead=0.0,
            status=status,
            lead=np.zeros(len(status)),
            reflections=np.zeros(len(status), np.int64),
            rival=nobody,
            duplicate_of=nobody,
            potential=np.array(potential),
            names=None,
            proofs=None,  # type: ignore[arg-type]
            seconds=0.0,
            complete=True,
        )

    return verify
