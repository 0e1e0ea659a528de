"""``unarg compare``: what it says, and its exit status."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from tests.commands.running import unarg
from unarg_callback import OutputLayer, Status, verify
from unarg_callback.commands import compare
from unarg_callback.errors import UnargError
from unarg_callback.incremental import IncrementalVerifier
from unarg_callback.reports import comparison

CORNERS = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]
BEFORE = [*CORNERS, [0.0, 0.0], [2.0, 0.0]]
AFTER = [*CORNERS, [0.0, 3.0], [0.5, 0.0]]


def write(folder: Path, name: str, rows: list[list[float]], names: list[str] | None = None) -> Path:
    path = folder / f"{name}.npz"
    np.savez(path, W=rows, b=np.zeros(len(rows)))
    if names is not None:
        (folder / f"{name}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    return path


def test_who_went_and_who_returned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path, "a", BEFORE), write(tmp_path, "b", AFTER)
    assert unarg("compare", a, b) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("A: a.npz: W (6, 2)")
    assert lines[2] == "   5 argmaxable, 1 provably unargmaxable, 0 undecided"
    assert lines[3].startswith("B: b.npz: W (6, 2)")
    assert "Classes are compared by id." in lines
    at = lines.index("Unargmaxable in B, argmaxable in A: 1")
    assert lines[at + 2].split()[0] == "5"
    at = lines.index("Argmaxable in B, unargmaxable in A: 1")
    assert lines[at + 2].split()[0] == "4"
    assert lines[at + 2].endswith("%")
    assert any(line.startswith("Argmaxable in both") for line in lines)


def test_a_class_that_appeared_can_fail_a_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write(tmp_path, "a", BEFORE), write(tmp_path, "b", AFTER)
    assert unarg("compare", a, b, "--fail-on", "appeared", "--quiet") == 1
    assert unarg("compare", a, a, "--fail-on", "appeared", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_layers_of_different_sizes_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["ne", "se", "nw", "sw", "mid", "east"]
    a = write(tmp_path, "a", BEFORE, names)
    b = write(tmp_path, "b", [[0.0, 0.25], *AFTER[:4][::-1], [0.5, 0.0]],
              ["new", *names[:4][::-1], "east"])  # fmt: skip
    b7 = write(tmp_path, "b7", [[0.0, 0.25], *AFTER[:4][::-1], [0.5, 0.0], [0.25, 0.25]],
               ["new", *names[:4][::-1], "east", "newer"])  # fmt: skip
    for file, extra in ((b, 1), (b7, 2)):
        options = ["--labels", a.with_suffix(".txt"), "--labels-b", file.with_suffix(".txt")]
        assert unarg("compare", a, file, *options, "--fail-on", "appeared") == 1
        out = capsys.readouterr().out
        assert (
            f"compared by name: 5 are in both, 1 only in A (1 of them unargmaxable), {extra} only "
            f"in B ({extra} of them unargmaxable)."
        ) in out
        assert "id in A  id in B  name  now beaten by" in out
        row = next(line for line in out.splitlines() if line.split()[:3] == ["5", "5", "east"])
        assert row
    assert unarg("compare", a, b7) == 2
    assert "b7.npz 7, and not both have names" in capsys.readouterr().err


def test_names_that_stand_for_several_classes_match_nothing() -> None:
    one = OutputLayer(BEFORE, names=["a", "b", "c", "d", "d", "e"])
    two = OutputLayer(AFTER, names=["b", "a", "c", "c", "d", "e"])
    found = comparison.compare(verify(one), verify(two), one, two)
    assert found.pairs.tolist() == [[1, 0], [0, 1], [5, 5]]
    assert found.only_before.tolist() == [2, 3, 4]
    assert found.only_after.tolist() == [2, 3, 4]


def test_leads_are_those_of_both_layers() -> None:
    """Also of classes that the second check took over without measuring them again."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(500, 8))
    one, two = OutputLayer(weight), OutputLayer(weight + 0.01 * rng.normal(size=(500, 8)))
    verifier = IncrementalVerifier()
    before, after = verifier.update(one), verifier.update(two)
    assert not after.measured.all()
    found = comparison.compare(before, after, one, two)
    for report, layer, shares in (
        (before, one, found.shares_before),
        (after, two, found.shares_after),
    ):
        rows = layer.weight.numpy()
        for index, point in zip(
            report.proofs.witness_class.tolist(), report.proofs.witness, strict=True
        ):
            logits = rows @ point
            lead = logits[index] - np.delete(logits, index).max()
            assert shares[index] == pytest.approx(100 * lead / report.scale)
        assert np.isnan(shares[report.status != Status.ARGMAXABLE]).all()
    moved = found.moved
    change = np.abs(found.shares_after[moved[:, 1]] - found.shares_before[moved[:, 0]])
    assert len(moved) > 300
    assert (np.diff(change) <= 0).all()


def test_excluded_and_undecided_classes(tmp_path: Path) -> None:
    one = OutputLayer(BEFORE, excluded=[5])
    two = OutputLayer(BEFORE)
    found = comparison.compare(verify(one), verify(two), one, two)
    assert found.other == {(Status.EXCLUDED, Status.ARGMAXABLE): 1}
    assert "excluded in A, argmaxable in B: 1" in compare.text(found, "a", "b")
    assert compare.appeared(found).tolist() == []
    free = comparison.compare(verify(one, "free"), verify(two, "free"), one, two)
    assert "%" not in compare.text(free, "a", "b")


def test_different_sizes_without_names_are_refused() -> None:
    one, two = OutputLayer(BEFORE), OutputLayer(BEFORE[:5])
    with pytest.raises(UnargError, match="6 and 5 classes, and not both"):
        comparison.compare(verify(one), verify(two), one, two)


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path, "a", BEFORE)
    for arguments in ([a, "absent.npz"], [a, a, "--domain", "x"], [a, a, "--limit", "-1"], [a]):
        assert unarg("compare", *arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("unarg: ")


def test_it_can_be_added_to_any_parser() -> None:
    parser = argparse.ArgumentParser()
    compare.add(parser.add_subparsers())
    assert parser.parse_args(["compare", "a", "b"]).limit == 10


def test_which_file_has_the_nan_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = np.random.default_rng(0).normal(size=(6, 2))
    np.savez(tmp_path / "a.npz", W=weight, b=np.zeros(6))
    weight[2] = np.nan
    np.savez(tmp_path / "b.npz", W=weight, b=np.zeros(6))
    assert unarg("compare", tmp_path / "a.npz", tmp_path / "b.npz") == 2
    err = capsys.readouterr().err
    assert "b.npz" in err
    assert "NaN" in err
