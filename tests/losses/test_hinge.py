from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from tests.activations.maps import scores
from tests.losses.pairwise import distributions, equation_6, equation_7, label_sets
from unarg_callback.activations import ParameterError, sparsegen, sparsehourglass
from unarg_callback.losses import (
    TargetError,
    sparsegen_hinge_loss,
    sparsehourglass_hinge_loss,
)
from unarg_callback.losses import pairs as pairs_module
from unarg_callback.losses.pairs import Pairs, pair_sum

close = torch.testing.assert_close
WITHIN: tuple[tuple[Pairs, int], ...] = (("ordered", 2), ("unordered", 1))


def same(loss: Tensor, expected: Tensor, z: Tensor) -> None:
    close(loss, expected)
    grads = [torch.autograd.grad(x.sum(), z)[0] for x in (loss, expected)]
    close(*grads)


@pytest.mark.parametrize("classes", [1, 2, 5, 30])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("pairs", "within"), WITHIN)
def test_equal_the_pairs_as_printed(classes: int, seed: int, pairs: Pairs, within: int) -> None:
    z = scores(9, classes, seed=seed).requires_grad_()
    labels = label_sets(9, classes, seed)
    eta = labels / labels.sum(1, keepdim=True).double()
    for lambda_ in (-1.0, 0.0, 0.6):
        run = partial(sparsegen_hinge_loss, lambda_=lambda_, pairs=pairs, reduction="none")
        same(run(z, labels), equation_7(z, eta, lambda_, within), z)
        soft = distributions(labels, seed)
        same(run(z, soft), equation_7(z, soft, lambda_, within), z)
    for q in (1e-3, 0.5, 100.0):
        hourglass = partial(sparsehourglass_hinge_loss, q=q, pairs=pairs, reduction="none")
        same(hourglass(z, labels), equation_6(z, labels, q, within), z)


def test_equal_scores_have_the_gradient_of_the_pairs() -> None:
    """Where absolute values have a kink both take 0, so no order of the classes shows."""
    z = torch.randint(-2, 3, (300, 6), generator=torch.Generator().manual_seed(0)).double() / 4
    z.requires_grad_()
    labels = label_sets(300, 6, 1)
    same(
        sparsehourglass_hinge_loss(z, labels, 0.3, reduction="none"),
        equation_6(z, labels, 0.3),
        z,
    )
    b, mask = z.detach(), torch.ones(300, 6, dtype=torch.bool)
    close(pair_sum(b, labels, None, 2.0), pair_sum(b, labels, mask, 2.0))


def test_the_sort_of_pytorch_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = scores(20, 9), label_sets(20, 9)
    expected = sparsegen_hinge_loss(z, labels)
    monkeypatch.setattr(pairs_module, "is_readable", lambda x: False)
    close(sparsegen_hinge_loss(z, labels), expected)


def test_gradients_of_parameters() -> None:
    z, labels = scores(4, 6).requires_grad_(), label_sets(4, 6)
    parameter = torch.full((4, 1), 0.4, dtype=torch.float64, requires_grad=True)
    for loss in (sparsegen_hinge_loss, sparsehourglass_hinge_loss):
        assert gradcheck(lambda z, p, loss=loss: loss(z, labels, p), (z, parameter))  # noqa: B023


@pytest.mark.parametrize("seed", range(20))
def test_zero_exactly_where_the_map_gives_the_target(seed: int) -> None:
    labels = label_sets(1, 6, seed)
    eta = labels.double() / labels.sum()
    for lambda_ in (0.0, 0.5):
        z = torch.where(labels, 1.0, 1 - (1 - lambda_) * eta.amax() - 0.01).double()
        close(sparsegen(z, lambda_), eta)
        assert float(sparsegen_hinge_loss(z, labels, lambda_)) == pytest.approx(0, abs=1e-12)
    soft = distributions(labels, seed)
    z = torch.where(labels, soft, -0.01)
    close(sparsegen(z), soft)
    assert float(sparsegen_hinge_loss(z, soft)) == pytest.approx(0, abs=1e-12)
    z = torch.where(labels, 0.3, -5.0).double()
    target_met = bool((sparsehourglass(z, 0.4) - eta).abs().max() < 1e-9)
    loss = float(sparsehourglass_hinge_loss(z, labels, 0.4))
    assert target_met == (loss < 1e-9)


def test_loss_and_map_agree_on_thousands_of_scores() -> None:
    """Half of them near the border of the region without loss."""
    labels = label_sets(4000, 4, 2)
    eta = labels.double() / labels.sum(1, keepdim=True)
    z = torch.where(labels, 1.0, 1 - eta.amax(1, keepdim=True) * 1.1) + 0.1 * scores(4000, 4)
    z[::2] = torch.where(labels, z.amax(1, keepdim=True), z)[::2]
    for name in ("gen", "hourglass"):
        if name == "gen":
            loss, p = sparsegen_hinge_loss(z, labels, reduction="none"), sparsegen(z)
        else:
            loss = sparsehourglass_hinge_loss(z, labels, 2.0, reduction="none")
            p = sparsehourglass(z, 2.0)
        met = (p - eta).abs().amax(1) < 1e-12
        assert torch.equal(met, loss < 1e-12)
        assert 100 < int(met.sum()) < 3900


def test_convex_along_random_segments() -> None:
    z, w, labels = scores(5000, 6, seed=1) * 3, scores(5000, 6, seed=2) * 3, label_sets(5000, 6)
    soft = distributions(labels)
    for loss in (
        partial(sparsehourglass_hinge_loss, target=labels, q=0.05, reduction="none"),
        partial(sparsegen_hinge_loss, target=labels, lambda_=0.5, reduction="none"),
        partial(sparsegen_hinge_loss, target=soft, lambda_=0.5, reduction="none"),
    ):
        middle = loss((z + w) / 2)
        assert float((middle - (loss(z) + loss(w)) / 2).max()) < 1e-10


def test_q_zero_is_an_error() -> None:
    """Its loss would be 0 at z = 0, where the map is undefined."""
    z, labels = scores(2, 4), label_sets(2, 4)
    for q in (0.0, torch.zeros(2, 1)):
        with pytest.raises(ParameterError, match="above 0"):
            sparsehourglass_hinge_loss(z, labels, q)
    close(
        sparsehourglass_hinge_loss(z, labels, float("inf")),
        equation_7(z, labels / labels.sum(1, keepdim=True), 0.0).mean(),
    )
    with pytest.raises(TargetError, match="unordered"):
        sparsegen_hinge_loss(z, labels, pairs="both")  # type: ignore[arg-type]


def test_float32_is_as_good_as_its_scores() -> None:
    z = scores(50, 200) + 1000
    labels = label_sets(50, 200)
    single = sparsegen_hinge_loss(z.float(), labels, reduction="none").double()
    double = sparsegen_hinge_loss(z.float().double(), labels, reduction="none")
    close(single, double, rtol=1e-4, atol=0)
