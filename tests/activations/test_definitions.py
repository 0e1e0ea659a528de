"""What the definitions say beyond values: minima, thresholds, supports, derivatives."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.activations.maps import scores
from tests.activations.test_gradients import projector, uniform
from unarg_callback.activations import (
    lambda_for_support,
    softmax,
    sparsecone,
    sparsegen,
    sparsehourglass,
    sparsemax,
    spherical_softmax,
    sum_normalization,
    sum_normalization_pp,
)
from unarg_callback.activations.transforms import Transform

close = torch.testing.assert_close
jacobian = torch.autograd.functional.jacobian
G: dict[str, Transform] = {"lin": lambda z: z, "exp": torch.exp, "sq": torch.square}


@pytest.mark.parametrize("g", G)
@pytest.mark.parametrize("lambda_", [-5.0, 0.0, 0.6, 0.95])
def test_sparsegen_is_the_minimum(g: Transform, lambda_: float) -> None:
    """No other point of the simplex has less of ``|p - g(z)|^2 - lambda |p|^2``."""
    z = scores(300, 6)
    wanted = G[str(g)](z)  # type: ignore[operator]

    def objective(p: Tensor) -> Tensor:
        return (p - wanted).square().sum(1) - lambda_ * p.square().sum(1)

    p = sparsegen(z, lambda_, g=g)
    for seed in range(20):
        other = softmax(scores(300, 6, seed=seed) * seed)
        for step in (1.0, 1e-2, 1e-4):
            assert (objective(p) <= objective(p + step * (other - p)) + 1e-12).all()


@pytest.mark.parametrize("lambda_", [-5.0, 0.0, 0.6, 0.95])
def test_threshold_and_size_of_the_support_are_the_papers(lambda_: float) -> None:
    """k(z) is the largest k with ``1 - lambda + k g_(k) > sum_{j<=k} g_(j)``."""
    z = scores(300, 6)
    ordered = z.sort(1, descending=True).values
    total, rank = ordered.cumsum(1), torch.arange(1, 7)
    size = ((1 - lambda_ + rank * ordered > total) * rank).amax(1, keepdim=True)
    p = sparsegen(z, lambda_)
    assert torch.equal((p > 0).sum(1, keepdim=True), size)
    tau = (total.gather(1, size - 1) - 1 + lambda_) / size
    close(p, ((z - tau) / (1 - lambda_)).clamp_min(0))
    if lambda_ == 0:
        assert (ordered[:, :1] - 1 <= tau).all()
        assert (tau < ordered[:, :1]).all()


@pytest.mark.parametrize("q", [0.0, 0.01, 0.5, 20.0])
def test_membership_of_the_hourglass_support(q: float) -> None:
    z = scores(300, 6)
    scale = (1 + 6 * q) / (z.sum(1, keepdim=True).abs() + 6 * q)
    ahead = (z[:, None, :] - z[:, :, None]).clamp_min(0).sum(2) * scale
    assert torch.equal(ahead < 1, sparsehourglass(z, q) > 0)
    up = z.sum(1) > 0
    assert torch.equal((ahead < 1)[up], (sparsecone(z, q) > 0)[up])


@pytest.mark.parametrize("g", ["lin", "exp", "sq"])
def test_at_most_k_from_lambda_k_on(g: Transform) -> None:
    """``|S| <= k`` exactly if ``lambda >= lambda_k = 1 - sum_{j<=k} (g_(j) - g_(k+1))``."""
    z = scores(200, 6)
    ordered = G[str(g)](z).sort(1, descending=True).values  # type: ignore[operator]
    for k in range(1, 6):
        gaps = (ordered[:, :k] - ordered[:, k : k + 1]).sum(1, keepdim=True)
        assert ((sparsegen(z, 1 - gaps * (1 - 1e-9), g=g) > 0).sum(1) <= k).all()
        assert ((sparsegen(z, 1 - gaps * (1 + 1e-9), g=g) > 0).sum(1) > k).all()


@pytest.mark.parametrize("scale", [1e-5, 1e-3, 1.0, 1e8])
@pytest.mark.parametrize("classes", [2000, 50_000])
def test_a_wanted_support_among_close_float32_scores(scale: float, classes: int) -> None:
    """The lambdas that it takes would be 1 in float32."""
    z = scores(4, classes, dtype=torch.float32) * scale
    for k in (1, 2, 10, 300):
        lambda_ = lambda_for_support(z, k)
        assert (lambda_ < 1).all()
        size = (sparsegen(z, lambda_) > 0).sum(1, keepdim=True)
        # Equal scores come together.
        last = z.sort(1, descending=True).values.gather(1, size - 1)
        assert ((size == k) | ((z == last).sum(1, keepdim=True) > 1)).all()


def test_a_negative_factor_turns_sum_normalization_pp_around() -> None:
    """The paper's scale invariance is for positive factors."""
    z = torch.tensor([3.0, 1.0, 1.0])
    close(sum_normalization_pp(2 * z), torch.tensor([0.6, 0.2, 0.2]))
    close(sum_normalization_pp(-2 * z), sparsemax(torch.tensor([-0.6, -0.2, -0.2])))
    assert sum_normalization_pp(-2 * z).argmax() != 0


def test_constant_maps_are_scale_invariant_and_lipschitz() -> None:
    """So "no scale-invariant map is Lipschitz" holds for all but these."""
    p = sparsegen(scores(50, 5), 0.3, g=torch.zeros_like)
    assert torch.equal(p, torch.full_like(p, 1 / 5))


def test_the_slope_of_the_scale_has_the_sign_of_the_sum_less_1() -> None:
    """Which is why q is no monotone control: the more scale, the fewer nonzeros."""
    z = scores(500, 6)
    sizes = [(sparsehourglass(z, q) > 0).sum(1) for q in (0.01, 0.1, 1.0, 10.0)]
    above = z.sum(1).abs() > 1
    for fewer, more in zip(sizes, sizes[1:], strict=False):
        assert (fewer >= more)[above].all()
        assert (fewer <= more)[~above].all()
    assert (sizes[0] > sizes[-1]).any()
    assert (sizes[0] < sizes[-1]).any()


@pytest.mark.parametrize("seed", range(5))
def test_jacobians_of_the_other_maps_in_closed_form(seed: int) -> None:
    z = scores(6, seed=seed)
    one, lambda_ = torch.ones_like(z), 0.4
    p = softmax(z)
    close(jacobian(softmax, z), torch.diag(p) - torch.outer(p, p))
    up = z.abs()
    p = sum_normalization(up)
    expected = (torch.eye(6) - torch.outer(p, one)) / up.sum()
    close(jacobian(sum_normalization, up), expected)
    p = spherical_softmax(z)
    expected = 2 * (torch.diag(z) - torch.outer(p, z)) / z.square().sum()
    close(jacobian(spherical_softmax, z), expected)
    close(jacobian(sparsemax, z), projector(sparsemax(z)))
    slopes: dict[Transform, Tensor] = {"lin": one, "sq": 2 * up, "log": 1 / up}
    for g, slope in slopes.items():
        p = sparsegen(up, lambda_, g=g)
        expected = projector(p) @ torch.diag(slope) / (1 - lambda_)
        close(jacobian(lambda z, g=g: sparsegen(z, lambda_, g=g), up), expected)
    p, sign = sum_normalization_pp(z), z.sum().sign()
    expected = (projector(p) - sign * torch.outer(p - uniform(p), one)) / z.sum().abs()
    close(jacobian(sum_normalization_pp, z), expected)


def test_derivative_of_sparsecone_by_q_and_of_sparsegen_exp_by_lambda() -> None:
    z = scores(6) - scores(6).mean() + 0.3
    q, lambda_ = torch.tensor([0.7]).double(), torch.tensor([0.4]).double()
    p, total = sparsecone(z, q), z.sum()
    expected = (p - uniform(p)) * 6 * (total - 1) / ((total + 6 * q) * (1 + 6 * q))
    close(jacobian(lambda x: sparsecone(z, x), q)[:, 0], expected)
    p = sparsegen(z, lambda_, g="exp")
    found = jacobian(lambda x: sparsegen(z, x, g="exp"), lambda_)[:, 0]
    close(found, (p - uniform(p)) / (1 - lambda_))


def test_the_vector_jacobian_product_is_dense() -> None:
    """Sparsehourglass moves scores outside of the support too, unlike sparsemax."""
    z = torch.tensor([2.0, 1.5, -3.0], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
    for run, reaches in ((sparsemax, False), (sparsehourglass, True)):
        p = run(z)
        assert p[2] == 0
        (grad,) = torch.autograd.grad(p, z, v)
        assert (grad[2] != 0) == reaches
    scale, slope = 4 / 3.5, 1 / 3.5  # The sum is 0.5.
    centred = p.detach() - uniform(p)
    close(grad, scale * (projector(p) @ v) - slope * (centred @ v) * torch.ones_like(v))


@pytest.mark.parametrize("infinity", [math.inf, torch.tensor(math.inf)])
def test_an_infinite_q_is_sparsemax_in_its_gradient_too(infinity: float | Tensor) -> None:
    z = scores(9, 6).requires_grad_()
    for run in (sparsehourglass, sparsecone):
        found, expected = (
            torch.autograd.grad(p.square().sum(), z)[0] for p in (run(z, infinity), sparsemax(z))
        )
        close(found, expected)


def test_overflow_is_nan_or_right() -> None:
    """A sum beyond the largest number isn't the sum; an infinite quotient has no gradient."""
    for run in (sum_normalization_pp, sparsehourglass, sparsecone):
        assert run(torch.tensor([3e38, 2e38, 0.0])).isnan().all()
    close(sum_normalization(torch.tensor([3e38, 2e38, 0.0])), torch.tensor([0.6, 0.4, 0.0]))
    assert spherical_softmax(torch.tensor([3e38, 3e38])).tolist() == [0.5, 0.5]
    z = torch.tensor([89.0, 88.0], requires_grad=True)
    lambda_ = torch.tensor([0.9], requires_grad=True)
    p = sparsegen(z, lambda_, g="exp")
    p[0].backward()
    assert p.tolist() == [1.0, 0.0]
    assert z.grad is not None
    assert lambda_.grad is not None
    assert z.grad.tolist() == [0.0, 0.0]
    assert lambda_.grad.tolist() == [0.0]


def test_logarithms_of_quotients_that_underflow() -> None:
    z = torch.tensor([1e30, 1e-30, 0.0], requires_grad=True)
    p = sparsegen(z, -199.0, g="log")
    high = 0.5 + math.log(1e60) / 400
    close(p, torch.tensor([high, 1 - high, 0.0]), rtol=0, atol=1e-5)
    p[0].backward()
    assert z.grad is not None
    close(z.grad, torch.tensor([1 / 400e30, -1e30 / 400, 0.0]))


def test_exponentials_of_minus_infinity_are_ordinary_scores() -> None:
    z = torch.tensor([[-math.inf] * 3, [0.0, -math.inf, -math.inf]], requires_grad=True)
    p = sparsegen(z, -2.0, g="exp")
    close(p, torch.tensor([[1 / 3] * 3, [5 / 9, 2 / 9, 2 / 9]]))
    p.square().sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
