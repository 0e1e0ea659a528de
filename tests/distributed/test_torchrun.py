"""``torchrun -m unarg_callback check``: one check by two processes, which speak with one voice."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.processes import in_processes
from tests.independent import check_proofs
from tests.search import random_layer
from unarg_callback import OutputLayer, Proofs, verify
from unarg_callback.cli import main
from unarg_callback.distributed.ranks import Ranks

ROOT = Path(__file__).resolve().parents[2]


def torchrun(*arguments: object, size: int = 2) -> tuple[int, str, str]:
    """Status of the launcher, and what both processes wrote to standard output and error."""
    launcher = ["torch.distributed.run", "--standalone", f"--nproc_per_node={size}"]
    done = subprocess.run(
        [sys.executable, "-m", *launcher, "-m", "unarg_callback", "check", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def codes(err: str) -> set[str]:
    """Exit codes that torchrun tells of; it may end one process while that ends by itself."""
    return set(re.findall(r"exitcode *: (-?[0-9]+)", err))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weight, bias = random_layer("gaussian", 150, 3, seed=1)
    file = tmp_path_factory.mktemp("layers") / "layer.npz"
    np.savez(file, W=weight, b=np.zeros(150) if bias is None else bias)
    return file


def test_the_first_process_prints_and_writes_for_all(path: Path, tmp_path: Path) -> None:
    told, proofs = tmp_path / "report.json", tmp_path / "proofs.npz"
    status, out, err = torchrun(
        path, "--json", told, "--proofs", proofs, "--fail-on", "unargmaxable"
    )
    weight = np.load(path)["W"]
    report = verify(OutputLayer(weight, np.zeros(150)))
    found = report.counts["unargmaxable"]
    assert 0 < found < 150
    assert out.count("layer.npz: W (150, 3)") == 1
    assert out.count(f"{found} provably unargmaxable, 0 undecided") == 1
    assert json.loads(told.read_text())["counts"] == report.counts
    check_proofs(vars(Proofs.load(proofs)), weight, None)
    # --fail-on hit, on both alike.
    assert status == 1
    assert "1" in codes(err) <= {"1", "-15"}, err
    assert "unarg:" not in err


def test_a_check_that_finds_nothing_ends_well(path: Path) -> None:
    status, out, err = torchrun(path, "--fail-on", "undecided", "--quiet")
    assert (status, out) == (0, "")
    assert "unarg" not in err
    assert "Warning" not in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["none.npz"], "none.npz does not exist"),
        (["{}", "--domain", "ball:3"], "can't be read; expected box:R"),
        (["{}", "--json", "{}"], "would overwrite the input"),
        (["{}", "--colour"], "unrecognized arguments"),
    ],
)
def test_what_is_wrong_is_said_once(path: Path, arguments: list[str], problem: str) -> None:
    status, out, err = torchrun(*[argument.format(path) for argument in arguments])
    assert status == 1
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("unarg: ")]
    assert len(lines) == 1, err
    assert problem in lines[0]
    assert "2" in codes(err) <= {"2", "-15"}, err


def statuses(calls: list[list[str]]) -> list[tuple[int, bool]]:
    """What the command returns for each call, and whether it said anything."""
    ranks = Ranks.join()
    told: list[tuple[int, bool]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHELASTIC_RUN_ID", "test")
        patch.setenv("WORLD_SIZE", "2")
        for call in calls:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(["check", *call])
            told.append((status, bool(out.getvalue() + err.getvalue())))
    ranks.close()
    return told


def test_all_processes_end_with_the_same_status(path: Path, tmp_path: Path) -> None:
    file = str(path)
    first, second = in_processes(
        statuses,
        [
            [file],
            [file, "--fail-on", "unargmaxable"],
            [file, "--fail-on", "undecided", "--quiet"],
            ["none.npz"],
            [file, "--domain", "box:1,2,3"],
            [file, "--json", str(tmp_path / "none" / "out.json")],
            [file, "--time-limit", "soon"],
            [],
            ["--help"],
        ],
    )
    assert [status for status, _ in first] == [0, 1, 0, 2, 2, 2, 2, 2, 0]
    assert [status for status, _ in second] == [status for status, _ in first]
    assert [said for _, said in first] == [True, True, False] + [True] * 6
    assert not any(said for _, said in second)
