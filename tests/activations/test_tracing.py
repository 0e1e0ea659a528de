"""torch.func, torch.compile, torch.export, autocast and half precision."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, vmap

from tests.activations.maps import CASES, MODULES, inside, scores
from unarg_callback.activations import (
    Sparsegen,
    Sparsehourglass,
    sparsecone,
    sparsegen,
    sparsehourglass,
    sparsemax,
)

close = torch.testing.assert_close


@pytest.mark.parametrize("name", CASES)
def test_torch_func(name: str) -> None:
    run, z = CASES[name].run, inside(name, 4, 3, 6)
    p = run(z)
    close(vmap(run)(z), p)
    close(vmap(vmap(run))(z), p)
    close(vmap(run, in_dims=2, out_dims=2)(z.movedim(0, 2)), p.movedim(0, 2))
    close(vmap(lambda z: run(z, dim=0))(z.transpose(1, 2)), p.transpose(1, 2))
    expected = torch.stack([torch.autograd.functional.jacobian(run, row) for row in z[0]])
    close(vmap(jacrev(run))(z[0]), expected)
    close(vmap(jacfwd(run))(z[0]), expected)
    squares = vmap(grad(lambda z: run(z).square().sum()))(z[0])
    close(squares, torch.einsum("bi,bij->bj", 2 * p[0], expected))


@pytest.mark.parametrize("name", CASES)
def test_vmap_of_masks(name: str) -> None:
    run, z = CASES[name].run, inside(name, 4, 3, 6)
    mask = torch.ones(4, 3, 6, dtype=torch.bool)
    mask[1:, :, 2] = mask[0, 0, 5] = False
    if name == "sparsecone":
        z = z.abs()
    close(vmap(lambda z, mask: run(z, mask=mask))(z, mask), run(z, mask=mask))
    close(vmap(lambda mask: run(z[0], mask=mask))(mask), run(z[:1].expand_as(z), mask=mask))


@pytest.mark.parametrize("run", [sparsegen, sparsehourglass, sparsecone])
def test_torch_func_of_parameters(run: Callable[..., torch.Tensor]) -> None:
    z, values = scores(4, 6).abs(), torch.tensor([0.1, 0.4, 0.7, 0.9]).double()
    p = run(z, values[:, None])
    close(vmap(run)(z, values), p)
    for way in (jacrev, jacfwd):
        for row, value in zip(z, values, strict=True):
            expected = torch.autograd.functional.jacobian(lambda x, row=row: run(row, x), value)
            close(way(run, argnums=1)(row, value), expected)
    slopes = vmap(grad(lambda z, x: run(z, x).square().sum(), argnums=1))(z, values)
    x = values[:, None].clone().requires_grad_()
    close(slopes[:, None], torch.autograd.grad(run(z, x).square().sum(), x)[0])


def test_torch_func_where_the_support_is_listed() -> None:
    z = scores(2, 1200)
    first = vmap(jacrev(lambda z: sparsemax(z)[:9]))(z)
    close(first, torch.stack([jacfwd(sparsemax)(row)[:9] for row in z]))
    close(
        vmap(grad(lambda z: sparsemax(z).square().sum()))(z),
        2
        * torch.einsum(
            "bi,bij->bj", sparsemax(z), torch.stack([jacrev(sparsemax)(row) for row in z])
        ),
    )


@pytest.mark.parametrize("name", CASES)
def test_compiles_as_one_graph(name: str) -> None:
    compiled = torch.compile(CASES[name].run, fullgraph=True, backend="aot_eager")
    mask = torch.tensor([True, True, False, True, True, True])
    z, again = (inside(name, 3, 6).requires_grad_() for _ in range(2))
    p, expected = compiled(z, mask=mask), CASES[name].run(again, mask=mask)
    close(p, expected)
    p.square().sum().backward()
    expected.square().sum().backward()
    close(z.grad, again.grad)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compiles_with_inductor(name: str) -> None:
    torch._dynamo.reset()
    z = inside(name, 3, 700).float()
    close(torch.compile(CASES[name].run, fullgraph=True)(z), CASES[name].run(z))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_graphs_of_any_size(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(CASES[name].run, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((3, 40), (5, 700)):
        z, again = (inside(name, *shape).float().requires_grad_() for _ in range(2))
        p, expected = compiled(z), CASES[name].run(again)
        close(p, expected)
        p.square().sum().backward()
        expected.square().sum().backward()
        close(z.grad, again.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODULES)
def test_modules_compile_export_and_copy(name: str) -> None:
    module = copy.deepcopy(MODULES[name])
    z = inside(name, 2, 3, 6).float()
    expected = module(z)
    close(torch.compile(module, fullgraph=True, backend="aot_eager")(z), expected)
    close(torch.export.export(module, (z,)).module()(z), expected)
    other = copy.deepcopy(module)
    other.load_state_dict(module.state_dict())
    close(other(z), expected)


def test_exports_with_a_batch_of_any_size() -> None:
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(
        Sparsegen(0.3), (scores(4, 6, dtype=torch.float32),), dynamic_shapes=({0: batch},)
    )
    z = scores(9, 6, dtype=torch.float32)
    close(program.module()(z), sparsegen(z, 0.3))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    z = inside(name, 5, 3000).to(dtype)
    p = CASES[name].run(z)
    assert p.dtype == dtype
    torch.testing.assert_close(p, CASES[name].run(z.float()).to(dtype), rtol=0, atol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wide = CASES[name].run(z)
        assert wide.dtype == torch.float32
        torch.testing.assert_close(wide.sum(1), torch.ones(5), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_training_under_autocast(name: str, dtype: torch.dtype) -> None:
    """deep-spin/entmax#31."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 6)
    x = scores(8, 5, dtype=torch.float32)
    gradients = []
    for enabled in (True, False):
        layer.zero_grad()
        with torch.autocast("cpu", dtype, enabled=enabled):
            p = CASES[name].run(CASES[name].domain(layer(x)) + 1.0)
        assert p.dtype == torch.float32
        (p * torch.arange(6.0)).mean().backward()
        assert layer.weight.grad is not None
        gradients.append(layer.weight.grad.clone())
    close(*gradients, rtol=0.05, atol=0.02)


def test_half_precision_gradients_and_overflow() -> None:
    for g in ("exp", "sq"):
        z = torch.tensor([300.0, -20.0, 299.0], dtype=torch.float16, requires_grad=True)
        p = sparsegen(z, g=g)
        assert p.tolist() == [1.0, 0.0, 0.0]
        p[0].backward()
        assert z.grad is not None
        assert z.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("make", [Sparsegen, Sparsehourglass])
def test_learned_parameters_stay_in_range(make: Callable[..., torch.nn.Module]) -> None:
    for start in (0.9, torch.full((3, 1), 0.5)):
        module = make(start, learnable=True)
        value = module.lambda_ if isinstance(module, Sparsegen) else module.q
        close(value, torch.as_tensor(start), rtol=1e-5, atol=1e-6)
        optimizer = torch.optim.SGD(module.parameters(), lr=1e3)
        z = scores(2, 3, 5, dtype=torch.float32)
        for _ in range(20):
            optimizer.zero_grad()
            (module(z)[..., 0].sum() * 9).backward()
            optimizer.step()
            assert module(z).isfinite().all()
    fixed = make(0.25)
    assert not list(fixed.parameters())
    assert not fixed.state_dict()
    assert list(make(torch.tensor([0.25])).state_dict())


def test_one_lambda_a_head_is_one_map_a_head() -> None:
    z = scores(2, 3, 4, 6)
    lambdas = torch.tensor([-1.0, 0.0, 0.8]).double()
    p = sparsegen(z, lambdas.view(3, 1, 1))
    for head, lambda_ in enumerate(lambdas.tolist()):
        close(p[:, head], sparsegen(z[:, head], lambda_))
    q = sparsegen(z.movedim(-1, 1), lambdas.view(1, 3, 1), dim=1)
    close(q.movedim(1, -1), p)
