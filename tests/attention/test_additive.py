"""Keys under additive scores: witnesses in more digits, and dominated keys at random queries."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb, ctx

from tests.attention.keys import Floats, masks
from unarg_callback import Status
from unarg_callback.attention import additive, verify_keys

A, U, X, D = Status.ARGMAXABLE, Status.UNARGMAXABLE, Status.EXCLUDED, Status.UNDECIDED


def exact_scores(query: Floats, keys: Floats, v: Floats) -> list[arb]:
    """Of the numbers as they are, in 200 bits; a comparison of these is true only if certain."""
    with ctx.workprec(200):
        return [
            sum(
                (arb(w) * (arb(a) + arb(b)).tanh() for w, a, b in zip(v, query, key, strict=True)),
                arb(0),
            )
            for key in keys.tolist()
        ]


def directions(rng: np.random.Generator, width: int) -> Floats:
    """Of both signs, some of them 0."""
    v = rng.normal(size=width)
    v[rng.random(width) < 0.25] = 0.0
    return v


@pytest.mark.parametrize("seed", range(6))
def test_proofs_of_every_verdict(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, width = int(rng.integers(2, 9)), int(rng.integers(1, 5))
    keys = rng.normal(size=(size, width)) * 10.0 ** rng.uniform(-1, 1)
    keys[rng.integers(size)] = keys[rng.integers(size)]
    v = directions(rng, width)
    for kind, allowed in masks(rng, size).items():
        report = verify_keys(keys, allowed, direction=v)
        assert report.dominated_by is not None
        assert report.witness is not None
        views = np.ones((1, size), dtype=np.bool_) if allowed is None else allowed
        for j, status in enumerate(report.status.tolist()):
            holding = views[views[:, j]]
            assert (status == X) == (not len(holding)), kind
            above = report.dominated_by[j]
            if status == A:
                scores = exact_scores(report.witness[j], keys, v)
                rivals = [[i for i in np.flatnonzero(view) if i != j] for view in holding]
                first = [all(scores[j] > scores[i] for i in view) for view in rivals]
                assert any(first), (kind, j)
            else:
                assert np.isnan(report.witness[j]).all()
            assert (status == U) == (status != X and all((view & above).any() for view in holding))


def test_dominated_keys_are_never_first() -> None:
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(12, 3))
    v = np.array([1.5, -0.5, 2.0])
    report = verify_keys(keys, direction=v)
    beaten = np.flatnonzero(report.status == U)
    assert len(beaten) > 3
    assert report.dominated_by is not None
    assert report.dominated_by[beaten].any(1).all()
    scale = 10.0 ** rng.uniform(-4, 3, size=(100_000, 1))
    hidden = np.tanh(rng.normal(size=(100_000, 1, 3)) * scale[:, None] + keys)
    scores = hidden @ v
    # Where tanh is saturated there are ties, and sums are rounded.
    others = np.delete(scores, beaten, axis=1)
    assert (scores[:, beaten] <= others.max(1)[:, None] + 1e-14).all()


def test_signs_decide() -> None:
    keys = [[0.0, 0.0], [1.0, 1.0], [1.0, -1.0]]
    assert verify_keys(keys, direction=[1.0, 1.0]).status.tolist() == [U, A, U]
    assert verify_keys(keys, direction=[1.0, -1.0]).status.tolist() == [U, U, A]
    assert verify_keys(keys, direction=[-1.0, 0.0]).status.tolist() == [A, U, U]
    # The two others are equal where the direction isn't 0.
    assert verify_keys(keys, direction=[0.0, -1.0]).status.tolist() == [U, U, A]
    assert verify_keys(keys, direction=[0.0, 0.0]).status.tolist() == [U, U, U]
    assert verify_keys(keys[:1], direction=[0.0, 0.0]).status.tolist() == [A]
    assert verify_keys(np.zeros((0, 2)), direction=[1.0, 1.0]).status.tolist() == []


def test_two_that_dominate_only_together_leave_a_key_undecided() -> None:
    """Key 0 beats either by at most a part of what it loses to the other."""
    keys = np.array([[0.0, 0.0], [-0.1, 1.0], [1.0, -0.1]])
    report = verify_keys(keys, direction=[1.0, 1.0])
    assert report.status.tolist() == [D, A, A]
    assert report.dominated_by is not None
    assert not report.dominated_by.any()
    assert report.complete
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(100_000, 1, 2)) * 10.0 ** rng.uniform(-3, 1, size=(100_000, 1, 1))
    scores = np.tanh(queries + keys).sum(-1)
    assert (scores[:, 0] <= scores[:, 1:].max(1) + 1e-15).all()


def test_a_mask_takes_those_above_away() -> None:
    keys = [[0.0], [1.0], [2.0]]
    causal = np.tril(np.ones((3, 3), dtype=np.bool_))
    assert verify_keys(keys, causal, direction=[1.0]).status.tolist() == [A, A, A]
    assert verify_keys(keys, causal, direction=[-1.0]).status.tolist() == [A, U, U]
    assert verify_keys(keys, direction=[1.0]).status.tolist() == [U, U, A]


def test_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, v = np.random.default_rng(3).normal(size=(15, 4)), [1.0, -1.0, 0.5, 2.0]
    whole = verify_keys(keys, direction=v)
    monkeypatch.setattr(additive, "_MOST_ENTRIES", 2 * keys.size)
    parts = verify_keys(keys, direction=v)
    assert parts.status.tolist() == whole.status.tolist()
    assert whole.counts["argmaxable"] > 5


def test_limits_leave_keys_undecided() -> None:
    keys, v = np.random.default_rng(3).normal(size=(15, 4)), [1.0, -1.0, 0.5, 2.0]
    for limit in ({"time_limit": 1e-9}, {"stop": lambda: True}):
        report = verify_keys(keys, direction=v, **limit)
        assert not report.complete
        assert report.counts["undecided"] == 15 - report.counts["unargmaxable"]


def test_huge_keys() -> None:
    report = verify_keys([[1e308, -1e308], [-1e308, 1e308], [0.0, 0.0]], direction=[1.0, 1.0])
    assert report.status[2] in (A, D)
    assert U not in report.status
