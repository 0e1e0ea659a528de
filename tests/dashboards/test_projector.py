"""The projector's files: which classes, whose names, and that no view overwrites another."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf import text_format  # type: ignore[import-untyped]
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from torch.utils.tensorboard import SummaryWriter

from tests.dashboards.checks import findings, layer, skipped
from tests.dashboards.test_tables import HOSTILE
from tests.dashboards.test_tables import report as report_of
from unarg_callback.dashboards.projector import (
    COLUMNS,
    MAX_NUMBERS,
    points,
    projector_tag,
    write_projector,
)
from unarg_callback.dashboards.tables import visible
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.early_warning import AtRisk
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.record import CheckRecord

A, U, D, X = Status.ARGMAXABLE, Status.UNARGMAXABLE, Status.UNDECIDED, Status.EXCLUDED


def views(folder: Path) -> list[Any]:
    text = (folder / "projector_config.pbtxt").read_text()
    return list(text_format.Parse(text, ProjectorConfig()).embeddings)


def cells(folder: Path, view: int = 0) -> list[list[str]]:
    path = folder / str(views(folder)[view].metadata_path)
    return [line.split("\t") for line in path.read_text().rstrip("\n").split("\n")]


def numbers(folder: Path, view: int = 0) -> str:
    return (folder / str(views(folder)[view].tensor_path)).read_text()


class TestPoints:
    def test_the_urgent_come_first_and_the_rest_is_evenly_spaced(self) -> None:
        report = report_of([A] * 90 + [U] * 3 + [D] * 2 + [X] * 5)
        ids = points(report, [7, 8], limit=17).tolist()
        assert ids == sorted(set(ids))
        assert len(ids) == 17
        assert set(ids) >= {7, 8, 90, 91, 92, 93, 94}
        others = np.diff([index for index in ids if index < 90 and index not in (7, 8)])
        assert others.max() - others.min() <= 2

    def test_all_fit(self) -> None:
        assert points(report_of([U, A, X, D])).tolist() == [0, 1, 3]

    @pytest.mark.parametrize("limit", [0, 1, 2, 3])
    def test_few(self, limit: int) -> None:
        assert len(points(report_of([U] * 9 + [A]), [9], limit=limit)) == limit


def test_a_row_a_class(tmp_path: Path) -> None:
    finding = list(findings())[-1]
    checked = layer(0.0, ("a", "b", "c", "d"))
    with SummaryWriter(str(tmp_path)) as writer:
        assert write_projector(writer, finding, checked) == 4
    rows = cells(tmp_path)
    assert rows[0] == list(COLUMNS)
    assert rows[1] == ["a", "0", "at risk", "-", "-"]
    assert rows[4][:4] == ["d", "3", "unargmaxable", "100"]
    assert rows[4][4] in ("a", "b", "c")
    assert np.loadtxt(numbers(tmp_path).splitlines()).tolist() == checked.weight.tolist()


def test_without_names_there_is_no_token(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        write_projector(writer, list(findings(names=None))[-1], layer(0.0))
    assert cells(tmp_path)[0] == list(COLUMNS[1:])
    assert cells(tmp_path)[4][:3] == ["3", "unargmaxable", "100"]


def test_no_name_ends_a_cell_or_a_row(tmp_path: Path) -> None:
    found = report_of([A, *[U] * len(HOSTILE)], ["▁plain", *HOSTILE], [-1, *[0] * len(HOSTILE)])
    finding = Finding("h", CheckRecord(step=1), found)
    weight = OutputLayer(torch.zeros(found.classes, 2))
    with SummaryWriter(str(tmp_path)) as writer:
        write_projector(writer, finding, weight)
    rows = cells(tmp_path)
    assert [row[0] for row in rows[1:]] == ["▁plain", *map(visible, HOSTILE)]
    assert {len(row) for row in rows} == {5}
    with (tmp_path / views(tmp_path)[0].metadata_path).open(newline="") as file:
        assert len(list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))) == len(rows)


def test_few_statuses(tmp_path: Path) -> None:
    found = report_of([A, A, U, D, X])
    finding = Finding("h", CheckRecord(step=1), found, at_risk=(AtRisk(1, 0.1, 0.0, 0.1),))
    with SummaryWriter(str(tmp_path)) as writer:
        assert write_projector(writer, finding, OutputLayer(torch.randn(5, 2))) == 4
    statuses = [row[1] for row in cells(tmp_path)[1:]]
    assert statuses == ["argmaxable", "at risk", "unargmaxable", "undecided"]


def test_a_skipped_check_shows_nothing(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        assert write_projector(writer, skipped(), layer()) == 0
    assert not (tmp_path / "projector_config.pbtxt").exists()


def test_another_layer_is_refused(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer, pytest.raises(ValueError, match="5 classes"):
        write_projector(writer, next(findings()), OutputLayer(torch.zeros(5, 2)))


class TestViews:
    def test_heads_and_writers_keep_theirs(self, tmp_path: Path) -> None:
        for _ in range(2):  # The second writer is that of a resumed run.
            with SummaryWriter(str(tmp_path)) as writer:
                for head in ("a/b", "a_b", "имя"):
                    for finding in findings(head, easts=(2.0, 1.0)):
                        write_projector(writer, finding, layer(1.0))
        with SummaryWriter(str(tmp_path)) as writer:
            write_projector(writer, next(findings("last")), layer())
        names = sorted(view.tensor_name for view in views(tmp_path))
        tags = [projector_tag(head) for head in ("a/b", "a_b", "имя")]
        expected = [f"{tag}:{step}" for tag in tags for step in ("00000", "00050")]
        assert names == sorted([*expected, "unarg-last:00000"])
        for view in views(tmp_path):
            assert (tmp_path / view.tensor_path).is_file()
            assert (tmp_path / view.metadata_path).is_file()
        assert len({view.tensor_path for view in views(tmp_path)}) == 7

    @pytest.mark.parametrize("head", ["x" * 100, "ы" * 100, "/" * 100, "a b%c&d#e+f", "имя"])
    def test_names_are_plain_and_fit_a_folder(self, head: str, tmp_path: Path) -> None:
        tag = projector_tag(head)
        assert tag.isascii()
        assert not set(tag) & set(" %&#+?")
        finding = replace(next(findings()), head=head)
        with SummaryWriter(str(tmp_path)) as writer:
            assert write_projector(writer, finding, layer()) == 4

    def test_heads_that_look_alike_have_their_own(self) -> None:
        assert len({projector_tag(head) for head in ("a_b", "aыb", "aьb", "a/b", "a.b")}) == 5


def test_wide_layers_are_bounded(tmp_path: Path) -> None:
    weight = torch.randn(300, 4000)
    found = report_of([A] * 290 + [U] * 10)
    with SummaryWriter(str(tmp_path)) as writer:
        shown = write_projector(writer, Finding("h", CheckRecord(1), found), OutputLayer(weight))
    assert shown == MAX_NUMBERS // 4000
    text = numbers(tmp_path)
    assert len(text) < 9 * MAX_NUMBERS
    ids = [int(row[0]) for row in cells(tmp_path)[1:]]
    written = np.array(text.split(), float).reshape(shown, 4000)
    assert np.abs(written - weight[ids].numpy()).max() < 1e-4


@pytest.mark.parametrize("factor", [0.0, 1e-40, 1e-9, 1e9, 1e35])
def test_any_scale(tmp_path: Path, factor: float) -> None:
    weight = torch.randn(4, 3, dtype=torch.float64) * factor
    with SummaryWriter(str(tmp_path)) as writer:
        write_projector(writer, next(findings()), OutputLayer(weight))
    read = np.loadtxt(numbers(tmp_path).splitlines())
    assert read == pytest.approx(weight.numpy(), abs=1e-4 * factor, rel=1e-12)
