"""Keys under scaled dot products: exact answers, and every proof rechecked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.attention.keys import Bools, Floats, can_be_first, integral, masks
from tests.independent import check_proofs
from unarg_callback import Status
from unarg_callback.attention import KeyReport, verify_keys

A, U, X = Status.ARGMAXABLE, Status.UNARGMAXABLE, Status.EXCLUDED


def expected(keys: Floats, allowed: Bools | None, by_size: bool) -> list[Status]:
    answers = [can_be_first(keys, allowed, j, by_size) for j in range(len(keys))]
    return [X if answer is None else A if answer else U for answer in answers]


def recheck(folder: Path, keys: Floats, report: KeyReport, by_size: bool) -> int:
    """Check all proofs of a report in exact arithmetic; return how many there are."""
    proofs = 0
    for number, (members, found) in enumerate(report.checks):
        file = folder / f"{number}.npz"
        found.proofs.save(file)
        rows = keys[members]
        # A key by itself has no mirror image for a rival.
        out = [1] if by_size and len(rows) == 1 else []
        summary = check_proofs(file, np.concatenate([rows, -rows]) if by_size else rows, None, out)
        proofs += summary.argmaxable + summary.unargmaxable
    return proofs


def rests_on_checks(report: KeyReport, allowed: Bools | None) -> bool:
    """Whether every verdict follows from those checks that are in the report."""
    rows = np.ones((1, len(report.status)), dtype=np.bool_) if allowed is None else allowed
    by_view = {frozenset(members.tolist()): found for members, found in report.checks}
    for j, status in enumerate(report.status.tolist()):
        views = {frozenset(np.flatnonzero(row).tolist()) for row in rows if row[j]}
        own = {
            view: found.status[sorted(view).index(j)]
            for view, found in by_view.items()
            if j in view and view in views
        }
        if status == A and A not in own.values():
            return False
        beaten = [view for view, verdict in own.items() if verdict == U]
        if status == U and not all(any(held <= view for held in beaten) for view in views):
            return False
    return True


@pytest.mark.parametrize("by_size", [False, True])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))]
)
def test_exact_answers_with_every_mask(tmp_path: Path, seed: int, by_size: bool) -> None:
    rng = np.random.default_rng(seed)
    keys = integral(rng, int(rng.integers(1, 8)), int(rng.integers(1, 4)))
    for kind, allowed in masks(rng, len(keys)).items():
        report = verify_keys(keys, allowed, by_size=by_size)
        wanted = expected(keys, allowed, by_size)
        assert report.status.tolist() == wanted, (keys, kind)
        assert report.complete
        assert rests_on_checks(report, allowed)
        seen = len(keys) - wanted.count(X)
        assert recheck(tmp_path, keys, report, by_size) >= seen * (2 if by_size else 1)


def test_the_cases_hold_all_verdicts() -> None:
    found: list[Status] = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        keys = integral(rng, int(rng.integers(1, 8)), int(rng.integers(1, 4)))
        for allowed in masks(rng, len(keys)).values():
            found += expected(keys, allowed, False)
    assert min(found.count(one) for one in (A, U, X)) > 10


def test_a_mask_that_is_needed_to_the_full() -> None:
    """Key 1 is beaten in the largest and in the smallest view, and first in one between."""
    keys = [[1.0, 0.0], [0.5, 0.0], [-1.0, 0.0], [0.0, 1.0]]
    allowed = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 0, 1]], dtype=np.bool_)
    assert verify_keys(keys, allowed).status.tolist() == [A, A, A, A]
    assert verify_keys(keys, allowed[:2]).status.tolist() == [A, U, A, A]
    assert verify_keys(keys, allowed[1:2]).status.tolist() == [A, U, A, X]


def test_equal_keys_are_never_first() -> None:
    keys = [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]
    assert verify_keys(keys).status.tolist() == [U, U, A]
    assert verify_keys(keys, by_size=True).status.tolist() == [U, U, U]
    # The first of them is before the other one, where it has no equal.
    causal = np.tril(np.ones((3, 3), dtype=np.bool_))
    assert verify_keys(keys, causal).status.tolist() == [A, U, A]


def test_one_key_and_none() -> None:
    assert verify_keys([[0.5, -1.0]]).status.tolist() == [A]
    assert verify_keys([[0.0, 0.0]]).status.tolist() == [A]
    assert verify_keys([[0.5, -1.0]], by_size=True).status.tolist() == [A]
    assert verify_keys([[0.0, 0.0]], by_size=True).status.tolist() == [A]
    for allowed in (None, np.zeros((2, 0), dtype=np.bool_)):
        report = verify_keys(torch.zeros(0, 3), allowed)
        assert (report.status.tolist(), report.checks, report.complete) == ([], (), True)
    report = verify_keys([[1.0], [2.0]], np.zeros((2, 2), dtype=np.bool_))
    assert report.status.tolist() == [X, X]
    assert verify_keys([[1.0], [2.0]], np.zeros((0, 2), dtype=np.bool_)).status.tolist() == [X, X]


def test_fewer_keys_than_features_can_all_be_first() -> None:
    keys = np.random.default_rng(0).normal(size=(6, 9))
    assert set(verify_keys(keys).status.tolist()) == {A}
    assert set(verify_keys(torch.from_numpy(keys).bfloat16()).status.tolist()) == {A}


def test_limits_leave_keys_undecided() -> None:
    keys = np.random.default_rng(0).normal(size=(12, 2))
    causal = np.tril(np.ones((12, 12), dtype=np.bool_))
    exact = verify_keys(keys, causal)
    assert exact.complete
    for limit in ({"time_limit": 1e-9}, {"stop": lambda: True}):
        report = verify_keys(keys, causal, **limit)
        assert report.counts["undecided"] > 0
        assert not report.complete
        decided = report.status != Status.UNDECIDED
        assert (report.status[decided] == exact.status[decided]).all()
