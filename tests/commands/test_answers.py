"""Answers of ``--top-k`` and ``--min-lead`` are in every report, whatever else goes wrong."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from tests.commands.running import unarg

# Corners of a square; a point inside, out of reach of the two best; and one that leads by little.
ROWS = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0], [-1.01, 0.0]]
NAMES = ["ne", "se", "nw", "sw", "<b>|", "=west"]
ASK = ("--top-k", "2", "--min-lead", "0.1", "--domain", "box:1")


@pytest.fixture
def layer(tmp_path: Path) -> list[object]:
    np.savez(tmp_path / "a.npz", W=np.array(ROWS), b=np.array([0, 0, 0, 0, -1.0, 0]))
    (tmp_path / "names.json").write_text(json.dumps(NAMES))
    return [tmp_path / "a.npz", "--labels", tmp_path / "names.json"]


def test_json(layer: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    assert unarg("check", *layer, *ASK, "--json", "-", "--quiet") == 0
    found = json.loads(capsys.readouterr().out)
    top, margin = found["top_k"], found["margin"]
    assert (top["k"], top["complete"]) == (2, True)
    assert top["counts"] == {"undecided": 0, "reachable": 5, "unreachable": 1, "excluded": 0}
    assert (top["unreachable"], top["undecided"]) == ([{"class": 4, "name": "<b>|"}], [])
    assert margin["least_lead"] == 0.1
    assert margin["counts"] == {"weak": 1, "undecided": 0}
    (weak,) = margin["weak"]
    assert (weak["class"], weak["name"]) == (5, "=west")
    assert 0.01 <= weak["bound"] <= 0.1
    assert unarg("check", *layer, "--json", "-", "--quiet") == 0
    assert {"top_k", "margin"}.isdisjoint(json.loads(capsys.readouterr().out))


def test_json_lists_what_the_filter_keeps(
    layer: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--keep-regex", "west")
    assert unarg("check", *layer, *ASK, *chosen, "--json", "-", "--quiet") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["top_k"]["unreachable"] == []
    assert found["top_k"]["counts"]["unreachable"] == 1
    assert [one["class"] for one in found["margin"]["weak"]] == [5]
    assert found["filter"]["classes"] == 1


def test_forms_for_people(layer: list[object], tmp_path: Path) -> None:
    outputs = [f"--{form}={tmp_path / form}" for form in ("markdown", "html", "tsv")]
    assert unarg("check", *layer, *ASK, *outputs, "--quiet") == 0
    markdown, html, tsv = (
        (tmp_path / form).read_text(encoding="utf-8") for form in ("markdown", "html", "tsv")
    )
    assert "## Classes that can never be among the 2 best" in markdown
    assert "| 4 | &#60;b&#62;&#124; | unreachable |" in markdown
    assert "## Classes that never win by more than 0.1" in markdown
    assert "| 5 | =west | " in markdown
    assert 'href="#answer0">Classes that can never be among the 2 best' in html
    assert "<tr><td>4<td><bdi>&lt;b&gt;|</bdi><td>unreachable" in html
    assert "<h2>Classes that never win by more than 0.1</h2>" in html
    lines = [line.split("\t") for line in tsv.splitlines()]
    assert lines[0][-2:] == ["among_the_2_best", "wins_by_more_than_0.1"]
    assert [line[-2] for line in lines[1:]] == [*["reachable"] * 4, "unreachable", "reachable"]
    assert [line[-1] for line in lines[1:]] == [*["yes"] * 4, "", "no"]
    assert lines[6][1] == r"\x3dwest"


@pytest.mark.parametrize("asked", [("--top-k", "2"), ("--min-lead", "1")])
def test_quiet_without_a_report_is_refused(
    layer: list[object], asked: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert unarg("check", *layer, *asked, "--quiet", "--fail-on", "undecided") == 2
    assert f"what {asked[0]} would find is told nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("domain", ["box:1", "free"])
def test_a_least_lead_that_is_too_small_is_refused_before_the_check(
    layer: list[object],
    domain: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the check was started")

    monkeypatch.setattr(importlib.import_module("unarg_callback.verification"), "verify", never)
    lead = {"box:1": "1e-9", "free": "0"}[domain]
    assert unarg("check", *layer, "--domain", domain, "--min-lead", lead) == 2
    assert "above" in capsys.readouterr().err


def test_an_interrupt_costs_no_answer_that_was_found(
    layer: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("unarg_callback.margins.verify_margin", interrupted)
    outputs = [f"--{form}={tmp_path / form}" for form in ("json", "markdown", "proofs")]
    assert unarg("check", *layer, *ASK, *outputs) == 130
    printed = capsys.readouterr()
    assert "1 provably unargmaxable" in printed.out
    assert "among the 2 best: 5 can be" in printed.out
    assert printed.err == "unarg: interrupted\n"
    found = json.loads((tmp_path / "json").read_text())
    assert found["top_k"]["counts"]["unreachable"] == 1
    assert "margin" not in found
    assert "among the 2 best" in (tmp_path / "markdown").read_text()
    assert (tmp_path / "proofs.npz").exists()
