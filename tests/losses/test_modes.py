"""Losses of nothing, differentiated every way, exported, and in modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, vmap

from tests.activations.maps import scores
from tests.losses.pairwise import label_sets
from tests.losses.test_options import LOSSES, MODULES
from unarg_callback import losses
from unarg_callback.activations import ParameterError, sparsegen
from unarg_callback.losses import TargetError

close = torch.testing.assert_close
every = pytest.mark.parametrize("name", LOSSES)
PARAMETERS = {"sparsegen_huber": 0.4, "sparsegen_hinge": 0.4, "sparsehourglass_hinge": 0.4}


@every
@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 5), (0,), (3, 0)])
def test_nothing_has_no_loss(name: str, shape: tuple[int, ...]) -> None:
    z = torch.zeros(shape, requires_grad=True)
    labels = torch.zeros(shape)
    mask = torch.ones(shape, dtype=torch.bool)
    targets = [labels, labels.bool()]
    if shape[-1]:
        targets.append(torch.full(shape[:-1], -100))
    for target in targets:
        for given in (None, mask):
            for reduction in ("mean", "sum"):
                loss = LOSSES[name](z, target, mask=given, reduction=reduction)
                assert loss.item() == 0
                loss.backward()
            assert LOSSES[name](z, target, mask=given, reduction="none").shape == shape[:-1]
    assert z.grad is not None
    assert z.grad.shape == shape


@every
def test_one_class_is_no_choice(name: str) -> None:
    z = scores(4, 1).requires_grad_()
    loss = LOSSES[name](z, torch.zeros(4, dtype=torch.long))
    assert loss.item() == 0
    loss.backward()
    assert z.grad is not None
    assert (z.grad == 0).all()


@every
def test_rows_that_are_masked_throughout_spoil_nothing(name: str) -> None:
    z, labels = scores(3, 5).requires_grad_(), label_sets(3, 5)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    found = LOSSES[name](z, labels, mask=mask)
    close(found, LOSSES[name](z[0::2], labels[0::2]))
    (grad,) = torch.autograd.grad(found, z)
    assert grad.isfinite().all()
    assert (grad[1] == 0).all()


@every
def test_derivatives_of_every_kind_agree(name: str) -> None:
    z, labels = scores(3, 6), label_sets(3, 6)

    def loss(z: Tensor, y: Tensor) -> Tensor:
        return LOSSES[name](z, y)

    backward, forward = (vmap(way(loss))(z, labels) for way in (jacrev, jacfwd))
    close(forward, backward)
    (expected,) = torch.autograd.grad(LOSSES[name](z.requires_grad_(), labels, reduction="sum"), z)
    close(backward, expected)
    second = vmap(hessian(loss))(z.detach(), labels)
    assert torch.linalg.eigvalsh(second).min() > -1e-9
    for row, y, found in zip(z.detach(), labels, second, strict=True):
        close(torch.autograd.functional.hessian(lambda z, y=y: loss(z, y), row), found)
    assert gradcheck(lambda z: LOSSES[name](z, labels), z, check_forward_ad=True)
    assert gradgradcheck(lambda z: LOSSES[name](z, labels), z)


@pytest.mark.parametrize("name", PARAMETERS)
def test_second_derivatives_by_parameters(name: str) -> None:
    z, labels = scores(4, 6).requires_grad_(), label_sets(4, 6)
    parameter = torch.full((4, 1), PARAMETERS[name], dtype=torch.float64, requires_grad=True)

    def run(z: Tensor, parameter: Tensor) -> Tensor:
        return LOSSES[name](z, labels, parameter)

    assert gradcheck(run, (z, parameter))
    assert gradgradcheck(run, (z, parameter))


@pytest.mark.parametrize("name", PARAMETERS)
def test_one_parameter_a_row_broadcasts_along_any_dimension(name: str) -> None:
    z, labels = scores(2, 3, 5), label_sets(6, 5).view(2, 3, 5)
    values = torch.tensor([0.1, 0.5, 0.8]).double()
    rows = LOSSES[name](z, labels, values.view(3, 1), reduction="none")
    for i, value in enumerate(values.tolist()):
        close(rows[:, i], LOSSES[name](z[:, i], labels[:, i], value, reduction="none"))
    moved = LOSSES[name](
        z.movedim(-1, 1), labels.movedim(-1, 1), values.view(1, 1, 3), dim=1, reduction="none"
    )
    close(moved, rows)
    with pytest.raises(ParameterError, match="broadcasts"):
        LOSSES[name](z, labels, torch.full((5,), 0.5))


@pytest.mark.parametrize("name", MODULES)
def test_exported_programs(name: str) -> None:
    batch = torch.export.Dim("batch", min=2)
    module = MODULES[name]()
    given = scores(4, 6), label_sets(4, 6)
    program = torch.export.export(module, given, dynamic_shapes=({0: batch}, {0: batch}))
    more = scores(9, 6), label_sets(9, 6)
    close(program.module()(*more), module(*more))


@pytest.mark.slow
@every
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_graphs_of_any_size(name: str, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(LOSSES[name], fullgraph=True, dynamic=True, backend=backend)
    for rows, classes in ((3, 40), (5, 700)):
        z = scores(rows, classes, dtype=torch.float32).requires_grad_()
        labels = label_sets(rows, classes)
        found, expected = (loss(z, labels) for loss in (compiled, LOSSES[name]))
        close(found, expected)
        close(*(torch.autograd.grad(x, z)[0] for x in (found, expected)))


@every
def test_training_under_autocast(name: str) -> None:
    x, labels = scores(8, 5, dtype=torch.float32), label_sets(8, 6)
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 6)
    gradients = []
    for enabled in (True, False):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = LOSSES[name](layer(x), labels)
        assert loss.dtype == torch.float32
        loss.backward()
        assert layer.weight.grad is not None
        gradients.append(layer.weight.grad.clone())
    close(*gradients, rtol=0.05, atol=0.05)


@every
def test_what_is_given_is_left_alone(name: str) -> None:
    z, target = scores(4, 6), label_sets(4, 6).double()
    z[0, 3] = -torch.inf
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[:, 5] = False
    given = [z, target, mask]
    before = [x.clone() for x in given]
    LOSSES[name](z, target, mask=mask)
    for x, y in zip(given, before, strict=True):
        assert torch.equal(x, y)


@every
def test_the_gradient_that_comes_in_counts(name: str) -> None:
    """OpenNMT-py's sparsemax loss ignores it."""
    z, labels = scores(4, 6).requires_grad_(), label_sets(4, 6)
    rows = LOSSES[name](z, labels, reduction="none")
    weights = torch.tensor([0.0, 1.0, -2.0, 3.0]).double()
    (grad,) = torch.autograd.grad(rows, z, weights, retain_graph=True)
    (once,) = torch.autograd.grad(rows.sum(), z)
    close(grad, once * weights[:, None])


@every
def test_a_loss_is_in_the_precision_of_its_scores(name: str) -> None:
    labels = label_sets(4, 6)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        z = scores(4, 6).to(dtype).requires_grad_()
        loss = LOSSES[name](z, labels)
        assert loss.dtype == dtype
        loss.backward()
        assert z.grad is not None
        assert z.grad.dtype == dtype
        assert z.grad.isfinite().all()


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (losses.SparsegenHuberLoss, {"lambda_": 1.5}, "lambda is 1.5"),
        (losses.SparsegenHuberLoss, {"lambda_": torch.ones(1)}, "lambda has 1.0"),
        (losses.SparsegenHingeLoss, {"lambda_": float("nan")}, "lambda is nan"),
        (losses.SparsehourglassHingeLoss, {"q": 0.0}, "q is 0.0"),
        (losses.SparsehourglassHingeLoss, {"q": torch.tensor([-1.0])}, "q has -1.0"),
    ],
)
def test_bad_parameters_are_refused_where_a_module_is_made(
    make: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        make(**options)


@pytest.mark.parametrize("name", MODULES)
def test_unknown_options_are_refused_where_a_module_is_made(name: str) -> None:
    unknown: list[dict[str, Any]] = [{"reduction": "average"}, {"empty": "drop"}]
    if "hinge" in name:
        unknown.append({"pairs": "both"})
    for options in unknown:
        with pytest.raises(TargetError, match="expected"):
            MODULES[name](**options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_modules_with_tensors_in_half_precision(dtype: torch.dtype) -> None:
    z, labels = scores(2, 6).to(dtype), label_sets(2, 6)
    values = torch.tensor([[0.999], [0.2]])
    for make, run in (
        (losses.SparsegenHuberLoss, losses.sparsegen_huber_loss),
        (losses.SparsegenHingeLoss, losses.sparsegen_hinge_loss),
        (losses.SparsehourglassHingeLoss, losses.sparsehourglass_hinge_loss),
    ):
        module = make(values).to(dtype)
        close(module(z, labels), run(z, labels, values), rtol=0.02, atol=0.02)
        other = make(values * 0.5).to(dtype)
        other.load_state_dict(module.state_dict())
        assert torch.equal(other(z, labels), module(z, labels))


def test_multilabel_training_with_a_learned_lambda() -> None:
    """deep-spin/entmax#29 asks for an example: lambda is in the map and the loss."""
    torch.manual_seed(0)
    labels = label_sets(40, 6, 1)
    layer = torch.nn.Linear(6, 6)
    raw = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam([*layer.parameters(), raw], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        lambda_ = 1 - torch.nn.functional.softplus(raw)
        losses.sparsegen_hinge_loss(layer(labels.float()), labels, lambda_).backward()
        optimizer.step()
    assert raw.grad is not None
    assert torch.equal(sparsegen(layer(labels.float()), lambda_.detach()) > 0, labels)
