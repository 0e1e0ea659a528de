"""Different label sets, counted."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unarg_callback.continuity import DAMAGED
from unarg_callback.monitoring import seen_sets
from unarg_callback.monitoring.seen_sets import SeenSets


def counted(seen: SeenSets) -> dict[tuple[bool, ...], int]:
    rows = [tuple(row) for row in seen.sets.tolist()]
    assert len(set(rows)) == len(rows)
    return dict(zip(rows, seen.times.tolist(), strict=True))


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@given(st.data())
def test_counts_in_order(data: st.DataObject) -> None:
    labels = data.draw(st.integers(1, 20))
    row = st.lists(st.booleans(), min_size=labels, max_size=labels)
    seen, expected = SeenSets(labels), Counter[tuple[bool, ...]]()
    for _ in range(data.draw(st.integers(0, 3))):
        rows = data.draw(st.lists(row, max_size=6))
        seen.add(np.array(rows, dtype=np.bool_).reshape(-1, labels))
        expected.update(tuple(one) for one in rows)
    assert counted(seen) == expected
    assert list(counted(seen)) == list(expected)
    assert seen.sets.shape == (len(expected), labels)
    again = SeenSets.from_state(through_a_file(seen.state_dict()))
    assert counted(again) == expected
    assert again.labels == labels
    again.add(seen.sets, seen.times)
    assert again.times.tolist() == [2 * times for times in expected.values()]


def test_no_more_than_most_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_sets, "MOST_SETS", 2)
    seen = SeenSets(3)
    seen.add(np.eye(3, dtype=np.bool_)[[0, 1, 2, 2, 0]])
    seen.add(np.eye(3, dtype=np.bool_), np.array([1, 10, 100]))
    assert seen.sets.tolist() == np.eye(3, dtype=np.bool_)[:2].tolist()
    assert seen.times.tolist() == [3, 11]
    assert seen.left_out == 102
    assert SeenSets.from_state(through_a_file(seen.state_dict())).left_out == 102


@pytest.mark.parametrize(
    "damage",
    [
        {"labels": "x"},
        {"labels": 17},
        {"labels": None},
        {"sets": torch.zeros(2, 2)},
        {"sets": torch.zeros(2, dtype=torch.uint8)},
        {"sets": None},
        {"times": torch.ones(3, dtype=torch.int64)},
        {"times": [1, 2]},
        {"left_out": None},
    ],
)
def test_damaged_states(damage: dict[str, Any]) -> None:
    seen = SeenSets(5)
    seen.add(np.eye(5, dtype=np.bool_)[:2])
    with pytest.raises(DAMAGED):
        SeenSets.from_state({**seen.state_dict(), **damage})
    state = seen.state_dict()
    del state[next(iter(damage))]
    with pytest.raises(DAMAGED):
        SeenSets.from_state(state)
