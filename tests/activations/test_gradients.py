from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from tests.activations.maps import CASES, MODULES, inside, scores
from unarg_callback.activations import sparsecone, sparsegen, sparsehourglass, sparsemax
from unarg_callback.activations.projection import project


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dim", [0, -1])
def test_first_and_second_derivatives(name: str, dim: int) -> None:
    z = inside(name, 3, 5, seed=1).movedim(-1, dim).requires_grad_()
    run = CASES[name].run
    assert gradcheck(lambda z: run(z, dim=dim), z, check_forward_ad=True)
    assert gradgradcheck(lambda z: run(z, dim=dim), z)


def test_batched_and_forward_over_reverse_derivatives() -> None:
    z = scores(3, 6).requires_grad_()
    assert gradcheck(
        project, z, check_batched_grad=True, check_batched_forward_grad=True, check_forward_ad=True
    )
    assert gradgradcheck(project, z, check_batched_grad=True, check_fwd_over_rev=True)


def test_where_the_support_is_listed() -> None:
    z = scores(2, 1500).mul(0.5).requires_grad_()
    (sparse,) = torch.autograd.grad(sparsemax(z), z, scores(2, 1500, seed=1), create_graph=True)
    p = sparsemax(z)
    v, support = scores(2, 1500, seed=1), p > 0
    mean = (v * support).sum(1, keepdim=True) / support.sum(1, keepdim=True)
    torch.testing.assert_close(sparse, (v - mean) * support)
    assert gradcheck(sparsemax, scores(1, 1100).requires_grad_(), fast_mode=True)
    v.requires_grad_()
    assert gradcheck(
        lambda v: torch.autograd.grad(sparsemax(z), z, v, create_graph=True)[0], v, fast_mode=True
    )


@pytest.mark.parametrize("name", MODULES)
def test_learned_parameters(name: str) -> None:
    module = MODULES[name]
    ((key, raw),) = module.named_parameters()
    z = inside(name, 2, 3, 6, seed=3).requires_grad_()

    def run(raw: Tensor, z: Tensor) -> Tensor:
        return torch.func.functional_call(module, {key: raw}, (z,))

    start = raw.detach().double().requires_grad_()
    assert gradcheck(run, (start, z))
    assert gradgradcheck(run, (start, z))


def uniform(p: Tensor) -> Tensor:
    support = (p > 0).to(p.dtype)
    return support / support.sum(-1, keepdim=True)


def projector(p: Tensor) -> Tensor:
    support = (p > 0).to(p.dtype)
    return torch.diag(support) - torch.outer(support, support) / support.sum()


@pytest.mark.parametrize("seed", range(5))
def test_jacobians_in_closed_form(seed: int) -> None:
    z = scores(6, seed=seed)
    one = torch.ones(6, dtype=z.dtype)
    total, classes, q, lambda_ = z.sum(), 6, 0.7, 0.4
    jacobian = torch.autograd.functional.jacobian

    p = sparsegen(z, lambda_, g="exp")
    expected = projector(p) @ torch.diag(z.exp()) / (1 - lambda_)
    torch.testing.assert_close(jacobian(lambda z: sparsegen(z, lambda_, g="exp"), z), expected)

    scale = (1 + classes * q) / (total.abs() + classes * q)
    p = sparsehourglass(z, q)
    slope = total.sign() / (total.abs() + classes * q)
    expected = scale * projector(p) - slope * torch.outer(p - uniform(p), one)
    torch.testing.assert_close(jacobian(lambda z: sparsehourglass(z, q), z), expected)

    up = z - total / classes + 0.3
    p = sparsecone(up, q)
    scale = (1 + classes * q) / (up.sum() + classes * q)
    slope = 1 / (up.sum() + classes * q)
    expected = scale * projector(p) - slope * torch.outer(p - uniform(p), one)
    torch.testing.assert_close(jacobian(lambda z: sparsecone(z, q), up), expected)


@pytest.mark.parametrize("seed", range(5))
def test_derivatives_by_the_parameters_in_closed_form(seed: int) -> None:
    z = scores(6, seed=seed)
    jacobian = torch.autograd.functional.jacobian
    lambda_, q = torch.tensor([0.4]).double(), torch.tensor([0.7]).double()
    p = sparsegen(z, lambda_)
    expected = (p - uniform(p)) / (1 - lambda_)
    torch.testing.assert_close(jacobian(lambda x: sparsegen(z, x), lambda_)[:, 0], expected)
    p, total = sparsehourglass(z, q), z.sum().abs()
    expected = (p - uniform(p)) * 6 * (total - 1) / ((total + 6 * q) * (1 + 6 * q))
    torch.testing.assert_close(jacobian(lambda x: sparsehourglass(z, x), q)[:, 0], expected)


def test_hourglass_at_sum_zero_takes_the_mean_of_both_sides() -> None:
    z = torch.tensor([0.25, 0.0, -0.25], dtype=torch.float64)

    def jacobian_at(z: Tensor) -> Tensor:
        return torch.autograd.functional.jacobian(lambda z: sparsehourglass(z, 0.5), z)

    sides = (jacobian_at(z + 1e-9) + jacobian_at(z - 1e-9)) / 2
    torch.testing.assert_close(jacobian_at(z), sides, rtol=0, atol=1e-6)


def test_minus_infinity_is_no_trap_for_gradients() -> None:
    z = torch.tensor([1.0, -torch.inf, 0.8], requires_grad=True)
    lambda_ = torch.tensor([0.2], requires_grad=True)
    sparsegen(z, lambda_)[0].backward()
    assert z.grad is not None
    assert lambda_.grad is not None
    assert z.grad.isfinite().all()
    assert lambda_.grad.isfinite().all()
    huge = torch.tensor([200.0, 3.0], requires_grad=True)
    sparsegen(huge, g="exp")[0].backward()
    assert huge.grad is not None
    assert huge.grad.tolist() == [0.0, 0.0]
    edge = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    sparsegen(edge, g="log").square().sum().backward()
    assert edge.grad is not None
    assert edge.grad.isfinite().all()
