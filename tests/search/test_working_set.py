from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.search import Stage, random_layer
from unarg_callback.search.working_set import Neighbours, Seeds, working_set_size


def neighbours(classes: int = 300, dim: int = 4) -> tuple[Stage, Neighbours]:
    weight, _ = random_layer("gaussian", classes, dim)
    stage = Stage.of(weight * np.logspace(-2, 2, dim))
    return stage, Neighbours(stage.checker.sweep, stage.frame)


@pytest.mark.parametrize(
    ("dim", "count", "expected"),
    [(16, 5000, 120), (512, 30000, 1539), (16, 100, 99), (16, 1, 0), (16, 0, 0)],
)
def test_how_many_rivals(dim: int, count: int, expected: int) -> None:
    assert working_set_size(dim, count) == expected


def test_the_nearest_whitened_rows_are_chosen() -> None:
    stage, found = neighbours()
    nobody = torch.zeros(300, dtype=torch.bool)
    rivals = found.of(torch.tensor([5, 0, 299]), nobody, 20)
    rows = (stage.checker.sweep.rows(slice(None)) - stage.frame.mean) @ stage.frame.root
    for target, chosen in zip((5, 0, 299), rivals, strict=True):
        distance = (rows - rows[target]).norm(dim=1)
        distance[target] = torch.inf
        assert set(chosen.tolist()) == set(distance.topk(20, largest=False).indices.tolist())


def test_classes_known_to_win_come_first() -> None:
    _, found = neighbours()
    known = torch.zeros(300, dtype=torch.bool)
    known[::20] = True
    rivals = found.of(torch.arange(300), known, 40)
    for target, chosen in enumerate(rivals.tolist()):
        assert target not in chosen
        assert len(set(chosen)) == 40
        assert set(known.nonzero().squeeze(1).tolist()) - {target} <= set(chosen)


def test_no_targets() -> None:
    _, found = neighbours()
    assert found.of(torch.zeros(0, dtype=torch.int64), torch.ones(300) > 0, 7).shape == (0, 7)


def clusters(sizes: list[int], dim: int = 6) -> tuple[Neighbours, NDArray[np.int64]]:
    """Rows that lie together in groups, and which of them each belongs to; shuffled."""
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    weight = 10 * rng.normal(size=(len(sizes), dim))[group] + 0.01 * rng.normal(
        size=(len(group), dim)
    )
    stage = Stage.of(weight)
    return Neighbours(stage.checker.sweep, stage.frame), group


def test_the_densest_are_from_as_many_clusters_as_there_are_the_largest_first() -> None:
    found, group = clusters([400, 60, 40, *[1] * 20])
    everyone = torch.arange(len(group))
    for count, expected in ((1, {0}), (2, {0, 1}), (3, {0, 1, 2})):
        chosen = found.densest(everyone, count)
        assert len(chosen) == count
        assert set(group[chosen.numpy()].tolist()) == expected
        assert torch.equal(chosen, chosen.sort().values)


def test_the_densest_are_among_those_asked_about() -> None:
    found, group = clusters([400, 60, 40, *[1] * 20])
    targets = torch.from_numpy(np.flatnonzero((group == 1) | (group == 2)))
    chosen = found.densest(targets, 2)
    assert set(group[chosen.numpy()].tolist()) == {1, 2}
    assert torch.isin(found.densest(targets, 50), targets).all()
    assert len(found.densest(targets, 50).unique()) == 50


def test_more_of_the_densest_than_there_are_is_everyone() -> None:
    _, found = neighbours()
    targets = torch.tensor([3, 1, 2])
    assert torch.equal(found.densest(targets, 3), targets)
    assert torch.equal(found.densest(targets, 8), targets)


def test_equal_rows_have_a_densest() -> None:
    stage = Stage.of(np.ones((6, 2)))
    chosen = Neighbours(stage.checker.sweep, stage.frame).densest(torch.arange(6), 3)
    assert len(chosen.unique()) == 3


def seeds(**given: Any) -> tuple[Stage, Seeds]:
    stage, found = neighbours()
    known = given.pop("known", torch.ones(300, dtype=torch.bool))
    return stage, Seeds(found, known, 24, given.pop("supports", {}), **given)


def test_seeds_are_of_the_certificate_then_the_strongest_then_the_nearest() -> None:
    support = np.array([7, 250, 3, 8], dtype=np.int64)
    parts = {5: (support, np.array([0.1, 0.4, 0.2, 0.3]))}
    points = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    begin = torch.randn(300, 4, generator=torch.Generator().manual_seed(1))
    stage, found = seeds(supports=parts, points=points, begin=lambda targets: begin[targets])
    targets = torch.tensor([5, 9])
    rivals = found.of(targets)
    assert rivals.shape == (2, 24)
    assert rivals[0, :4].tolist() == [250, 8, 3, 7]
    for row, target in enumerate(targets.tolist()):
        assert target not in rivals[row]
        assert len(rivals[row].unique()) == 24
        for places in (begin, points):
            one = torch.tensor([target])
            first = stage.checker.sweep.strongest(one, places[one], 8)[0]
            assert torch.isin(first, rivals[row]).all()


def test_without_points_seeds_are_the_nearest() -> None:
    _, found = seeds()
    targets = torch.tensor([5, 0, 299])
    assert torch.equal(found.of(targets), found.neighbours.of(targets, found.known, 24))


def test_seeds_known_to_win_come_first() -> None:
    known = torch.zeros(300, dtype=torch.bool)
    known[::25] = True
    points = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    _, found = seeds(known=known, points=points)
    for row in found.of(torch.tensor([1, 2, 3])).tolist():
        assert set(row[:12]) == set(range(0, 300, 25))


def test_seeds_of_all_there_are() -> None:
    stage, near = neighbours(8)
    found = Seeds(
        near, torch.ones(8, dtype=torch.bool), 7, {}, stage.checker.sweep.rows(slice(None)).float()
    )
    for target, row in enumerate(found.of(torch.arange(8)).tolist()):
        assert sorted([*row, target]) == list(range(8))
