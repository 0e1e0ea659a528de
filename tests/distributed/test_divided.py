"""Checks divided among real processes: the verdicts of one, each proven, and alike on all."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests import problems
from tests.distributed.processes import in_processes
from tests.independent import check_proofs
from tests.layer_updates import DOMAINS, Drift, drift, random_drift
from tests.search import random_layer
from tests.test_incremental import require_same, require_sound
from unarg_callback import IncrementalVerifier, OutputLayer, Report, Status, verify
from unarg_callback.distributed.divided import CONTRADICTION, Found, found_by, part_of, share
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.domain import Domain
from unarg_callback.report import Reuse
from unarg_callback.search.limits import Limits
from unarg_callback.search.stages import Stages
from unarg_callback.verification import from_scratch


def require_alike(reports: list[Any]) -> Report:
    """The same on every rank, to the last bit, but for the seconds; the first is returned."""
    first: Report
    first, *others = [pickle.loads(report) for report in reports]
    for other in others:
        told = {**vars(first), **vars(first.evidence)}
        heard = {**vars(other), **vars(other.evidence)}
        told["reuse"], heard["reuse"] = (
            replace(report.reuse, essential_seconds=0.0) for report in (first, other)
        )
        for name in told.keys() - {"seconds", "evidence", "points", "certificates", "proofs"}:
            _require_equal(told[name], heard[name], name)
        for part in ("points", "certificates"):
            for name, value in vars(told[part]).items():
                _require_equal(value, vars(heard[part])[name], f"{part}.{name}")
    return first


def _require_equal(one: Any, other: Any, name: str) -> None:
    assert type(one) is type(other), name
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other), name
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, name)
    else:
        assert one == other, name


def layer_of(problem: problems.Problem) -> OutputLayer:
    return OutputLayer(problem.weight, problem.bias, excluded=problem.excluded)


def check_all_problems() -> list[bytes]:
    ranks = Ranks.join()
    return [
        pickle.dumps(verify(layer_of(problem), problem.domain, ranks=ranks))
        for problem in (make() for make in problems.ALL)
    ]


@pytest.mark.parametrize("size", [2, 3])
def test_problems_with_known_answers(size: int) -> None:
    # Some have fewer classes than there are ranks.
    assert min(len(make().weight) for make in problems.ALL) < 3
    for make, *reports in zip(
        problems.ALL, *in_processes(check_all_problems, size=size), strict=True
    ):
        problem = make()
        report = require_alike(reports)
        assert report.status.tolist() == list(problem.expected), make.__name__
        check_proofs(vars(report.proofs), problem.weight, problem.bias, problem.excluded)
        alone = verify(layer_of(problem), problem.domain)
        np.testing.assert_array_equal(report.duplicate_of, alone.duplicate_of)
        assert report.notes == alone.notes
        assert report.complete


def sequences() -> Iterator[Drift]:
    for seed, domain in enumerate(DOMAINS):
        yield random_drift(900 + seed, domain, updates=3)
    for at, kind in enumerate(("crowded", "duplicated", "clustered", "ties")):
        updates = ["small steps", "copied"]
        options = {"deepen": 20}
        yield drift(at, DOMAINS[at], kind, updates, classes=90, dim=3, excluded=20, options=options)


def follow_all() -> list[bytes]:
    """Reports and states of every update of every sequence."""
    ranks, told = Ranks.join(), []
    for sequence in sequences():
        verifier = IncrementalVerifier(sequence.domain, **sequence.options, ranks=ranks)
        steps = [step for step in sequence.steps if step.update != "nan"]
        told += [pickle.dumps(verifier.update(step.layer())) for step in steps]
    return told


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_warm_is_cold_is_divided(size: int) -> None:
    found = iter(zip(*in_processes(follow_all, size=size), strict=True))
    undone = 0
    for sequence in sequences():
        options = {key: value for key, value in sequence.options.items() if key != "deepen"}
        for at, step in enumerate(step for step in sequence.steps if step.update != "nan"):
            where = f"{step.update}, step {at} of {sequence}"
            report = require_alike(list(next(found)))
            assert report.reuse.warm is bool(at), where
            require_sound(report, step, where)
            require_same(report, verify(step.layer(), sequence.domain, **options), step, where)
            undone += report.counts["undecided"]
    assert next(found, None) is None
    assert undone < 20


def some_drift() -> Drift:
    updates = ["small steps", "one far", "small steps"]
    return drift(3, "box:100", "crowded", updates, classes=120, dim=3)


def follow_without_time() -> list[bytes]:
    ranks, told = Ranks.join(), []
    verifier = IncrementalVerifier("box:100")
    verifier.ranks = ranks
    layer = some_drift().steps[0].layer()
    # The limit of the others doesn't count.
    for _ in range(60):
        report = verifier.update(layer, time_limit=0.0 if ranks.first else None)
        told.append(pickle.dumps(report))
        if not report.counts["undecided"]:
            break
    told.append(pickle.dumps(verify(layer, time_limit=0.0 if ranks.first else None, ranks=ranks)))
    return told


def test_without_time_each_update_goes_on_and_all_is_done_in_the_end() -> None:
    step = some_drift().steps[0]
    cold = verify(step.layer())
    told = zip(*in_processes(follow_without_time), strict=True)
    *updates, limited = [require_alike(list(reports)) for reports in told]
    assert len(updates) > 1
    assert not updates[0].complete
    assert any("time limit" in note for note in updates[0].notes)
    for report in updates:
        require_sound(report, step)
        decided = report.status != Status.UNDECIDED
        assert (report.status == cold.status)[decided].all()
    np.testing.assert_array_equal(updates[-1].status, cold.status)
    assert not limited.complete
    check_proofs(vars(limited.proofs), *step.exact())


def resume(state: bytes) -> tuple[bytes, bytes]:
    """On rank 1 first what it saves, then what becomes of it."""
    ranks = Ranks.join()
    first, second = some_drift().steps[:2]
    verifier = IncrementalVerifier("box:100", ranks=ranks)
    if state:
        verifier.load_state_dict(pickle.loads(state))
    report = verifier.update((second if state else first).layer())
    return pickle.dumps(report), pickle.dumps(verifier.state_dict())


def test_the_state_that_rank_1_saved_is_that_of_all() -> None:
    (one, saved), (other, also_saved) = in_processes(resume, b"")
    first = require_alike([one, other])
    for name, value in pickle.loads(saved).items():
        _require_equal(value, pickle.loads(also_saved)[name], name)
    (one, _), (other, _) = in_processes(resume, also_saved)
    report = require_alike([one, other])
    assert report.reuse.warm
    assert not first.reuse.warm
    require_sound(report, some_drift().steps[1])
    alone = IncrementalVerifier("box:100")
    alone.load_state_dict(pickle.loads(also_saved))
    np.testing.assert_array_equal(report.status, alone.update(some_drift().steps[1].layer()).status)


def disagree() -> list[bytes]:
    ranks = Ranks.join()
    first, second, third, _ = some_drift().steps
    own = first if ranks.first else third
    told = [verify(own.layer(), ranks=ranks)]
    verifier = IncrementalVerifier("box:100", ranks=ranks)
    told += [verifier.update(own.layer()), verifier.update(first.layer())]
    other = OutputLayer(first.weight[:50], names=[f"n{i}" for i in range(50)], excluded=[3])
    told.append(verifier.update(second.layer() if ranks.first else other))
    # Rank 1 alone goes on by itself, and holds other proofs after that.
    if not ranks.first:
        verifier.ranks = None
        verifier.update(third.layer())
        verifier.ranks = ranks
    told.append(verifier.update(second.layer()))
    told.append(verifier.update(second.layer()))
    if ranks.first:
        verifier.reset()
    told.append(verifier.update(second.layer(), domain="box:9" if ranks.first else "box:8"))
    return [pickle.dumps(report) for report in told]


def test_the_layer_and_the_proofs_are_those_of_rank_0() -> None:
    first, second, _, _ = some_drift().steps
    reports = [require_alike(list(told)) for told in zip(*in_processes(disagree), strict=True)]
    cold, update, again, other, apart, same, forgotten = reports
    note = "Rank 1 had another layer than rank 0."
    for report, step in ((cold, first), (update, first), (again, first), (other, second)):
        require_sound(report, step)
        require_same(report, verify(step.layer()), step)
    assert [note in report.notes for report in reports] == [True, True, False, True] + [False] * 3
    assert [report.reuse.warm for report in reports] == [
        *(False, False, True, True),
        *(False, True, False),
    ]
    assert again.reuse.searched == same.reuse.searched == 0
    told = "Started from nothing: rank 1 held other proofs than rank 0."
    assert [told in report.notes for report in reports] == [False] * 4 + [True, False, True]
    for report in (apart, same):
        require_same(report, verify(second.layer()), second)
        require_sound(report, second)
    assert str(forgotten.domain) == "box:-9,9"
    require_same(forgotten, verify(second.layer(), "box:9"), second)


class Failing:
    """Raises when the stages of a check get that far, on one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise MemoryError(f"no room on {self.rank}")


PLACES = (
    "unarg_callback.incremental.Shape.of",
    "unarg_callback.incremental.Stages",
    "unarg_callback.incremental.from_scratch",
    "unarg_callback.incremental.Renewal",
    "unarg_callback.incremental.report_of",
    "unarg_callback.incremental.Held",
    "unarg_callback.distributed.divided.Checker",
    "unarg_callback.distributed.divided.fingerprint_of",
    "unarg_callback.distributed.divided.found_by",
    "unarg_callback.distributed.divided._merge",
)


def outcome_of(work: Callable[..., object]) -> str:
    try:
        work()
    except Exception as cause:
        return f"{type(cause).__name__}: {cause}"
    return "nothing"


def fail() -> list[str]:
    ranks, told = Ranks.join(), []
    first, second = some_drift().steps[:2]
    for rank in (0, 1):
        warm, cold = (IncrementalVerifier("box:100", ranks=ranks) for _ in range(2))
        before = warm.update(first.layer())
        for place in PLACES:
            verifier = cold if "scratch" in place else warm
            with pytest.MonkeyPatch.context() as patch:
                if ranks.rank == rank:
                    patch.setattr(place, Failing(rank))
                told.append(outcome_of(partial(verifier.update, second.layer())))
            assert (warm.last_report, cold.last_report) == (before, None), place
        for verifier in (warm, cold):
            after = verifier.update(second.layer())
            assert after.reuse.warm is (verifier is warm)
            assert not after.notes
    verifier = IncrementalVerifier("box:100", ranks=ranks)
    bad: list[dict[str, Any]] = [{"time_limit": -1}, {"domain": "ball:3"}, {"domain": [1.0]}]
    for options in bad:
        given = {} if ranks.first else options
        told.append(outcome_of(partial(verifier.update, first.layer(), **given)))
    patience = -1 if ranks.first else None
    told.append(outcome_of(lambda: verify(first.layer(), patience=patience, ranks=ranks)))
    return told


def test_what_fails_on_one_rank_fails_on_all() -> None:
    first, second = in_processes(fail)
    count = len(PLACES)
    assert first[:count] == ["MemoryError: no room on 0"] * count
    assert second[:count] == ["RankError: rank 0 failed: MemoryError: no room on 0"] * count
    assert second[count : 2 * count] == ["MemoryError: no room on 1"] * count
    assert (
        first[count : 2 * count] == ["RankError: rank 1 failed: MemoryError: no room on 1"] * count
    )
    assert [told.split(":")[0] for told in second[2 * count :]] == [
        *("UnargError", "DomainError"),
        # What rank 0 says counts; a box for one dimension can be read.
        *("nothing", "RankError"),
    ]
    assert [told.split(":")[0] for told in first[2 * count :]] == [
        *("RankError", "RankError", "nothing", "UnargError"),
    ]


def stages_of(mine: torch.Tensor, limits: Limits | None = None) -> Stages:
    weight, _ = random_layer("gaussian", 120, 3, seed=2)
    checker = Checker(OutputLayer(weight), Domain.box(100.0))
    return Stages(checker, limits or Limits(), mine=mine)


class Heard(Ranks):
    """Stands for rank 0 of two, which hears from the other what it is told to."""

    def __init__(self, other: Found) -> None:
        super().__init__()
        self.size, self._other = 2, other

    def gather(self, value: Any) -> list[Any]:
        return [value, self._other if isinstance(value, Found) else None]


def two_parts() -> tuple[Stages, Stages]:
    mine = torch.arange(120) % 2 == 0
    one, other = stages_of(mine), stages_of(~mine)
    from_scratch(one, None, "interior_point")
    from_scratch(other, None, "interior_point")
    return one, other


def test_a_part_is_all_that_is_decided() -> None:
    one, other = two_parts()
    for stages in (one, other):
        assert not len(stages.todo())
        assert all(bool(stages.mine[target]) for target in stages.outcomes)
        assert not bool(stages.state.reflections[~stages.mine].any())
    assert len(one.outcomes) > 5
    assert int((one.state.proven & ~one.mine).sum()) > 3


def test_a_witness_found_by_the_way_is_kept_where_there_is_none() -> None:
    one, other = two_parts()
    by_the_way = (one.state.proven & ~one.mine).nonzero().squeeze(1)
    lead = one.state.lead[by_the_way].clone()
    point = one.state.point[by_the_way].clone()
    other.state.proven[:] = False
    heard = found_by(other, Reuse(kept=3, essential_seconds=2.0))
    total = share(Heard(heard), one, Reuse(kept=4, essential_seconds=1.0))
    assert (total.kept, total.essential_seconds) == (7, 2.0)
    assert bool(one.state.proven[by_the_way].all())
    assert torch.equal(one.state.lead[by_the_way], lead)
    assert torch.equal(one.state.point[by_the_way], point)
    odd = torch.arange(120) % 2 == 1
    assert int((one.state.proven & odd).sum()) == len(by_the_way)


def test_proofs_that_contradict_each_other_decide_nothing() -> None:
    one, other = two_parts()
    target = next(iter(t for t, outcome in other.outcomes.items() if outcome.support is not None))
    one.state.proven[target] = True
    one.state.lead[target] = 1.0
    share(Heard(found_by(other, Reuse())), one, Reuse())
    assert target in one.todo().tolist()
    assert one.reasons() == {CONTRADICTION: 1}
    assert one.evidence().status[target] == Status.UNDECIDED


def test_what_is_told_is_small() -> None:
    one, _ = two_parts()
    one.moved[:] = False
    still = found_by(one, Reuse())
    assert len(still.points.half) == 0
    one.moved[:8] = True
    assert len(found_by(one, Reuse()).points.half) == 4
    assert still.own.tolist() == list(range(0, 120, 2))
    assert replace(still, reasons={}).certificates.targets.tolist() == [
        target for target, outcome in sorted(one.outcomes.items()) if outcome.support is not None
    ]


def test_parts_cover_all_classes_once() -> None:
    class Of(Ranks):
        def __init__(self, rank: int, size: int) -> None:
            self.rank, self.size = rank, size

    for size in (1, 2, 3, 7):
        parts = torch.stack([part_of(Of(rank, size), 5) for rank in range(size)])
        assert parts.sum(0).tolist() == [1] * 5
