"""Every map along every dimension, of nothing and of one, without a trace on its input."""

from __future__ import annotations

import pytest
import torch

from tests.activations.maps import CASES, inside
from unarg_callback.activations import Sparsegen, Sparsehourglass, lambda_for_support

close = torch.testing.assert_close
every = pytest.mark.parametrize("name", CASES)


@every
def test_any_dimension_of_any_layout(name: str) -> None:
    """KrisKorrel/sparsemax-pytorch#1: wrong for inputs of four dimensions."""
    x = inside(name, 3, 4, 5, 6)
    expected = CASES[name].run(x)
    for dim in range(-4, 4):
        z = x.movedim(-1, dim)
        p = CASES[name].run(z, dim=dim)
        assert p.shape == z.shape
        close(p.movedim(dim, -1), expected)


@every
@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 3), (4, 0), (0,), (0, 0)])
def test_nothing_has_a_shape_and_a_gradient(name: str, shape: tuple[int, ...]) -> None:
    z = torch.zeros(shape, requires_grad=True)
    mask = torch.ones(shape, dtype=torch.bool)
    for options in ({}, {"mask": mask}):
        p = CASES[name].run(z, **options)
        assert p.shape == shape
        p.sum().backward()
    assert z.grad is not None
    assert z.grad.shape == shape


@every
def test_one_class_gets_everything(name: str) -> None:
    for scale in (1e-5, 1.0, 1e8):
        z = torch.tensor([[0.3], [7.0]]).mul(scale).requires_grad_()
        p = CASES[name].run(z)
        assert p.tolist() == [[1.0], [1.0]]
        p.square().sum().backward()
        assert z.grad is not None
        close(z.grad, torch.zeros_like(z), rtol=0, atol=1e-2 if scale < 1 else 1e-6)


@every
@pytest.mark.parametrize("classes", [9, 3000])
def test_the_input_is_left_alone(name: str, classes: int) -> None:
    """OpenNMT-py subtracts the maximum from the caller's scores."""
    z = inside(name, 4, classes)
    mask = torch.ones_like(z, dtype=torch.bool)
    mask[:, 1] = False
    before, mask_before = z.clone(), mask.clone()
    CASES[name].run(z, mask=mask)
    assert torch.equal(z, before)
    assert torch.equal(mask, mask_before)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_precision_of_scores_is_kept(name: str, dtype: torch.dtype) -> None:
    """keras-team/keras#23548: float64 came back from float32."""
    z = inside(name, 4, 9).to(dtype).requires_grad_()
    p = CASES[name].run(z)
    assert p.dtype == dtype
    p.sum().backward()
    assert z.grad is not None
    assert z.grad.dtype == dtype


@every
def test_the_gradient_that_comes_in_counts(name: str) -> None:
    """OpenNMT-py's loss ignores it."""
    z = inside(name, 4, 9).requires_grad_()
    v = torch.linspace(-1, 1, 36, dtype=torch.float64).view(4, 9)
    once, thrice = (torch.autograd.grad(CASES[name].run(z), z, k * v)[0] for k in (1, 3))
    close(thrice, 3 * once)


@pytest.mark.parametrize("make", [Sparsegen, Sparsehourglass])
def test_parameters_of_two_dimensions(make: type[torch.nn.Module]) -> None:
    """One a head and query, as entmax's users ask (deep-spin/entmax#10, #15)."""
    z = inside("sparsemax", 2, 3, 4, 6).float()
    values = torch.linspace(0.1, 0.8, 12).view(3, 4, 1)
    p = make(values, learnable=True)(z)
    for head in range(3):
        for query in range(4):
            one = make(float(values[head, query]))(z[:, head, query])
            close(p[:, head, query], one)


def test_a_wanted_support_of_no_rows() -> None:
    assert lambda_for_support(torch.zeros(0, 5), 2).shape == (0, 1)
    assert lambda_for_support(torch.zeros(3, 1), 1).shape == (3, 1)
