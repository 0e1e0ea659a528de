"""Where the losses are 0, and that they are convex: on segments, by their subgradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.activations.maps import scores
from tests.losses.pairwise import distributions, equation_6, label_sets, pairs
from unarg_callback.activations import softmax, sparsegen, sparsehourglass
from unarg_callback.losses import (
    softmax_log_loss,
    sparsegen_hinge_loss,
    sparsegen_huber_loss,
    sparsehourglass_hinge_loss,
    sparsemax_huber_loss,
)

Loss = Callable[..., Tensor]
LAMBDAS = (-3.0, 0.0, 0.7)
QS = (0.05, 1.0, 30.0)


def gen(loss: Loss, **options: Any) -> dict[str, tuple[Loss, Loss]]:
    return {
        f"{loss.__name__} {x} {options}": (
            partial(loss, lambda_=x, reduction="none", **options),
            partial(sparsegen, lambda_=x),
        )
        for x in LAMBDAS
    }


def hourglass(**options: Any) -> dict[str, tuple[Loss, Loss]]:
    return {
        f"hourglass {q} {options}": (
            partial(sparsehourglass_hinge_loss, q=q, reduction="none", **options),
            partial(sparsehourglass, q=q),
        )
        for q in QS
    }


LOSSES: dict[str, tuple[Loss, Loss]] = {
    "softmax": (partial(softmax_log_loss, reduction="none"), softmax),
    **gen(sparsegen_huber_loss),
    **gen(sparsegen_hinge_loss, pairs="ordered"),
    **gen(sparsegen_hinge_loss, pairs="unordered"),
    **hourglass(pairs="ordered"),
    **hourglass(pairs="unordered"),
}
every = pytest.mark.parametrize("name", LOSSES)
SPARSE = pytest.mark.parametrize("name", [name for name in LOSSES if name != "softmax"])


def targets(name: str, rows: int, classes: int, seed: int = 0) -> Tensor:
    """Distributions, for those that have them; label sets for sparsehourglass."""
    labels = label_sets(rows, classes, seed)
    return labels.double() if "hourglass" in name else distributions(labels, seed)


@SPARSE
def test_zero_exactly_where_the_map_gives_a_label_set(name: str) -> None:
    """On scores that meet it, and on both sides of the border of those that do."""
    loss, run = LOSSES[name]
    labels = label_sets(4000, 4, 2)
    eta = labels.double() / labels.sum(1, keepdim=True)
    z = scores(4000, 4, seed=3)
    # The labels' equal scores, and below them a gap of about what the map needs.
    level = z.mean(1, keepdim=True)
    gap = 2 * scores(4000, 1, seed=4).abs() * eta.amax(1, keepdim=True)
    needed = gap * (0.3 if " 0.7" in name else 4.0 if " -3.0" in name else 1.0)
    z[::2] = torch.where(labels, level, level - needed - 0.1 * z.abs())[::2]
    met = (run(z) - eta).abs().amax(1) < 1e-9
    assert torch.equal(loss(z, labels) < 1e-9, met)
    assert 100 < int(met.sum()) < 3900


@pytest.mark.parametrize("name", [name for name in LOSSES if "hourglass" not in name])
def test_zero_where_the_map_gives_its_own_target(name: str) -> None:
    loss, run = LOSSES[name]
    for scale in (0.1, 1.0, 10.0):
        z = scores(500, 6) * scale
        eta = run(z)
        rest = loss(z, eta)
        assert (rest < 1e-12 * (1 + scale)).all()
        other = eta.roll(1, 0)
        apart = (other - eta).abs().amax(1) > 1e-3
        assert torch.equal(loss(z, other)[apart] > 1e-8, torch.ones(int(apart.sum())) > 0)


@every
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_convex_along_random_segments(name: str, scale: float) -> None:
    loss, _ = LOSSES[name]
    z, w = scores(3000, 6, seed=1) * scale, scores(3000, 6, seed=2) * scale
    # Half of them through the kink of sparsehourglass, where scores sum to 0.
    w[::2] -= (w[::2].sum(1, keepdim=True) + z[::2].sum(1, keepdim=True)) / 6
    eta = targets(name, 3000, 6)
    ends = loss(z, eta), loss(w, eta)
    for t in (0.01, 0.3, 0.5, 0.9):
        chord = t * ends[0] + (1 - t) * ends[1]
        assert float((loss(t * z + (1 - t) * w, eta) - chord).max()) < 1e-10


@every
def test_gradients_are_subgradients(name: str) -> None:
    """``L(w) >= L(z) + g (w - z)`` for all w. With a detached scale it isn't so: see below."""
    loss, _ = LOSSES[name]
    z, w = scores(3000, 6, seed=1).requires_grad_(), scores(3000, 6, seed=2) * 3
    eta = targets(name, 3000, 6)
    value = loss(z, eta)
    (slope,) = torch.autograd.grad(value.sum(), z)
    plane = value + (slope * (w - z)).sum(1)
    assert float((plane - loss(w, eta)).detach().max()) < 1e-10


def test_what_is_written_instead_of_equation_6_is_not_convex() -> None:
    """Multiplied through, detached, or as the authors' code has it for unequal targets."""
    z, w = scores(5000, 6, seed=1) * 3, scores(5000, 6, seed=2) * 3
    labels, q = label_sets(5000, 6), 0.05
    eta = distributions(labels)
    uniform = labels.double() / labels.sum(1, keepdim=True)

    def scale(z: Tensor) -> Tensor:
        return (1 + 6 * q) / (z.sum(1, keepdim=True).abs() + 6 * q)

    def multiplied(z: Tensor) -> Tensor:
        return pairs(scale(z) * z, labels, uniform, torch.zeros_like(z), 2)

    def unequal(z: Tensor) -> Tensor:
        return pairs(z, labels, eta / scale(z), eta / scale(z), 2)

    for loss in (multiplied, unequal):
        middle = loss((z + w) / 2) - (loss(z) + loss(w)) / 2
        assert float(middle.max()) > 0.1
    x = z.clone().requires_grad_()
    detached = pairs(x, labels, uniform / scale(x).detach(), torch.zeros_like(x), 2)
    (slope,) = torch.autograd.grad(detached.sum(), x)
    plane = detached + (slope * (w - z)).sum(1)
    assert float((plane - equation_6(w, labels, q)).detach().max()) > 0.1


def test_without_q_equation_6_would_be_0_at_the_origin() -> None:
    z, labels = scores(50, 6), label_sets(50, 6)
    torch.testing.assert_close(equation_6(2 * z, labels, 0.0), 2 * equation_6(z, labels, 0.0))
    z = torch.zeros(50, 6, dtype=torch.float64)
    assert (equation_6(z, labels, 1e-9) > 0).any()
    torch.testing.assert_close(
        sparsehourglass_hinge_loss(z, labels, 1e-9, reduction="none"), equation_6(z, labels, 1e-9)
    )


@every
def test_never_negative_in_float32(name: str) -> None:
    """gokceneraslan/SparseMax.torch#2."""
    loss, run = LOSSES[name]
    for scale in (1e-3, 0.1, 1.0, 1e3):
        z = scores(3000, 30, dtype=torch.float32) * scale
        eta = label_sets(3000, 30).float() if "hourglass" in name else run(z)
        z.requires_grad_()
        value = loss(z, eta)
        assert (value >= 0).all()
        (slope,) = torch.autograd.grad(value.sum(), z)
        assert slope.isfinite().all()


@pytest.mark.parametrize("lambda_", LAMBDAS)
def test_margins(lambda_: float) -> None:
    """One label is learned once it leads by 1 - lambda, and not before (TF-Addons' zero loss)."""
    target = torch.tensor([0])
    for loss in (sparsegen_huber_loss, sparsegen_hinge_loss):
        for lead, zero in ((1 + 1e-6, True), (1 - 1e-3, False)):
            z = torch.tensor([[lead * (1 - lambda_), 0.0, -1.0]], dtype=torch.float64)
            assert (float(loss(z, target, lambda_)) < 1e-12) == zero
    for q in QS:
        sparse = torch.tensor([[0.6, -0.3, -0.3]], dtype=torch.float64)
        needed = 3 * q / (1 + 3 * q)  # 1 over the scale, at sum 0.
        for factor, zero in ((1 + 1e-6, True), (1 - 1e-3, False)):
            z = sparse / 0.9 * needed * factor
            assert (float(sparsehourglass_hinge_loss(z, target, q)) < 1e-12) == zero


@every
def test_a_constant_changes_nothing_where_the_map_ignores_it(name: str) -> None:
    loss, _ = LOSSES[name]
    z, eta = scores(50, 6), targets(name, 50, 6)
    moved = (loss(z + 5, eta) - loss(z, eta)).abs().max()
    assert (float(moved) < 1e-12) == ("hourglass" not in name)


def test_an_empty_target_would_make_the_huber_loss_negative() -> None:
    """So such rows are left out: the formula has -3.5 for these scores."""
    z = torch.tensor([[-3.0, -4.0]], dtype=torch.float64)
    p = sparsegen(z)
    formula = (z * p).sum() - p.square().sum() / 2
    assert formula.item() == pytest.approx(-3.5)
    assert sparsemax_huber_loss(z, torch.zeros(1, 2)).item() == 0
