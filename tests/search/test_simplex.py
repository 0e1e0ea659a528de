from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.independent import ExactLayer
from tests.search import Floats, Stage, status_of
from unarg_callback import Status
from unarg_callback.search.linear_program import LinearProgram
from unarg_callback.search.simplex import share_simplex, simplex_certificate


def enclosed(
    dim: int, inner: int, seed: int = 0, offset: float = 0.0
) -> tuple[Floats, torch.Tensor]:
    """One simplex (the first d + 1 classes), and many classes well inside it."""
    rng = np.random.default_rng(seed)
    corners = rng.normal(size=(dim + 1, dim)) * 3
    share = 0.7 * rng.dirichlet(np.ones(dim + 1), size=inner) + 0.3 / (dim + 1)
    weight = np.concatenate([corners, share @ corners]) + offset
    return weight, torch.arange(dim + 1, len(weight))


@pytest.mark.parametrize("offset", [0.0, 50.0])
@pytest.mark.parametrize("dim", [1, 2, 6, 12])
def test_a_simplex_is_found_among_many_rivals(dim: int, offset: float) -> None:
    weight, inner = enclosed(dim, 20, offset=offset)
    stage = Stage.of(weight, domain="free")
    for target in inner[:5].tolist():
        rivals = np.array([i for i in range(len(weight)) if i != target])
        found = simplex_certificate(stage.checker, stage.frame, target, rivals)
        assert found is not None
        assert found.support is not None
        assert target not in found.support
        assert len(found.support) <= dim + 1
        assert found.lead <= 0
        assert status_of(stage, found) == Status.UNARGMAXABLE


def test_none_where_the_row_is_outside_or_rivals_are_few() -> None:
    weight, inner = enclosed(3, 4)
    stage = Stage.of(weight, domain="free")
    rivals = np.arange(1, len(weight))
    assert simplex_certificate(stage.checker, stage.frame, 0, rivals) is None
    few = np.array([0, 1])
    assert simplex_certificate(stage.checker, stage.frame, int(inner[0]), few) is None


def test_on_a_face_the_support_is_smaller() -> None:
    """The middle of an edge, and of a face, of a tetrahedron with integer corners."""
    weight = np.array([[0, 0, 0], [4, 0, 0], [0, 4, 0], [0, 0, 4], [2, 2, 0], [1, 1, 2]], float)
    stage = Stage.of(weight, domain="free")
    for target, expected in ((4, [1, 2]), (5, [1, 2, 3])):
        found = simplex_certificate(stage.checker, stage.frame, target, np.arange(4))
        assert found is not None
        assert found.support is not None
        assert found.support.tolist() == expected
        assert status_of(stage, found) == Status.UNARGMAXABLE


def test_the_bias_chooses_the_simplex() -> None:
    """Two pairs enclose the middle; only the one with high biases beats it."""
    weight = np.array([[1.0, 0], [-1.0, 0], [0, 1.0], [0, -1.0], [0, 0]])
    for bias, expected in (([0, 0, 5, 5, 1], [2, 3]), ([5, 5, 0, 0, 1], [0, 1])):
        stage = Stage.of(weight, np.array(bias, float), "free")
        found = simplex_certificate(stage.checker, stage.frame, 4, np.arange(4))
        assert found is not None
        assert found.support is not None
        assert found.support.tolist() == expected
    raised = Stage.of(weight, np.array([0, 0, 5, 5, 6.0]), "free")
    assert simplex_certificate(raised.checker, raised.frame, 4, np.arange(4)) is None


def test_a_solver_that_fails_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearProgram, "solve", lambda self, seconds=1.0: None)
    weight, inner = enclosed(3, 4)
    stage = Stage.of(weight, domain="free")
    assert simplex_certificate(stage.checker, stage.frame, int(inner[0]), np.arange(4)) is None


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_one_simplex_proves_all_that_lie_in_it(offset: float) -> None:
    weight, inner = enclosed(5, 60, offset=offset)
    stage = Stage.of(weight, domain="free")
    first = simplex_certificate(stage.checker, stage.frame, int(inner[0]), np.arange(6))
    assert first is not None
    shared = share_simplex(stage.checker, first, torch.cat([torch.arange(6), inner[1:]]))
    assert [outcome.target for outcome in shared] == inner[1:].tolist()
    exact = ExactLayer(weight, None)
    for outcome in shared:
        assert status_of(stage, outcome) == Status.UNARGMAXABLE
        assert outcome.support is not None
        assert outcome.weight is not None
        assert exact.free_bound(outcome.target, outcome.support, outcome.weight) == Fraction(0)


def test_a_smaller_support_is_not_shared() -> None:
    weight = np.array([[0, 0], [4, 0], [0, 4], [2, 0], [1, 0]], float)
    stage = Stage.of(weight, domain="free")
    edge = simplex_certificate(stage.checker, stage.frame, 3, np.array([0, 1, 2]))
    assert edge is not None
    assert share_simplex(stage.checker, edge, torch.tensor([4])) == []
