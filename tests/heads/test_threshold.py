"""The tuned threshold is the best of all."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unarg_callback.heads import best_threshold
from unarg_callback.losses import TargetError


def micro_f(p: Tensor, target: Tensor, threshold: float) -> float:
    chosen = p.double() > threshold
    hits = int((chosen & target.bool()).sum())
    return 2 * hits / int(chosen.sum() + target.bool().sum())


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_no_other_threshold_has_a_higher_f(seed: int, rows: int, labels: int, ties: bool) -> None:
    draw = torch.Generator().manual_seed(seed)
    p = torch.rand(rows, labels, generator=draw)
    if ties:
        p = (4 * p).floor() / 4
    target = torch.rand(rows, labels, generator=draw) < 0.4
    target[0, 0], p[0, 0] = True, 0.5
    found = micro_f(p, target, best_threshold(p, target))
    others = [0.0, *p.flatten().tolist(), *(p.flatten() / 2).tolist()]
    assert found >= max(micro_f(p, target, other) for other in others)


def test_it_lies_in_the_middle_of_its_interval() -> None:
    p = torch.tensor([[0.75, 0.25]], dtype=torch.float64)
    assert best_threshold(p, torch.tensor([[1, 0]])) == 0.5
    assert best_threshold(p, torch.tensor([[1, 1]])) == 0.125


def test_neighbouring_probabilities_are_told_apart() -> None:
    high = torch.tensor(0.7)
    low = high.nextafter(torch.tensor(0.0))
    p, target = torch.stack([high, low])[None], torch.tensor([[True, False]])
    assert micro_f(p, target, best_threshold(p, target)) == 1.0


def test_without_a_label_there_is_nothing_to_tune_on() -> None:
    for rows in (0, 3):
        with pytest.raises(TargetError, match="no label to tune a threshold on"):
            best_threshold(torch.rand(rows, 2), torch.zeros(rows, 2))


def test_shapes_must_agree() -> None:
    with pytest.raises(TargetError, match=r"\(3, 2\) and targets \(2, 3\)"):
        best_threshold(torch.rand(3, 2), torch.zeros(2, 3))
