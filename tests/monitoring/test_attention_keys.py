"""Keys counted over sequences and heads, and what masks leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unarg_callback.attention import verify_keys
from unarg_callback.errors import UnargError
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.attention_keys import KeyBatch, count_keys, left_out


def keys(seed: int = 0, size: int = 5) -> Tensor:
    return torch.randn(2, 2, size, 1, generator=torch.Generator().manual_seed(seed))


def mask(*shape: int) -> Tensor:
    return torch.rand(*shape, 4, 5, generator=torch.Generator().manual_seed(1)) < 0.6


def expected(batch: KeyBatch) -> dict[str, float]:
    """Of each sequence and head by itself."""
    assert batch.keys is not None
    found: list[int] = []
    for n in range(len(batch.keys)):
        for h in range(batch.keys.shape[1]):
            shape = (
                *batch.keys.shape[:2],
                *([] if batch.allowed is None else batch.allowed.shape[2:]),
            )
            allowed = None if batch.allowed is None else batch.allowed.expand(shape)[n, h]
            direction = None if batch.direction is None else batch.direction[h]
            one = verify_keys(batch.keys[n, h], allowed, direction=direction, by_size=batch.by_size)
            found += one.status.tolist()
    return {
        "keys": float(sum(status != Status.EXCLUDED for status in found)),
        "never_first": float(found.count(Status.UNARGMAXABLE)),
        "undecided": float(found.count(Status.UNDECIDED)),
    }


BATCHES = {
    "all": KeyBatch("all", keys()),
    "one mask": KeyBatch("one mask", keys(), torch.ones(1, 1, 5, 5).tril().bool()),
    "by sequence": KeyBatch("by sequence", keys(), mask(2, 1)),
    "by head": KeyBatch("by head", keys(), mask(1, 2)),
    "by both": KeyBatch("by both", keys(), mask(2, 2)),
    "by size": KeyBatch("by size", keys(), by_size=True),
    "additive": KeyBatch("additive", keys(), direction=torch.tensor([[1.0], [-2.0]])),
}


@pytest.mark.parametrize("name", list(BATCHES))
def test_counts(name: str) -> None:
    batch = BATCHES[name]
    found = count_keys([batch, KeyBatch("none", reason="why")])
    assert found == {name: expected(batch)}
    assert 0 < found[name]["never_first"] < found[name]["keys"] <= 20


def test_limits() -> None:
    assert count_keys([]) == {}
    for limit in ({"time_limit": 0.0}, {"stop": lambda: True}):
        found = count_keys([BATCHES["all"], BATCHES["additive"]], **limit)
        assert found["all"] == {"keys": 20.0, "never_first": 0.0, "undecided": 20.0}
        assert found["additive"]["undecided"] + found["additive"]["never_first"] == 20
    enough = count_keys([BATCHES["all"], BATCHES["additive"]], time_limit=600)
    assert enough == count_keys([BATCHES["all"], BATCHES["additive"]])


class TestLeftOut:
    shape = (2, 5)

    def out(self, padding: Any = None, mask: Any = None, causal: bool = False) -> Any:
        return left_out(self.shape, 3, 4, padding, mask, causal)

    def test_nothing(self) -> None:
        assert self.out() is None

    def test_each_form(self) -> None:
        padding, flat = torch.rand(2, 5) < 0.5, torch.rand(4, 5) < 0.5
        by_head = torch.rand(2, 3, 4, 5) < 0.5
        causal = torch.ones(4, 5).triu(1).bool()
        everything = self.out(padding, by_head.reshape(6, 4, 5), True)
        wanted = padding[:, None, None] | by_head | causal
        assert torch.equal(everything, wanted)
        assert torch.equal(self.out(mask=by_head), by_head)
        assert torch.equal(self.out(mask=flat)[0, 0], flat)
        assert torch.equal(self.out(padding)[:, 0, 0], padding)
        assert torch.equal(self.out(causal=True)[0, 0], causal)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
    def test_float_masks(self, dtype: torch.dtype) -> None:
        flat = torch.rand(4, 5) < 0.5
        mask = torch.zeros(4, 5, dtype=dtype).masked_fill(flat, -torch.inf)
        assert torch.equal(self.out(mask=mask)[0, 0], flat)
        padding = torch.zeros(2, 5, dtype=dtype).masked_fill(torch.rand(2, 5) < 0.5, -torch.inf)
        assert torch.equal(self.out(padding)[:, 0, 0], padding.isneginf())

    @pytest.mark.parametrize("value", [-1e9, 0.5, np.nan, np.inf])
    def test_float_masks_that_add(self, value: float) -> None:
        with pytest.raises(UnargError, match="adds to scores"):
            self.out(mask=torch.full((4, 5), value))
