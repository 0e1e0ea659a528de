"""What TensorFlow Addons and entmax test of their sparsemax, and what fails there today."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.activations.maps import by_bisection, scores
from unarg_callback.activations import sparsemax


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (1, 2, 3, 7)])
def test_ranks_against_an_oracle(shape: tuple[int, ...]) -> None:
    z = scores(*shape)
    for row, p in zip(z.view(-1, 7), sparsemax(z).view(-1, 7), strict=True):
        np.testing.assert_allclose(p.numpy(), by_bisection(row.numpy()), atol=1e-14)


def test_zero_small_and_large_scores() -> None:
    assert sparsemax(torch.zeros(4)).tolist() == [0.25] * 4
    z = scores(20, 9)
    top = torch.nn.functional.one_hot(z.argmax(1), 9).double()
    torch.testing.assert_close(sparsemax(z * 1e7), top)
    torch.testing.assert_close(sparsemax(z * 1e-9), torch.full_like(z, 1 / 9), rtol=0, atol=1e-8)


def test_constants_differences_and_permutations() -> None:
    z = scores(100, 9)
    p = sparsemax(z)
    torch.testing.assert_close(sparsemax(z + 5), p)
    low, high = z.sort(1).values[:, :-1], z.sort(1).values[:, 1:]
    steps = p.gather(1, z.argsort(1)).diff(dim=1)
    assert (steps >= -1e-15).all()
    assert (steps <= high - low + 1e-15).all()
    order = torch.tensor([3, 1, 4, 0, 5, 2, 6, 8, 7])
    torch.testing.assert_close(sparsemax(z[:, order]), p[:, order])


def test_rows_of_minus_infinity_do_not_stop_a_batch() -> None:
    """entmax 1.3: "index -1 is out of bounds" for the whole batch."""
    z = torch.tensor([[-math.inf] * 3, [0.0, 1.0, -math.inf], [math.inf, 0.0, 0.0]])
    p = sparsemax(z)
    assert p.isnan().all(1).tolist() == [True, False, True]
    assert p[1].tolist() == [0.0, 1.0, 0.0]


def test_sums_in_half_precision() -> None:
    """entmax 1.3: sums from 0.9922 to 1.0237 for 50,000 classes in bfloat16."""
    z = scores(4, 50_000, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        p = sparsemax(z)
    torch.testing.assert_close(p.sum(1), torch.ones(4), rtol=0, atol=1e-6)
    support = (p > 0).sum(1)
    assert torch.equal(support, (sparsemax(z.double()) > 0).sum(1))


def test_scores_of_a_hundred_million() -> None:
    """tensorflow/addons#2314: NaN."""
    assert sparsemax(torch.tensor([1e8, 1e8 - 16, -1e8])).tolist() == [1.0, 0.0, 0.0]


def test_sizes_of_one_are_kept_in_the_gradient() -> None:
    """deep-spin/entmax#13: dimensions of size 1 were squeezed away."""
    z = scores(1, 3, 1, 4).requires_grad_()
    for dim in range(4):
        (grad,) = torch.autograd.grad(sparsemax(z, dim=dim).square().sum(), z)
        assert grad.shape == z.shape


def test_supports_beyond_one_sum_to_one() -> None:
    """keras-team/keras#23425: for two years only one-hot outputs were right."""
    p = sparsemax(scores(200, 30) / 10)
    assert ((p > 0).sum(1) > 1).all()
    torch.testing.assert_close(p.sum(1), torch.ones(200, dtype=p.dtype))


def test_without_cumulative_sums_it_is_deterministic() -> None:
    """deep-spin/entmax#38: cumsum has no deterministic form on CUDA."""
    torch.use_deterministic_algorithms(True)
    try:
        z = scores(5, 2000).requires_grad_()
        sparsemax(z).square().sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
