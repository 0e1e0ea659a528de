"""Memory of the losses: by counting what is allocated, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.activations.maps import scores
from tests.activations.operations import Operations
from tests.losses.pairwise import equation_6, label_sets
from tests.losses.test_options import LOSSES

ROWS = 2


def counted(loss: Callable[[Tensor, Tensor], Tensor], classes: int) -> Operations:
    z = scores(ROWS, classes, dtype=torch.float32).requires_grad_()
    labels = label_sets(ROWS, classes)
    with Operations() as operations:
        loss(z, labels).sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    return operations


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("masked", [False, True])
def test_memory_grows_with_the_classes_not_their_pairs(name: str, masked: bool) -> None:
    """20,000 classes: their pairs would need 1.6 GB a row."""

    def loss(z: Tensor, labels: Tensor) -> Tensor:
        mask = torch.ones_like(labels) if masked else None
        return LOSSES[name](z, labels, mask=mask)

    for classes in (200, 2000, 20_000):
        operations = counted(loss, classes)
        # No tensor has more than an 8-byte number a score, and all that are ever made are few.
        assert operations.largest <= 8 * ROWS * classes
        assert operations.total <= 50 * 8 * ROWS * classes


def test_the_count_finds_pairs() -> None:
    operations = counted(lambda z, labels: equation_6(z, labels, 1.0), 200)
    assert operations.largest >= 4 * ROWS * 200**2
    assert operations.total > 50 * 8 * ROWS * 200
    assert {"mul", "where"} & operations.names
    assert any(name.endswith("backward") for name in operations.names)
