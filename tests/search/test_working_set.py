from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.search import Stage, random_layer
from unarg_callback.search.working_set import Neighbours, working_set_size


def neighbours(classes: int = 300, dim: int = 4) -> tuple[Stage, Neighbours]:
    weight, _ = random_layer("gaussian", classes, dim)
    stage = Stage.of(weight * np.logspace(-2, 2, dim))
    return stage, Neighbours(stage.checker.sweep, stage.frame)


@pytest.mark.parametrize(
    ("dim", "count", "expected"),
    [(16, 5000, 160), (512, 30000, 2052), (16, 100, 99), (16, 1, 0), (16, 0, 0)],
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


def test_spreading_out_takes_the_farthest_each_time() -> None:
    _, found = neighbours()
    targets = torch.arange(0, 300, 2)
    chosen = found.spread_out(targets, 12)
    assert len(chosen.unique()) == 12
    assert torch.isin(chosen, targets).all()
    assert torch.equal(chosen, chosen.sort().values)
    rows = found.whitened
    picked = [int(targets[rows[targets].square().sum(1).argmin()])]
    while len(picked) < 12:
        distance = torch.cdist(rows[targets], rows[picked]).amin(1)
        picked.append(int(targets[distance.argmax()]))
    assert chosen.tolist() == sorted(picked)


def test_spreading_out_over_more_than_there_are_takes_all() -> None:
    _, found = neighbours()
    targets = torch.tensor([3, 1, 2])
    assert torch.equal(found.spread_out(targets, 3), targets)
    assert torch.equal(found.spread_out(targets, 8), targets)


def test_equal_rows_can_be_spread_out() -> None:
    stage = Stage.of(np.ones((6, 2)))
    chosen = Neighbours(stage.checker.sweep, stage.frame).spread_out(torch.arange(6), 3)
    assert len(chosen) == 3
