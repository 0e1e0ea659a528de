from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from tests.activations.maps import scores
from tests.losses.pairwise import distributions, label_sets
from unarg_callback.activations import softmax, sparsegen, sparsemax
from unarg_callback.losses import softmax_log_loss, sparsegen_huber_loss, sparsemax_huber_loss

close = torch.testing.assert_close
LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]]] = {
    "softmax": (softmax_log_loss, softmax),
    "sparsemax": (sparsemax_huber_loss, sparsemax),
    "sparsegen": (
        lambda z, t, **kwargs: sparsegen_huber_loss(z, t, 0.4, **kwargs),
        lambda z: sparsegen(z, 0.4),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_p_less_eta_and_the_hessian_the_jacobian(name: str) -> None:
    loss, run = LOSSES[name]
    z, eta = scores(7, 6).requires_grad_(), distributions(label_sets(7, 6))
    (grad,) = torch.autograd.grad(loss(z, eta, reduction="sum"), z)
    close(grad, run(z) - eta)
    hessian = torch.autograd.functional.hessian(lambda z: loss(z, eta[0]), z[0].detach())
    close(hessian, torch.autograd.functional.jacobian(run, z[0].detach()))
    assert gradcheck(lambda z: loss(z, eta), z)
    assert gradgradcheck(lambda z: loss(z, eta), z)


@pytest.mark.parametrize("name", LOSSES)
def test_nonnegative_convex_and_zero_exactly_at_the_target(name: str) -> None:
    loss, run = LOSSES[name]
    z, w = scores(3000, 5, seed=1), scores(3000, 5, seed=2)
    eta = distributions(label_sets(3000, 5))
    at_z, at_w = loss(z, eta, reduction="none"), loss(w, eta, reduction="none")
    met = (run(z) - eta).abs().amax(1) < 1e-12
    assert torch.equal(at_z > 1e-15, ~met)
    assert ((at_z + at_w) / 2 - loss((z + w) / 2, eta, reduction="none") > -1e-12).all()
    close(loss(z, run(z), reduction="none"), torch.zeros(3000, dtype=z.dtype), rtol=0, atol=1e-15)


def test_both_forms_of_the_sparsemax_loss() -> None:
    """With the threshold, as in Martins & Astudillo (2016), equation 13 and section 3.3."""
    z, eta = scores(50, 6), distributions(label_sets(50, 6))
    p = sparsemax(z)
    support = p > 0
    tau = ((z * support).sum(1, keepdim=True) - 1) / support.sum(1, keepdim=True)
    squares = ((z.square() - tau.square()) * support).sum(1) / 2
    expected = squares - (z * eta).sum(1) + eta.square().sum(1) / 2
    close(sparsemax_huber_loss(z, eta, reduction="none"), expected)


def test_two_classes_are_hubers() -> None:
    t = torch.linspace(-3, 3, 61).double()
    z = torch.stack([t, torch.zeros_like(t)], 1)
    loss = sparsemax_huber_loss(z, torch.zeros(61, dtype=torch.long), reduction="none")
    expected = torch.where(t >= 1, 0.0, torch.where(t <= -1, -t, (t - 1).square() / 4))
    close(loss, expected)


def test_class_indices_are_the_cross_entropy() -> None:
    z, target = scores(9, 5).requires_grad_(), torch.tensor([0, 1, 2, 3, 4, -100, 1, 1, 2])
    weight = torch.rand(5, generator=torch.Generator().manual_seed(0)).double()
    for reduction in ("mean", "sum"):
        for given in (None, weight):
            mine = softmax_log_loss(z, target, weight=given, reduction=reduction)
            theirs = F.cross_entropy(z, target, weight=given, reduction=reduction)
            close(mine, theirs)
            close(torch.autograd.grad(mine, z)[0], torch.autograd.grad(theirs, z)[0])


def test_distributions_are_less_by_their_entropy() -> None:
    z, eta = scores(9, 5), distributions(label_sets(9, 5))
    entropy = -torch.xlogy(eta, eta).sum(1).mean()
    close(softmax_log_loss(z, eta), F.cross_entropy(z, eta) - entropy)


def test_lambda_has_its_gradient() -> None:
    z, eta = scores(5, 6).requires_grad_(), distributions(label_sets(5, 6))
    lambda_ = torch.full((5, 1), 0.4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda z, x: sparsegen_huber_loss(z, eta, x), (z, lambda_))
    (grad,) = torch.autograd.grad(sparsegen_huber_loss(z, eta, lambda_, reduction="sum"), lambda_)
    p = sparsegen(z, lambda_)
    close(grad[:, 0], (p.square().sum(1) - eta.square().sum(1)) / 2)


def test_learning_a_label_set_ends_without_loss() -> None:
    """A linear model on sparsemax's loss, in plain gradient descent."""
    labels = label_sets(6, 5, 3)
    z = torch.zeros(6, 5, requires_grad=True)
    for _ in range(200):
        (grad,) = torch.autograd.grad(sparsemax_huber_loss(z, labels, reduction="sum"), z)
        z = (z - grad).detach().requires_grad_()
    assert torch.equal(sparsemax(z) > 0, labels)
