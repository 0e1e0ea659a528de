from __future__ import annotations

import math

import pytest
import torch

from tests.activations.maps import scores
from unarg_callback.activations import (
    softmax,
    sparsecone,
    sparsegen,
    sparsehourglass,
    sparsemax,
    spherical_softmax,
    sum_normalization,
    sum_normalization_pp,
)

close = torch.testing.assert_close


def test_softmax_is_sparsegen_exp() -> None:
    z = scores(50, 7)
    close(sparsegen(z, 1 - z.exp().sum(1, keepdim=True), g="exp"), softmax(z))


def test_spherical_softmax_is_sparsegen_sq() -> None:
    z = scores(50, 7)
    close(sparsegen(z, 1 - z.square().sum(1, keepdim=True), g="sq"), spherical_softmax(z))


def test_sparsemax_is_sparsegen_lin_at_0_and_others_at_infinite_q() -> None:
    z = scores(50, 7)
    close(sparsegen(z), sparsemax(z))
    for q in (math.inf, 1e300, torch.tensor([math.inf]).double()):
        assert torch.equal(sparsehourglass(z, q), sparsemax(z))
        assert torch.equal(sparsecone(z, q), sparsemax(z))
    close(sparsehourglass(z, 1e9), sparsemax(z), rtol=0, atol=1e-7)


def test_sum_normalization_is_the_others_at_q_0() -> None:
    z = scores(50, 7).abs()
    close(sum_normalization_pp(z), sum_normalization(z))
    close(sparsecone(z, 0.0), sum_normalization(z))
    for sign in (1, -1):
        z = scores(50, 7) + sign
        close(sparsehourglass(z, 1e-12), sum_normalization_pp(z), rtol=0, atol=1e-8)
        close(sum_normalization_pp(z), sparsemax(z / z.sum(1, keepdim=True).abs()))


def test_cone_and_hourglass_agree_where_the_sum_is_positive() -> None:
    z = scores(200, 5)
    z = z[z.sum(1) > 0]
    close(sparsecone(z, 0.3), sparsehourglass(z, 0.3))


def test_hourglass_is_the_cone_of_the_mirror_point() -> None:
    z = scores(200, 5) - 1
    mirror = z - 2 * z.mean(1, keepdim=True)
    close(mirror.sum(1), -z.sum(1))
    below = z.sum(1) < 0
    close(sparsehourglass(z, 0.3)[below], sparsecone(mirror, 0.3)[below])


@pytest.mark.parametrize("q", [0.0, 0.1, 1.0, 100.0, math.inf])
def test_points_of_the_simplex_stay(q: float) -> None:
    p = softmax(scores(50, 7))
    close(sparsehourglass(p, q), p)
    close(sparsecone(p, q), p)
    close(sparsehourglass(sparsehourglass(scores(50, 7), q), q), sparsehourglass(scores(50, 7), q))


def test_limits_of_lambda_are_hardmax_and_uniform() -> None:
    """The paper's section 3 has them the wrong way round."""
    z = scores(50, 7)
    z[0, :3] = 9.0
    largest = (z == z.amax(1, keepdim=True)).double()
    close(sparsegen(z, 1 - 1e-9), largest / largest.sum(1, keepdim=True))
    close(sparsegen(z, -1e9), torch.full_like(z, 1 / 7), rtol=0, atol=1e-8)


def test_two_classes_in_closed_form() -> None:
    z = scores(500, 2)
    for lambda_ in (-2.0, 0.0, 0.5):
        first = (0.5 + (z[:, 0] - z[:, 1]) / (2 * (1 - lambda_))).clamp(0, 1)
        p = sparsegen(z, lambda_)
        close(p[:, 0], first)
        assert torch.equal((p == 0).any(1), (z[:, 0] - z[:, 1]).abs() >= 1 - lambda_)


def test_membership_of_the_support() -> None:
    z, lambda_ = scores(200, 6), 0.2
    ahead = (z[:, None, :] - z[:, :, None]).clamp_min(0).sum(2) / (1 - lambda_)
    assert torch.equal(ahead < 1, sparsegen(z, lambda_) > 0)


def test_hourglass_lies_between_scale_and_shift_invariance() -> None:
    far = torch.tensor([100.0, 101.0])
    assert sparsemax(far).tolist() == sparsemax(torch.tensor([0.0, 1.0])).tolist() == [0, 1]
    assert sparsehourglass(far, 1.0).tolist() == pytest.approx([0.4926, 0.5074], abs=1e-4)
    assert sum_normalization_pp(far).tolist() == pytest.approx([0.4975, 0.5025], abs=1e-4)


def test_q_is_no_monotone_control_of_sparsity() -> None:
    rising = torch.tensor([0.5, 0.2, -0.1, -0.4])
    falling = torch.tensor([3.0, 2.5, 2.0, 1.0])
    qs = (0.001, 0.1, 0.5, 2.0, 100.0)
    assert [int((sparsehourglass(rising, q) > 0).sum()) for q in qs] == [1, 2, 2, 3, 3]
    assert [int((sparsehourglass(falling, q) > 0).sum()) for q in qs] == [4, 4, 3, 3, 2]


def test_scaling_is_exact_where_formulas_cancel() -> None:
    """``1 + (1 - |s|)/(|s| + Kq)`` loses every digit at large sums, the plain ratio at large q."""
    z = torch.tensor([3e7, 2e7, 5e7], dtype=torch.float32)
    close(sum_normalization_pp(z), torch.tensor([0.3, 0.2, 0.5]))
    assert sparsehourglass(torch.tensor([0.5, 0.25]), 1e38).tolist() == [0.625, 0.375]


def test_a_function_as_transformation() -> None:
    z = scores(20, 5)
    close(sparsegen(z, 0.3, g=lambda z: z**3), sparsemax(z**3 / 0.7))
    close(sparsegen(z, 0.3, g=torch.exp), sparsegen(z, 0.3, g="exp"))
