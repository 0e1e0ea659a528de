"""The same answer every time, and without operations that CUDA can't repeat."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.activations.maps import CASES, inside
from tests.activations.operations import Operations
from tests.losses.pairwise import label_sets
from tests.losses.test_options import LOSSES

SORTERS = {"sort", "topk", "argsort", "kthvalue"}


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def twice(run: object, z: Tensor) -> Operations:
    """Run forward and backward two times; equal to the last bit."""
    assert callable(run)
    results = []
    for _ in range(2):
        x = z.clone().requires_grad_()
        with Operations() as operations:
            value = run(x)
            value.square().sum().backward()
        results.append((value, x.grad))
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)
    return operations


@pytest.mark.parametrize("classes", [7, 700, 5000])
@pytest.mark.parametrize("name", CASES)
def test_maps(name: str, classes: int) -> None:
    """deep-spin/entmax#38: cumsum; pytorch/pytorch#77764: sort isn't there on every device."""
    operations = twice(CASES[name].run, inside(name, 4, classes).float())
    assert "backward" not in operations.names
    assert "sub" in operations.names or "_softmax" in operations.names or "div" in operations.names
    assert not operations.refused
    assert not operations.names & SORTERS


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    labels = label_sets(4, 300)
    mask = torch.ones(4, 300, dtype=torch.bool)
    mask[:, 5] = False
    for given in (None, mask):
        operations = twice(
            lambda z, given=given: LOSSES[name](z, labels, mask=given),
            inside("sparsemax", 4, 300).float(),
        )
        assert not operations.refused


def test_the_recorder_sees_what_it_is_for() -> None:
    z = torch.randn(3, 4)
    with Operations() as operations:
        z.cumsum(1)
        (z > 0).cumsum(1)
        z.sort(1)
        z.view(4, 3)
    assert operations.refused == {"cumsum"}
    assert "sort" in operations.names
    assert operations.largest == 12 * 8
