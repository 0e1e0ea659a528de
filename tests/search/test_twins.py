from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from unarg_callback import OutputLayer
from unarg_callback.search import twins as module
from unarg_callback.search.twins import find_twins


def twins_of(
    weight: object, bias: object = None, excluded: tuple[int, ...] = ()
) -> tuple[list[int], list[int]]:
    layer = OutputLayer(
        np.asarray(weight, dtype=float),
        None if bias is None else np.asarray(bias, dtype=float),
        excluded=excluded,
    )
    found = find_twins(layer)
    return found.beaten_by.tolist(), found.duplicate_of.tolist()


A, B, C = [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]


@pytest.mark.parametrize(
    ("weight", "bias", "beaten_by", "duplicate_of"),
    [
        ([A, B, C], None, [-1, -1, -1], [-1, -1, -1]),
        ([A, B, A], None, [2, -1, 0], [2, -1, 0]),
        ([A, A, A], None, [1, 0, 0], [1, 0, 0]),
        ([A, B, A], [1, 0, 0], [-1, -1, 0], [-1, -1, -1]),
        ([A, B, A], [0, 0, 1], [2, -1, -1], [-1, -1, -1]),
        # The highest two tie, the third is below both, and equals nobody.
        ([A, A, A], [1, 1, 0], [1, 0, 0], [1, 0, -1]),
        # Two low ones equal each other and are beaten by the single highest.
        ([A, A, A], [0, 0, 1], [2, 2, -1], [1, 0, -1]),
        ([A, B, A, B], [0, 5, 0, 4], [2, -1, 0, 1], [2, -1, 0, -1]),
        ([[0.0, -0.0], [-0.0, 0.0], [0.0, 1.0]], None, [1, 0, -1], [1, 0, -1]),
        ([A, A], [0.0, -0.0], [1, 0], [1, 0]),
        ([[1.0], [1.0 + 2.0**-52]], None, [-1, -1], [-1, -1]),
        ([[5e-324], [0.0]], None, [-1, -1], [-1, -1]),
    ],
)
def test_groups_of_equal_rows(
    weight: object, bias: object, beaten_by: list[int], duplicate_of: list[int]
) -> None:
    assert twins_of(weight, bias) == (beaten_by, duplicate_of)


def test_excluded_twins_are_ignored_and_positions_count() -> None:
    """Of four equal rows two take no part; positions are those among the active classes."""
    beaten_by, duplicate_of = twins_of([A, A, B, A, A], [9, 0, 0, 9, 0], excluded=(0, 3))
    assert beaten_by == [2, -1, 0]
    assert duplicate_of == [2, -1, 0]
    assert twins_of([A, A], excluded=(0,)) == ([-1], [-1])
    assert twins_of([A, A], excluded=(0, 1)) == ([], [])


def test_rows_that_only_share_a_hash_are_no_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(rows: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(rows), dtype=torch.int64)

    rng = np.random.default_rng(0)
    weight = rng.integers(-2, 3, size=(60, 2)).astype(float)
    bias = rng.integers(0, 2, size=60).astype(float)
    expected = twins_of(weight, bias)
    monkeypatch.setattr(module, "row_hashes", zeros)
    assert twins_of(weight, bias) == expected
    assert twins_of([A, B, C]) == ([-1] * 3, [-1] * 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_groups_agree_with_a_comparison_of_all_pairs(dtype: type) -> None:
    rng = np.random.default_rng(1)
    weight: NDArray[Any] = rng.integers(-1, 2, size=(300, 4)).astype(dtype)
    weight[weight == 0] *= rng.choice([-1, 1], size=int((weight == 0).sum())).astype(dtype)
    bias: NDArray[Any] = rng.integers(0, 3, size=300).astype(dtype)
    beaten_by, duplicate_of = twins_of(weight, bias)
    for t in range(300):
        same = [i for i in range(300) if i != t and (weight[i] == weight[t]).all()]
        equal = [i for i in same if bias[i] == bias[t]]
        assert duplicate_of[t] == (equal[0] if equal else -1)
        above = [i for i in same if bias[i] >= bias[t]]
        assert (beaten_by[t] >= 0) == bool(above)
        if above:
            assert beaten_by[t] in above


def test_hashes_depend_on_the_row_alone_and_on_its_order() -> None:
    rng = np.random.default_rng(2)
    rows = torch.from_numpy(rng.normal(size=(9000, 3)))
    together = module.row_hashes(rows)
    assert torch.equal(together[17:18], module.row_hashes(rows[17:18]))
    assert len(together.unique()) == 9000
    assert not torch.equal(together, module.row_hashes(rows.flip(1)))


def test_twins_that_stand_far_apart() -> None:
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(9000, 2))
    weight[8999] = weight[3]
    beaten_by, duplicate_of = twins_of(weight)
    assert (beaten_by[3], beaten_by[8999], duplicate_of[3]) == (8999, 3, 8999)
    assert sum(i >= 0 for i in beaten_by) == 2
