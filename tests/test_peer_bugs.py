"""What went wrong in earlier verifiers of argmaxability, each with the right answer here."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests import problems
from tests.independent import check_proofs
from tests.shared_data import load_layer, needs_shared
from unarg_callback import Domain, LayerError, OutputLayer, Report, Status, Witness, check
from unarg_callback.geometry.checker import Checker
from unarg_callback.search.interior_point import InteriorPoint
from unarg_callback.verification import verify

Floats = NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]


def crowded(seed: int = 0, classes: int = 200, dim: int = 4) -> tuple[Floats, Floats]:
    """A layer where many classes of both kinds need the exact stage."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(classes, dim)) * rng.random((classes, 1))
    return weight, 0.1 * rng.normal(size=classes)


# The outcome of a box too small is not that of a row inside the hull.


def test_a_class_that_wins_outside_the_box_is_told_from_one_that_never_wins() -> None:
    weight, bias, *_ = problems.line_in_a_small_box()
    layer = OutputLayer(weight, bias)
    assert verify(layer, "box:100").status.tolist() == [2, 1, 2]
    assert verify(layer, "box:1e4").status.tolist() == [1, 1, 1]
    assert verify(layer, "free").status.tolist() == [1, 1, 1]


@needs_shared
def test_gui1_of_g2pm_wins_in_a_box_of_300() -> None:
    weight, bias, names = load_layer("g2pm")
    index = names.index("gui1")
    layer = OutputLayer(weight, bias, names=names)
    assert verify(layer, "box:100").status[index] == Status.UNARGMAXABLE
    report = verify(layer, "box:300")
    summary = check_proofs(vars(report.proofs), weight, bias)
    assert report.status[index] == Status.ARGMAXABLE
    assert (summary.leads[index] or 0) > 0
    assert report.counts["unargmaxable"] == 225


# Equal rows ended the whole run, or the lower twin was called argmaxable with a NaN for a point.


@pytest.mark.parametrize("domain", ["box:100", "free"])
@pytest.mark.parametrize("patience", [0, None])
def test_a_duplicated_row_costs_only_itself_and_its_twin(domain: str, patience: int | None) -> None:
    weight, bias = crowded()
    alone = verify(OutputLayer(weight, bias), domain)
    twin = int(alone.ids(Status.ARGMAXABLE)[0])
    doubled = np.vstack([weight, weight[twin]])
    report = verify(OutputLayer(doubled, np.append(bias, bias[twin])), domain, patience=patience)
    check_proofs(vars(report.proofs), doubled, np.append(bias, bias[twin]))
    expected = [*alone.status.tolist(), Status.UNARGMAXABLE]
    expected[twin] = Status.UNARGMAXABLE
    assert report.status.tolist() == expected
    assert report.duplicate_of[[twin, -1]].tolist() == [len(weight), twin]
    assert np.isfinite(report.proofs.witness).all()


def test_a_block_of_reserved_rows_that_are_all_zero() -> None:
    weight, bias = crowded()
    weight, bias = weight + 3.0, np.zeros(len(bias))
    weight[50:90] = 0.0
    report = verify(OutputLayer(weight, bias))
    check_proofs(vars(report.proofs), weight, bias)
    assert (report.status[50:90] == Status.UNARGMAXABLE).all()
    assert report.duplicate_of[50:52].tolist() == [51, 50]
    assert report.counts["undecided"] == 0
    assert report.counts["duplicates"] == 40


# A rank-deficient W, or a bad row, gave no answer at all.


@pytest.mark.parametrize("domain", ["box:100", "free"])
@pytest.mark.parametrize("kind", ["zero column", "column twice", "low rank"])
def test_a_rank_deficient_weight_gets_the_answer_of_its_span(kind: str, domain: str) -> None:
    weight, bias = crowded()
    weight = np.round(weight * 64) / 64
    expected = verify(OutputLayer(weight, bias), domain).status.tolist()
    if kind == "zero column":
        wide = np.insert(weight, 2, 0.0, axis=1)
    elif kind == "column twice":
        # Twice the column is half the input in each: the box is the same for their sum.
        weight[:, 0] *= 2
        expected = verify(OutputLayer(weight, bias), domain).status.tolist()
        wide = np.insert(weight, 4, weight[:, 0] / 2, axis=1)
        wide[:, 0] /= 2
    else:
        # Exact multiples: the rows have rank 4 in 7 dimensions.
        mix = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 0], [0, 0, 0]])
        wide = np.hstack([weight, weight @ mix])
        domain = "free" if domain == "free" else "box:1e5"
        expected = verify(OutputLayer(weight, bias), "free").status.tolist()
    report = verify(OutputLayer(wide, bias), domain)
    check_proofs(vars(report.proofs), wide, bias)
    assert report.status.tolist() == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_named(value: float) -> None:
    weight, bias = crowded()
    weight[13, 2] = value
    with pytest.raises(LayerError, match=r"13.*finite"):
        verify(OutputLayer(weight, bias))
    report = verify(OutputLayer(weight, bias, excluded=[13]))
    assert report.status[13] == Status.EXCLUDED
    kept = np.delete(np.arange(len(weight)), 13)
    alone = verify(OutputLayer(weight[kept], bias[kept]))
    assert report.status[kept].tolist() == alone.status.tolist()
    bias[12] = value
    with pytest.raises(LayerError, match=r"12.*finite"):
        verify(OutputLayer(weight, bias, excluded=[13]))


# The bias: one shape broadcast to (C, C), another was dropped or re-checked wrongly.


@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (1, -1)])
def test_a_bias_of_any_shape_counts_once(shape: tuple[int, ...]) -> None:
    weight, bias = crowded()
    bias = 5 * bias
    expected = verify(OutputLayer(weight, bias))
    report = verify(OutputLayer(weight, bias.reshape(shape)))
    assert report.status.tolist() == expected.status.tolist()
    assert report.status.tolist() != verify(OutputLayer(weight)).status.tolist()
    check_proofs(vars(report.proofs), weight, bias)


@pytest.mark.parametrize("deviation", [0.1, 1.0, 3.0])
def test_a_class_that_wins_at_a_known_point_is_argmaxable(deviation: float) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        weight = rng.normal(size=(60, 5))
        bias = deviation * rng.normal(size=60)
        points = rng.uniform(-10, 10, size=(400, 5))
        winners = np.unique((points @ weight.T + bias).argmax(1))
        report = verify(OutputLayer(weight, bias), "box:10")
        assert (report.status[winners] == Status.ARGMAXABLE).all(), f"seed {seed}"


# Defaults and limits.


def test_the_defaults_work_where_the_search_fails() -> None:
    weight, bias, _, expected, _ = problems.polygon_with_interior()
    assert verify(OutputLayer(weight, bias)).status.tolist() == list(expected)


@pytest.mark.parametrize("domain", ["box:100", "free", "nonnegative:10"])
def test_no_patience_is_no_search_and_no_error(domain: str) -> None:
    weight, bias = crowded()
    report = verify(OutputLayer(weight, bias), domain, patience=0)
    assert report.reflections.max() == 0
    assert report.status.tolist() == verify(OutputLayer(weight, bias), domain).status.tolist()
    assert report.counts["undecided"] == 0


def test_success_on_the_last_reflection_is_success() -> None:
    weight, bias = crowded()
    generous = verify(OutputLayer(weight, bias), patience=200)
    found = ~generous.potential & (generous.reflections > 0)
    assert found.any()
    for patience in sorted(set(generous.reflections[found].tolist())):
        report = verify(OutputLayer(weight, bias), patience=patience)
        just = found & (generous.reflections == patience)
        assert not report.potential[just].any()
        assert (report.reflections[just] == patience).all()
        assert report.reflections.max() <= patience


def test_potential_is_what_the_search_left_whatever_the_exact_stage_said() -> None:
    weight, bias = crowded()
    report = verify(OutputLayer(weight, bias), patience=0)
    unproven = report.status != Status.ARGMAXABLE
    assert report.potential[unproven].all()
    assert report.counts["potentially_unargmaxable"] > report.counts["unargmaxable"]


# A common offset changes nothing, and it left 93 classes of 100 to the linear program.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_common_offset_of_50_costs_no_witness(dtype: type) -> None:
    rng = np.random.default_rng(1)
    weight: NDArray[Any] = rng.normal(size=(1500, 32)).astype(dtype)
    shifted = weight + dtype(50)
    plain, report = verify(OutputLayer(weight)), verify(OutputLayer(shifted))
    assert plain.counts["argmaxable"] == report.counts["argmaxable"] == 1500
    assert report.counts["potentially_unargmaxable"] == 0
    check_proofs(vars(report.proofs), shifted, None)


# Processes, threads and the environment.


def run_python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter with nothing but PATH and what is given; return stdout."""
    kept = {k: v for k, v in os.environ.items() if k in {"PATH", "SYSTEMROOT", "HOME", "TMPDIR"}}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_needs_no_environment_and_says_nothing() -> None:
    assert run_python("import unarg_callback, unarg_callback.verification") == ""


def test_no_process_is_started() -> None:
    code = """
import multiprocessing, os, subprocess
def refuse(*args, **kwargs):
    raise AssertionError("a process was started")
os.fork = subprocess.Popen.__init__ = multiprocessing.Process.start = refuse
import numpy as np
from unarg_callback import OutputLayer
from unarg_callback.verification import verify
rng = np.random.default_rng(0)
weight = rng.normal(size=(80, 3)) * rng.random((80, 1))
for exact in ("interior_point", "cutting_plane"):
    print(verify(OutputLayer(weight), exact=exact).counts["undecided"])
"""
    assert run_python(code).split() == ["0", "0"]


def _statuses(queue: Any) -> None:
    queue.put(verify(OutputLayer(*crowded())).status.tolist())


def test_it_works_in_a_spawned_process_and_in_a_thread() -> None:
    expected = verify(OutputLayer(*crowded())).status.tolist()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_statuses, args=(queue,))
    process.start()
    assert queue.get(timeout=120) == expected
    process.join(timeout=30)
    assert process.exitcode == 0
    found: list[Report] = []
    threads = [
        threading.Thread(target=lambda: found.append(verify(OutputLayer(*crowded()))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert [report.status.tolist() for report in found] == [expected, expected]


# Precision: what was suspected of float32 and of thin cones, and did not happen.


def test_float32_witnesses_survive_exact_arithmetic() -> None:
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(400, 12)).astype(np.float32)
    bias = rng.normal(size=400).astype(np.float32)
    report = verify(OutputLayer(weight, bias))
    assert check_proofs(vars(report.proofs), weight, bias).undecided == 0


def test_thin_cones_of_a_polygon_with_1900_corners() -> None:
    angle = np.linspace(0, 2 * np.pi, 1900, endpoint=False)
    weight = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for domain in ("box:100", "free"):
        report = verify(OutputLayer(weight), domain)
        assert report.counts["argmaxable"] == 1900, domain
        check_proofs(vars(report.proofs), weight, None)


def test_a_layer_scaled_by_1e_11_keeps_its_verdicts() -> None:
    weight, bias = crowded()
    expected = verify(OutputLayer(weight, bias)).status.tolist()
    report = verify(OutputLayer(weight * 1e-11, bias * 1e-11))
    assert report.status.tolist() == expected


def test_regions_too_small_to_detect_are_never_called_empty() -> None:
    # On the moment curve t -> (t, .., t^6) every row is a vertex of the hull, by theory.
    curve = np.linspace(-1, 1, 60)[:, None] ** np.arange(1, 7)
    report = verify(OutputLayer(curve), "free")
    assert report.counts["unargmaxable"] == 0
    check_proofs(vars(report.proofs), curve, None)


# Names, padding and storage.


def test_names_must_match_and_padding_is_excluded() -> None:
    weight, bias = crowded()
    with pytest.raises(LayerError, match="190 names for 200 classes"):
        OutputLayer(weight, bias, names=[str(i) for i in range(190)])
    names = [f"w{i}" for i in range(190)] + ["<pad>"] * 10
    report = verify(OutputLayer(weight, bias, names=names, excluded=range(190, 200)))
    assert report.counts["excluded"] == 10
    assert not set(report.proofs.certificate_support.tolist()) & set(range(190, 200))
    assert "<pad>" not in report.table(limit=200)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_that_need_a_gradient(dtype: torch.dtype) -> None:
    weight, bias = crowded()
    parameters = [torch.nn.Parameter(torch.from_numpy(a).to(dtype)) for a in (weight, bias)]
    report = verify(OutputLayer(*parameters))
    exact = [parameter.detach().double().numpy() for parameter in parameters]
    assert check_proofs(vars(report.proofs), *exact).undecided == 0


def test_fewer_classes_than_dimensions_get_an_answer_each() -> None:
    rng = np.random.default_rng(4)
    weight = rng.normal(size=(5, 8))
    weight[4] = (weight[0] + weight[1]) / 2
    report = verify(OutputLayer(np.vstack([weight, weight[3]])), Domain.box(1.0))
    assert report.status.tolist() == [1, 1, 1, 2, 2, 2]


# A solver that fails, stops early or lies leaves a class undecided, never unargmaxable.


def _raise(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no licence")


def _stop(self: InteriorPoint) -> torch.Tensor:
    return torch.zeros(len(self.offset), dtype=torch.bool, device=self.offset.device)


def _lie(self: InteriorPoint) -> torch.Tensor:
    self.weight = torch.ones_like(self.weight)
    self.primal = torch.ones_like(self.primal)
    return torch.ones(len(self.offset), dtype=torch.bool, device=self.offset.device)


def _not_a_number(self: InteriorPoint) -> torch.Tensor:
    self.weight = torch.full_like(self.weight, torch.nan)
    self.primal = torch.full_like(self.primal, torch.nan)
    return torch.ones(len(self.offset), dtype=torch.bool, device=self.offset.device)


STEPS = {"raises": _raise, "stops": _stop, "lies": _lie, "NaN": _not_a_number}


@pytest.fixture
def broken_highs(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """HiGHS raises, or reports what the parameter says without having run."""
    if request.param == "raises":
        monkeypatch.setattr(highspy.Highs, "run", _raise)
        return
    monkeypatch.setattr(highspy.Highs, "run", lambda *_, **__: highspy.HighsStatus.kOk)
    claimed = getattr(highspy.HighsModelStatus, request.param)
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda *_, **__: claimed)


HIGHS = ("raises", "kInfeasible", "kUnbounded", "kTimeLimit", "kUnknown", "kSolveError", "kOptimal")


@pytest.mark.usefixtures("broken_highs")
@pytest.mark.parametrize("broken_highs", HIGHS, indirect=True)
@pytest.mark.parametrize("domain", ["box:100", "free"])
@pytest.mark.parametrize("step", STEPS)
def test_when_every_solver_fails_classes_stay_undecided(
    monkeypatch: pytest.MonkeyPatch, step: str, domain: str
) -> None:
    monkeypatch.setattr(InteriorPoint, "step", STEPS[step])
    weight, bias = crowded(classes=60)
    report = verify(OutputLayer(weight, bias), domain, patience=0)
    # Every proof that the file holds is still a right one, and most are missing.
    summary = check_proofs(vars(report.proofs), weight, bias)
    assert summary.undecided > 0
    assert summary.unargmaxable == 0 or step == "lies"
    assert report.complete
    assert (report.potential | (report.status == Status.ARGMAXABLE)).all()


@pytest.mark.parametrize("domain", ["box:100", "free"])
@pytest.mark.parametrize("step", STEPS)
def test_when_the_interior_point_fails_no_verdict_is_wrong(
    monkeypatch: pytest.MonkeyPatch, step: str, domain: str
) -> None:
    weight, bias = crowded(classes=60)
    expected = verify(OutputLayer(weight, bias), domain).status
    monkeypatch.setattr(InteriorPoint, "step", STEPS[step])
    report = verify(OutputLayer(weight, bias), domain, patience=0)
    check_proofs(vars(report.proofs), weight, bias)
    decided = report.status != Status.UNDECIDED
    assert (report.status == expected)[decided].all()


@pytest.mark.usefixtures("broken_highs")
@pytest.mark.parametrize("broken_highs", HIGHS, indirect=True)
@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_when_highs_fails_no_verdict_is_wrong(domain: str) -> None:
    weight, bias = crowded(classes=60)
    report = verify(OutputLayer(weight, bias), domain, patience=0, exact="cutting_plane")
    summary = check_proofs(vars(report.proofs), weight, bias)
    assert summary.undecided + summary.unargmaxable > 0


@pytest.mark.parametrize("exact", ["interior_point", "cutting_plane"])
def test_out_of_time_is_undecided_and_said(exact: Any) -> None:
    weight, bias = crowded()
    report = verify(OutputLayer(weight, bias), patience=0, time_limit=0.0, exact=exact)
    assert not report.complete
    assert report.counts["unargmaxable"] == 0
    assert report.counts["undecided"] > 0
    assert "time limit" in report.summary()
    check_proofs(vars(report.proofs), weight, bias)


def test_the_default_device_of_a_program_does_not_matter() -> None:
    layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    before = torch.get_default_device()
    try:
        torch.set_default_device("meta")
        report = verify(layer)
    finally:
        torch.set_default_device(before)
    assert report.status.tolist() == [1, 1, 1, 2]


def test_a_rival_s_lead_has_an_error_bound_of_its_own() -> None:
    """Both leaders of this layer are long and the target is 0: its bound would not do for them."""
    dim, unit = 64, 2.0**-24
    up, down = np.full(dim, unit * (1 + 2**-18)), np.full(dim, unit * (1 - 2**-18))
    up[0], down[0] = 1, 1 + 20 * 2.0**-23
    weight = np.array([up, down, -up, -down, 0 * up], dtype=np.float32)
    report = verify(OutputLayer(weight), Domain.box(np.ones(dim), np.ones(dim)))
    assert report.status.tolist() == [2, 1, 2, 2, 2]


def test_autocast_changes_no_proof() -> None:
    layer = OutputLayer(np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32))
    plain = verify(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        report = verify(layer)
        proven = [
            check(layer, report.domain, Witness(int(index), point)).status
            for index, point in zip(report.proofs.witness_class, report.proofs.witness, strict=True)
        ]
    assert report.status.tolist() == plain.status.tolist()
    assert set(proven) == {Status.ARGMAXABLE}


def test_values_that_are_read_as_zero_are_refused() -> None:
    small = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32) * np.float32(1e-40)
    layer = OutputLayer(small)
    assert verify(layer).counts["argmaxable"] == 10
    torch.set_flush_denormal(True)
    try:
        with pytest.raises(LayerError, match="subnormal"):
            verify(layer)
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("path", ["", "mkldnn", "mkldnn.matmul"])
def test_reduced_precision_by_the_new_interface_is_not_used(path: str) -> None:
    place: Any = torch.backends
    for name in path.split(".") if path else []:
        place = getattr(place, name)
    layer = OutputLayer(np.random.default_rng(0).standard_normal((100, 3)).astype(np.float32))
    if not hasattr(place, "fp32_precision"):
        pytest.skip("this torch has no such setting")
    before = place.fp32_precision
    place.fp32_precision = "tf32"
    try:
        assert Checker(layer, Domain.box(1.0)).sweep.dtype == torch.float64
    finally:
        place.fp32_precision = before


@pytest.mark.parametrize("excluded", [np.array([False, True, False]), [1.5], "12"])
def test_what_is_no_list_of_ids_is_refused(excluded: Any) -> None:
    with pytest.raises(LayerError, match="excluded"):
        OutputLayer(np.eye(3), excluded=excluded)


def test_arrays_of_every_layout() -> None:
    weight = np.arange(6, dtype=">f4").reshape(3, 2)
    assert OutputLayer(weight[::-1]).weight.tolist() == [[4, 5], [2, 3], [0, 1]]
    assert OutputLayer(weight.astype(np.uint16)).weight.dtype == torch.float64
    with pytest.raises(LayerError, match="mask"):
        OutputLayer(np.ma.masked_equal(weight, 3.0))
    with pytest.raises(LayerError, match="meta"):
        OutputLayer(torch.empty(3, 2, device="meta"))
