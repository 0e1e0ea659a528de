"""The command line: what it prints and writes, and its exit status for whatever it is given."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from tests.shared_data import SHARED, needs_shared
from unarg_callback import Proofs, Status
from unarg_callback.cli import main
from unarg_callback.errors import UnargError

Run = Callable[..., tuple[int, str, str]]

# The module: the package may give its own name to the function.
VERIFY = importlib.import_module("unarg_callback.verification")

# A square's corners and its centre: with no bias only the centre can never lead.
SQUARE = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command; gives status, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def square(tmp_path: Path) -> Path:
    path = tmp_path / "square.npz"
    np.savez(path, W=SQUARE, b=np.zeros(5))
    return path


def refused(run: Run, *arguments: object) -> str:
    """The one line on standard error with which bad input ends, status 2."""
    status, out, err = run("check", *arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("unarg: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err


def test_table_and_status(run: Run, square: Path) -> None:
    status, out, err = run("check", square)
    assert status == 0
    assert out.startswith("square.npz: W (5, 2) classes-first, bias b\n")
    assert "1 provably unargmaxable" in out
    assert err == ""


def test_labels_and_limit(run: Run, square: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps(["ne", "se", "nw", "sw", "центр"]), encoding="utf-8")
    assert "центр" in run("check", square, "--labels", labels)[1]
    assert "центр" not in run("check", square, "--labels", labels, "--limit", 0)[1]


def test_json_has_the_documented_keys(run: Run, square: Path, tmp_path: Path) -> None:
    status, out, _ = run("check", square, "--json", tmp_path / "out.json")
    assert status == 0
    assert "unargmaxable" in out
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert set(content) >= {
        "classes",
        "dim",
        "domain",
        "min_lead",
        "counts",
        "unargmaxable",
        "seconds",
        "complete",
    }
    assert content["counts"] == {
        "argmaxable": 4,
        "unargmaxable": 1,
        "undecided": 0,
        "excluded": 0,
        "potentially_unargmaxable": 1,
        "duplicates": 0,
    }
    (found,) = content["unargmaxable"]
    assert found["class"] == 4
    assert found["duplicate_of"] is None
    assert content["complete"] is True


def test_json_to_standard_output(run: Run, square: Path) -> None:
    _, out, err = run("check", square, "--json", "-")
    assert json.loads(out)["classes"] == 5
    assert "1 provably unargmaxable" in err
    _, out, err = run("check", square, "--json", "-", "--quiet")
    assert json.loads(out)["classes"] == 5
    assert err == ""


def test_quiet(run: Run, square: Path) -> None:
    assert run("check", square, "--quiet") == (0, "", "")


@pytest.mark.parametrize("name", ["proofs.npz", "proofs"])
def test_proofs(run: Run, square: Path, tmp_path: Path, name: str) -> None:
    assert run("check", square, "--proofs", tmp_path / name)[0] == 0
    proofs = Proofs.load(tmp_path / "proofs.npz")
    assert proofs.status.tolist() == [1, 1, 1, 1, 2]
    assert proofs.witness_class.tolist() == [0, 1, 2, 3]
    assert proofs.certificate_class.tolist() == [4]


def test_fail_on(run: Run, square: Path, tmp_path: Path) -> None:
    assert run("check", square, "--fail-on", "unargmaxable")[0] == 1
    assert run("check", square, "--fail-on", "undecided")[0] == 0
    both = ["--fail-on", "undecided", "--fail-on", "unargmaxable"]
    assert run("check", square, *both, "--json", tmp_path / "out.json")[0] == 1
    assert (tmp_path / "out.json").exists()
    assert run("check", square, "--fail-on", "unargmaxable", "--exclude", "4")[0] == 0


def test_exclude(run: Run, square: Path) -> None:
    _, out, _ = run("check", square, "--exclude", "4,0-1", "--json", "-", "--quiet")
    counts = json.loads(out)["counts"]
    assert (counts["excluded"], counts["argmaxable"]) == (3, 2)


@pytest.mark.parametrize(
    ("domain", "unargmaxable"),
    [("box:100", [4]), ("box:1,2", [1, 2, 3, 4]), ("nonnegative:10", [1, 2, 3, 4]), ("free", [4])],
)
def test_domain(run: Run, square: Path, domain: str, unargmaxable: list[int]) -> None:
    _, out, _ = run("check", square, "--domain", domain, "--json", "-", "--quiet")
    assert [found["class"] for found in json.loads(out)["unargmaxable"]] == unargmaxable


def test_checkpoint_with_choices(run: Run, tmp_path: Path) -> None:
    weight = torch.from_numpy(SQUARE).T.contiguous()
    torch.save({"a.weight": torch.ones(7, 3), "b": {"W": weight, "c": torch.zeros(5)}}, "a.pt")
    path = Path("a.pt").rename(tmp_path / "a.pt")
    assert "--weight NAME" in refused(run, path)
    assert "--orientation" in refused(run, path, "--weight", "b.W", "--bias", "none")
    options = ["--weight", "b.W", "--bias", "none", "--orientation", "features-first"]
    _, out, _ = run("check", path, *options)
    assert "a.pt: b.W (2, 5) features-first, no bias" in out
    assert "1 provably unargmaxable" in out
    assert run("check", path, "--weight", "b.W", "--bias", "b.c")[0] == 0


def test_time_limit_and_patience_and_device(run: Run, square: Path) -> None:
    options = ["--time-limit", "60", "--patience", "5", "--device", "cpu"]
    assert run("check", square, *options)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["none.npz"], "does not exist"),
        (["{}", "--domain", "ball:3"], "can't be read; expected box:R"),
        (["{}", "--domain", "box:nan"], "bound that is NaN"),
        (["{}", "--domain", "box:5,1"], "low > high"),
        (["{}", "--exclude", "5"], "has id 5, but the layer has 5 classes"),
        (["{}", "--exclude", "0-99999999999999"], "expected ids from 0 to 4"),
        (["{}", "--exclude", "3-1"], "ends before it starts"),
        (["{}", "--exclude", "-1"], "'-1' is no id"),
        (["{}", "--exclude", "1,,2"], "is no id"),
        (["{}", "--exclude", "one"], "is no id"),
        (["{}", "--time-limit", "nan"], "finite number of seconds"),
        (["{}", "--time-limit", "inf"], "finite number of seconds"),
        (["{}", "--time-limit", "-1"], "finite number of seconds"),
        (["{}", "--patience", "-1"], "not a whole number"),
        (["{}", "--patience", "1.5"], "not a whole number"),
        (["{}", "--limit", "x"], "not a whole number"),
        (["{}", "--device", "quantum"], "--device quantum can't be used"),
        (["{}", "--fail-on", "argmaxable"], "invalid choice"),
        (["{}", "--orientation", "sideways"], "invalid choice"),
        (["{}", "--weight", "V"], "no tensor V"),
        (["{}", "--labels", "none.json"], "none.json"),
        (["{}", "--colour"], "unrecognized arguments"),
        (["{}", "--proofs", ""], "is a folder"),
        (["{}", "--json", ""], "is a folder"),
        (["{}", "--json", "x" * 5000], "can't be written (File name too long)"),
        (["x" * 5000], "File name too long"),
        ([], "required: FILE"),
    ],
)
def test_bad_arguments(run: Run, square: Path, arguments: list[str], problem: str) -> None:
    line = refused(run, *[argument.format(square) for argument in arguments])
    assert problem in line


@pytest.mark.parametrize("arguments", [[], ["chek"], ["--colour"]])
def test_bad_command(run: Run, arguments: list[str]) -> None:
    status, _, err = run(*arguments)
    assert status == 2
    assert err.startswith("unarg: ")
    assert err.count("\n") == 1


def test_wrong_number_of_labels(run: Run, square: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\n")
    line = refused(run, square, "--labels", tmp_path / "labels.txt")
    assert "2 names, but the layer has 5 classes" in line


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["W", "b"])
def test_values_that_are_not_finite(run: Run, tmp_path: Path, bad: float, where: str) -> None:
    arrays: dict[str, Any] = {"W": SQUARE.copy(), "b": np.zeros(5)}
    arrays[where][2] = bad
    np.savez(tmp_path / "bad.npz", **arrays)
    assert "NaN or inf" in refused(run, tmp_path / "bad.npz")
    assert run("check", tmp_path / "bad.npz", "--exclude", "2")[0] == 0


def test_empty_matrix(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", W=np.zeros((0, 4)), b=np.zeros(0))
    assert "at least one class" in refused(run, tmp_path / "bad.npz")


def test_fewer_classes_than_features(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", W=np.eye(3, 5), b=np.zeros(3))
    status, out, _ = run("check", tmp_path / "wide.npz")
    assert status == 0
    assert "3 argmaxable" in out


@pytest.mark.parametrize("shape", [(5, 1), (1, 5)])
@pytest.mark.parametrize("dtype", ["f2", "i1", "i8"])
def test_bias_shapes_and_dtypes(
    run: Run, tmp_path: Path, shape: tuple[int, int], dtype: str
) -> None:
    np.savez(tmp_path / "a.npz", W=SQUARE.astype(dtype), b=np.zeros(shape, dtype))
    status, out, _ = run("check", tmp_path / "a.npz")
    assert status == 0
    assert "1 provably unargmaxable" in out


@pytest.mark.parametrize("option", ["--json", "--proofs"])
def test_outputs_are_checked_before_the_work(
    run: Run, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(VERIFY, "verify", _never)
    assert "can't be written" in refused(run, square, option, tmp_path / "none" / "out.npz")
    assert "can't be written" in refused(run, square, option, square / "out.npz")
    folder = tmp_path / "folder.npz"
    folder.mkdir()
    assert "is a folder" in refused(run, square, option, folder)
    assert "overwrite the input" in refused(run, square, option, square)
    assert "overwrite the input" in refused(
        run, square, "--labels", tmp_path / "l.npz", option, tmp_path / "l.npz"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.npz", "square.npz"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_write_permission(run: Run, square: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    assert "can't be written" in refused(run, square, "--json", folder / "out.json")


def test_both_outputs_in_one_file(run: Run, square: Path, tmp_path: Path) -> None:
    line = refused(run, square, "--json", tmp_path / "a.npz", "--proofs", tmp_path / "a")
    assert "same file" in line


def test_writing_that_fails_later_still_prints_the_table(
    run: Run, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unarg_callback.report.Report.to_json", full)
    outputs = ["--json", tmp_path / "a.json", "--proofs", tmp_path / "a.npz"]
    status, out, err = run("check", square, *outputs, "--fail-on", "unargmaxable")
    assert status == 2
    assert "1 provably unargmaxable" in out
    assert "No space left on device" in err
    assert (tmp_path / "a.npz").exists()


def test_interrupt(run: Run, square: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(VERIFY, "verify", interrupted)
    status, out, err = run("check", square)
    assert (status, out) == (130, "")
    assert err == "unarg: interrupted\n"


def test_too_little_memory(run: Run, square: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(*_: object, **__: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(VERIFY, "verify", starved)
    assert "too little memory" in refused(run, square)


def test_help_and_version(run: Run) -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("unarg ")
    for arguments in (["--help"], ["check", "--help"]):
        status, out, _ = run(*arguments)
        assert status == 0
        assert max(len(line) for line in out.splitlines()) <= 80
    assert "Exit status: 0" in out


def _process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "unarg_callback", *map(str, arguments)],
        capture_output=True,
        check=False,
        cwd=Path(__file__).resolve().parents[1],
        env={**os.environ, **environment},
    )


def test_module_with_ascii_only_output(square: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\nd\nцентр\n", encoding="utf-8")
    done = _process(
        "check", square, "--labels", labels, "--json", tmp_path / "o.json", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0, done.stderr
    assert b"\\u0446\\u0435\\u043d" in done.stdout
    content = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
    assert content["unargmaxable"][0]["name"] == "центр"


def test_reader_that_leaves_early(square: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "unarg_callback", "check", square, "--json", tmp_path / "o.json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        cwd=Path(__file__).resolve().parents[1],
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))["classes"] == 5


def test_help_is_quick() -> None:
    code = (
        "import sys;"
        "from unarg_callback.cli import main; main(['check', '--help']);"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert done.returncode == 0, done.stderr


@needs_shared
def test_real_layer(run: Run, tmp_path: Path) -> None:
    assert SHARED is not None
    layers = SHARED / "data" / "layers"
    status, out, _ = run(
        "check",
        layers / "g2pm.npz",
        "--labels",
        layers / "g2pm.labels.json",
        "--proofs",
        tmp_path / "proofs.npz",
    )
    assert status == 0
    assert "226 provably unargmaxable, 0 undecided" in out
    assert "and 206 more" in out
    proofs = Proofs.load(tmp_path / "proofs.npz")
    assert int((proofs.status == Status.UNARGMAXABLE).sum()) == 226


def _never(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("the check started")


def test_a_hard_link_to_the_input_is_not_overwritten(run: Run, square: Path) -> None:
    other = square.with_name("other.npz")
    os.link(square, other)
    before = square.read_bytes()
    assert "would overwrite the input" in refused(run, square, "--proofs", other)
    assert square.read_bytes() == before


def test_a_closed_standard_output_is_no_error(square: Path) -> None:
    command = f"'{sys.executable}' -m unarg_callback check '{square}' >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_standard_output_loses_no_file(square: Path) -> None:
    proofs = square.with_name("proofs.npz")
    command = (
        f"'{sys.executable}' -m unarg_callback check '{square}' --proofs '{proofs}' >/dev/full"
    )
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("unarg: can't print")
    assert proofs.exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--top-k", "-1"], "is not a whole number from 2"),
        (["--top-k", "0"], "is not a whole number from 2"),
        (["--patience", "1" + "0" * 21], "from 0 to 999,999,999,999,999,999"),
        (["--limit", "1" + "0" * 20], "from 0 to 999,999,999,999,999,999"),
        (["--exclude", "0-4"], "leaves none of the 5 classes"),
    ],
)
def test_numbers_out_of_range(run: Run, square: Path, arguments: list[str], problem: str) -> None:
    assert problem in refused(run, square, *arguments)


def test_a_class_that_is_excluded_twice_counts_once(run: Run, square: Path) -> None:
    _, out, _ = run("check", square, "--exclude", "4,4,3-4")
    assert "excluded: 2 classes" in out


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_interrupt_while_modules_are_imported(square: Path, wrapped: bool) -> None:
    # The interrupt comes at an import, or in it as the cause of another error.
    broken = (
        "raise ImportError('half') from KeyboardInterrupt()"
        if wrapped
        else "raise KeyboardInterrupt"
    )
    code = f"""
import builtins, sys
real = builtins.__import__
def stopped(name, *arguments):
    if name.startswith('unarg_callback.commands') or name == 'argparse':
        {broken}
    return real(name, *arguments)
from unarg_callback import cli
builtins.__import__ = stopped
sys.exit(cli.main(['check', {str(square)!r}]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert (done.returncode, done.stderr) == (130, b"unarg: interrupted\n")


def test_little_is_imported_where_an_interrupt_would_be_a_traceback() -> None:
    code = (
        "import sys; before = set(sys.modules); import unarg_callback.cli;"
        "print(sorted(name for name in set(sys.modules) - before if 'unarg' in name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert done.stdout == b"['unarg_callback', 'unarg_callback.cli']\n"


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("raised", ["AttributeError('half')", "UnargError('half')", "None"])
def test_an_interrupt_that_an_import_swallows(
    run: Run, square: Path, monkeypatch: pytest.MonkeyPatch, raised: str
) -> None:
    failure = {
        "AttributeError('half')": AttributeError("half"),
        "UnargError('half')": UnargError("half"),
    }

    def half(*_: object, **__: object) -> NoReturn:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise failure.get(raised, KeyboardInterrupt())

    # A shell that starts the tests in the background has interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(VERIFY, "verify", half)
    try:
        assert run("check", square) == (130, "", "unarg: interrupted\n")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
