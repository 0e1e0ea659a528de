from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from tests.activations.maps import scores
from tests.losses.pairwise import label_sets
from unarg_callback import losses
from unarg_callback.losses import TargetError

close = torch.testing.assert_close
Loss = Callable[..., Tensor]
LOSSES: dict[str, Loss] = {
    "softmax_log": losses.softmax_log_loss,
    "sparsemax_huber": losses.sparsemax_huber_loss,
    "sparsegen_huber": losses.sparsegen_huber_loss,
    "sparsegen_hinge": losses.sparsegen_hinge_loss,
    "sparsehourglass_hinge": losses.sparsehourglass_hinge_loss,
}
MODULES: dict[str, Callable[..., torch.nn.Module]] = {
    "softmax_log": losses.SoftmaxLogLoss,
    "sparsemax_huber": losses.SparsemaxHuberLoss,
    "sparsegen_huber": losses.SparsegenHuberLoss,
    "sparsegen_hinge": losses.SparsegenHingeLoss,
    "sparsehourglass_hinge": losses.SparsehourglassHingeLoss,
}
every = pytest.mark.parametrize("name", LOSSES)


@every
def test_targets_in_all_their_forms(name: str) -> None:
    loss, z = LOSSES[name], scores(6, 5)
    index = torch.tensor([0, 1, 2, 3, 4, 0])
    hot = torch.nn.functional.one_hot(index, 5)
    expected = loss(z, index, reduction="none")
    for target in (hot, hot.bool(), hot.double(), hot * 3):
        close(loss(z, target, reduction="none"), expected)
    labels = label_sets(6, 5)
    close(loss(z, labels), loss(z, labels / labels.sum(1, keepdim=True)))


@every
def test_reductions_and_weights(name: str) -> None:
    loss, z, labels = LOSSES[name], scores(6, 5), label_sets(6, 5)
    rows = loss(z, labels, reduction="none")
    assert rows.shape == (6,)
    close(loss(z, labels), rows.mean())
    close(loss(z, labels, reduction="sum"), rows.sum())
    sample = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.5, 0.0]).double()
    close(loss(z, labels, sample_weight=sample), (rows * sample).sum() / sample.sum())
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).double()
    share = (labels * weight).sum(1) / labels.sum(1)
    close(loss(z, labels, weight=weight, reduction="none"), rows * share)
    close(loss(z, labels, weight=weight), (rows * share).sum() / share.sum())


@every
def test_ignored_rows_count_for_nothing_whatever_is_in_them(name: str) -> None:
    loss, z = LOSSES[name], scores(5, 4)
    target = torch.tensor([1, -1, 2, -1, 3])
    z[1], z[3] = math.nan, math.inf
    z.requires_grad_()
    found = loss(z, target, ignore_index=-1)
    close(found, loss(z[0::2].detach(), target[0::2]))
    found.backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert (z.grad[1::2] == 0).all()


@every
def test_empty_label_sets(name: str) -> None:
    loss, z = LOSSES[name], scores(4, 5)
    labels = label_sets(4, 5)
    labels[2] = False
    kept = [0, 1, 3]
    close(loss(z, labels), loss(z[kept], labels[kept]))
    assert float(loss(z, labels, reduction="none")[2]) == 0
    with pytest.raises(TargetError, match="undefined"):
        loss(z, labels, empty="error")
    none = loss(z.requires_grad_(), torch.zeros(4, 5))
    assert none.item() == 0
    none.backward()
    index = torch.tensor([0, -100, 2, 3])
    close(loss(z, index, empty="error"), loss(z, index))


@every
@pytest.mark.parametrize("garbage", [0.0, math.nan, math.inf, -math.inf])
def test_a_mask_is_the_loss_of_what_is_left(name: str, garbage: float) -> None:
    loss = LOSSES[name]
    mask = torch.tensor([True, False, True, True, False, True])
    left, labels = scores(4, 4), label_sets(4, 6)
    labels[:, 0] = True
    z = torch.full((4, 6), garbage, dtype=torch.float64)
    z[:, mask] = left
    z.requires_grad_()
    found = loss(z, labels, mask=mask, reduction="none")
    close(found, loss(left, labels[:, mask], reduction="none"))
    found.sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert (z.grad[:, ~mask] == 0).all()


@every
def test_minus_infinity_takes_a_class_out(name: str) -> None:
    """deep-spin/entmax#9: one -inf made every loss NaN."""
    loss = LOSSES[name]
    z = torch.tensor([[1.0, -math.inf, 0.5], [0.2, 0.1, -0.4]], requires_grad=True)
    found = loss(z, torch.tensor([0, 1]), reduction="none")
    close(found[0], loss(z[0, 0::2], torch.tensor(0)))
    found.sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert loss(z, torch.tensor([1, 1]), reduction="none")[0].item() == math.inf


@every
def test_dimensions(name: str) -> None:
    loss, z, labels = LOSSES[name], scores(2, 3, 5), label_sets(6, 5).view(2, 3, 5)
    rows = loss(z, labels, reduction="none")
    assert rows.shape == (2, 3)
    moved = loss(z.movedim(-1, 1), labels.movedim(-1, 1), dim=1, reduction="none")
    close(moved, rows)
    index = labels.int().argmax(-1)
    close(loss(z.movedim(-1, 1), index, dim=1), loss(z, index))
    close(loss(z[0, 0], labels[0, 0]), rows[0, 0])


@every
def test_modules_do_as_functions(name: str) -> None:
    z, labels = scores(6, 5), label_sets(6, 5)
    weight = torch.rand(5, generator=torch.Generator().manual_seed(0))
    module = MODULES[name](reduction="sum", weight=weight)
    close(module(z, labels), LOSSES[name](z, labels, reduction="sum", weight=weight))
    mask = torch.tensor([True, True, True, True, False])
    close(
        MODULES[name](dim=0)(z.T, labels.T, mask=mask[:, None]),
        LOSSES[name](z, labels, mask=mask),
    )
    assert "reduction='sum'" in repr(module)
    assert list(module.state_dict()) == ["weight"]


@every
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_graphs_and_functions(name: str, reduction: str) -> None:
    torch._dynamo.reset()  # All of these functions have one code, whose graphs are limited.

    def run(z: Tensor, labels: Tensor) -> Tensor:
        return LOSSES[name](z, labels, reduction=reduction)

    z, labels = scores(4, 6).requires_grad_(), label_sets(4, 6)
    found = torch.compile(run, fullgraph=True, backend="aot_eager")(z, labels)
    close(found, run(z, labels))
    close(*(torch.autograd.grad(x.sum(), z)[0] for x in (found, run(z, labels))))
    by_row = vmap(grad(lambda z, y: run(z, y).sum()))(z.detach(), labels)
    (expected,) = torch.autograd.grad(LOSSES[name](z, labels, reduction="sum"), z)
    close(by_row, expected)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    z, labels = scores(4, 300, dtype=dtype), label_sets(4, 300)
    found = LOSSES[name](z, labels)
    assert found.dtype == dtype
    wide = LOSSES[name](z.float(), labels)
    close(found, wide.to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(LOSSES[name](z, labels), wide)


@every
def test_what_does_not_fit_is_said(name: str) -> None:
    loss, z = LOSSES[name], scores(4, 5)
    labels = label_sets(4, 5)
    for arguments, message in (
        ({"target": torch.zeros(4, 4)}, "expected class"),
        ({"target": torch.zeros(4)}, "expected class"),
        ({"target": torch.tensor([0, 1, 5, 0])}, "index is 5"),
        ({"target": torch.tensor([0, -1, 1, 0])}, "index is -1"),
        ({"target": -labels.double()}, "negative"),
        ({"reduction": "average"}, "reduction"),
        ({"empty": "drop"}, "empty"),
        ({"weight": torch.ones(4)}, "one a class"),
        ({"sample_weight": torch.ones(5)}, "one a row"),
    ):
        with pytest.raises(TargetError, match=message):
            loss(**{"z": z, "target": labels, **arguments})
