"""JSON lines: complete, strict, bounded, and whole again after a run was killed."""

from __future__ import annotations

import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unarg_callback
from tests.dashboards.checks import findings, skipped
from unarg_callback.dashboards.json_lines import (
    FILE_NAME,
    JsonLines,
    json_line,
    json_record,
    read_json_lines,
)
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.early_warning import AtRisk
from unarg_callback.monitoring.record import CheckRecord


def strict(text: str) -> Any:
    """Parse JSON, without the constants that Python's parser takes beyond the standard."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def write(folder: Path, count: int = 3) -> Path:
    lines = JsonLines(folder)
    for finding in findings(easts=(2.0, 1.0, 0.0)[:count]):
        lines.show(finding)
    return folder / FILE_NAME


class TestRecord:
    def test_what_was_found(self) -> None:
        record = json_record(list(findings())[-1])
        assert (record["head"], record["step"], record["due"]) == ("generator", 100, 100)
        assert (record["provable"], record["argmaxable"], record["classes"]) == (1, 3, 4)
        assert record["domain"] == "box:-10,10"
        assert record["version"] == unarg_callback.__version__
        assert datetime.fromisoformat(record["time"]).utcoffset() == timedelta(0)
        assert record["events"] == [
            {"kind": "unargmaxable", "count": 1, "classes": [3], "names": ["d"]}
        ]
        (row,) = record["unargmaxable"]
        assert row.pop("rival") in (0, 1, 2)
        assert row.pop("rival_token") in ("a", "b", "c")
        assert row == {
            "class": 3,
            "token": "d",
            "status": "unargmaxable",
            "since_step": 100,
            "duplicate_of": None,
        }
        assert {row["token"] for row in record["at_risk"]} == {"a", "b", "c"}
        assert set(record["at_risk"][0]) == {"class", "token", "lead", "trend"}

    def test_every_field_of_the_check_is_there(self) -> None:
        assert set(CheckRecord.__dataclass_fields__) <= set(json_record(next(findings())))

    def test_a_skipped_check_counts_nothing(self) -> None:
        record = json_record(skipped())
        assert (record["step"], record["skipped"]) == (7, "weight has NaN")
        assert record["classes"] is record["provable"] is record["leads"] is None
        assert [event["kind"] for event in record["events"]] == ["not_finite"]
        assert record["unargmaxable"] == record["at_risk"] == []

    def test_without_names(self) -> None:
        record = json_record(list(findings(names=None))[-1])
        assert record["unargmaxable"][0]["token"] is None
        assert record["events"][0]["names"] is None

    def test_what_is_not_finite_is_null(self) -> None:
        finding = next(findings())
        odd = replace(
            finding,
            record=replace(finding.record, seconds=math.nan, leads={"min": math.inf}),
            at_risk=(AtRisk(0, math.nan, -math.inf, 0.0),),
        )
        record = strict(json_line(json_record(odd)))
        assert record["seconds"] is record["leads"]["min"] is None
        assert record["at_risk"][0]["lead"] is record["at_risk"][0]["trend"] is None

    def test_a_large_layer_with_long_names_makes_a_bounded_line(self) -> None:
        names = [f"{index}" + "\u0301" * 10_000 for index in range(4)]
        finding = list(findings(names=names))[-1]
        report = finding.report
        assert report is not None
        many = replace(
            report,
            status=report.status.repeat(500),
            rival=report.rival.repeat(500) % 4,
            duplicate_of=report.duplicate_of.repeat(500),
            names=tuple(names * 500),
        )
        big = replace(finding, report=many, at_risk=finding.at_risk * 100)
        line = json_line(json_record(big))
        assert many.counts["unargmaxable"] == 500
        assert len(json.loads(line)["unargmaxable"]) == 50
        assert len(line.encode()) < 60_000


@given(name=st.text() | st.text(alphabet='\ud83d\u2028\u0085\u202e\r\n\x00"\\'))
def test_any_name_is_one_line_and_reads_back(name: str) -> None:
    line = json_line({"token": name})
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    assert strict(line) == {"token": name}
    line.encode()


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_line({"x": math.nan})


class TestFile:
    def test_a_line_a_check(self, tmp_path: Path) -> None:
        path = write(tmp_path / "new" / "folder")
        assert [record["step"] for record in read_json_lines(path)] == [0, 50, 100]
        assert read_json_lines(path.parent) == read_json_lines(path)
        assert path.read_bytes().endswith(b"}\n")

    def test_a_resumed_run_appends(self, tmp_path: Path) -> None:
        write(tmp_path)
        before = (tmp_path / FILE_NAME).read_bytes()
        write(tmp_path, count=1)
        assert (tmp_path / FILE_NAME).read_bytes().startswith(before)
        assert [record["step"] for record in read_json_lines(tmp_path)] == [0, 50, 100, 0]

    def test_a_run_killed_at_any_byte_goes_on(self, tmp_path: Path) -> None:
        whole = write(tmp_path, count=2).read_bytes()
        first = whole.index(b"\n") + 1
        for cut in {*range(first, len(whole), 97), first + 1, len(whole) - 1, len(whole)}:
            path = tmp_path / FILE_NAME
            path.write_bytes(whole[:cut])
            complete = 2 if cut >= len(whole) - 1 else 1
            assert len(read_json_lines(path)) == complete
            write(tmp_path, count=1)
            steps = [record["step"] for record in read_json_lines(path)]
            assert steps == [0, 50][:complete] + [0]
            assert b"}{" not in path.read_bytes()

    def test_writers_at_the_same_time(self, tmp_path: Path) -> None:
        found = list(findings())

        def write_all(_: int) -> None:
            lines = JsonLines(tmp_path)
            for _ in range(50):
                for finding in found:
                    lines.show(finding)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write_all, range(4)))
        steps = [record["step"] for record in read_json_lines(tmp_path)]
        assert sorted(steps) == [0] * 200 + [50] * 200 + [100] * 200

    def test_a_remote_store(self) -> None:
        folder = "memory://runs/one"
        lines = JsonLines(folder)
        for finding in findings():
            lines.show(finding)
        assert [record["step"] for record in read_json_lines(folder)] == [0, 50, 100]
        fsspec = pytest.importorskip("fsspec")
        files = fsspec.filesystem("memory")
        files.pipe_file("/runs/one/" + FILE_NAME, b'{"step": 5}\n{"st')
        lines.show(next(findings()))
        assert [record["step"] for record in read_json_lines(folder)] == [5, 0]

    def test_a_store_that_cannot_append(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

        opened = MemoryFileSystem._open

        def without_append(self: Any, path: str, mode: str = "rb", **more: Any) -> Any:
            if mode == "ab":
                raise NotImplementedError
            return opened(self, path, mode, **more)

        monkeypatch.setattr(MemoryFileSystem, "_open", without_append)
        lines = JsonLines("memory://runs/two")
        for finding in findings():
            lines.show(finding)
        assert [record["step"] for record in read_json_lines(lines.path)] == [0, 50, 100]

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match="file"):
            JsonLines(tmp_path / "file").show(next(findings()))

    def test_what_is_no_record_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / FILE_NAME
        path.write_bytes(b'\n1\n{"step": 1}\n\xff\xfe\n{"step"\n{"step": 2}')
        assert read_json_lines(path) == [{"step": 1}, {"step": 2}]


def test_the_documented_keys_are_those_of_a_record() -> None:
    named = set(re.findall(r"``(\w+)``", json_record.__doc__ or ""))
    assert {"time", "version", "head", "step", "due", "skipped", "domain", "events"} <= named
    assert Status.UNARGMAXABLE.name.lower() in json_record(next(findings()))
