"""Lambda and q in modules: refused, held in range, saved, one a head."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.activations.maps import scores
from unarg_callback.activations import (
    ParameterError,
    Sparsecone,
    Sparsegen,
    Sparsehourglass,
    sparsegen,
    sparsehourglass,
)
from unarg_callback.activations.parameters import Positive
from unarg_callback.heads import named_map

close = torch.testing.assert_close
NAN, INF = math.nan, math.inf
Make = Callable[..., nn.Module]
MAKES: list[Make] = [Sparsegen, Sparsecone, Sparsehourglass]


def learned(module: nn.Module) -> Tensor:
    value = module.lambda_ if isinstance(module, Sparsegen) else module.q
    assert isinstance(value, Tensor)
    return value


def raw(module: nn.Module) -> nn.Parameter:
    (parameter,) = module.parameters()
    return parameter


@pytest.mark.parametrize("learnable", [False, True])
@pytest.mark.parametrize("bad", [1.0, 1.5, INF, -INF, NAN])
def test_a_bad_lambda_is_refused_where_a_module_is_made(bad: float, learnable: bool) -> None:
    for value in (bad, torch.tensor(bad), torch.tensor([[0.0], [bad]])):
        with pytest.raises(ParameterError, match="below 1"):
            Sparsegen(value, learnable=learnable)
        with pytest.raises(ParameterError, match="below 1"):
            named_map("sparsegen_exp", lambda_=value, learnable=learnable)


@pytest.mark.parametrize("make", [Sparsecone, Sparsehourglass])
@pytest.mark.parametrize("bad", [-1.0, -INF, NAN])
def test_a_bad_q_is_refused_where_a_module_is_made(make: Make, bad: float) -> None:
    for value in (bad, torch.tensor(bad), torch.tensor([[1.0], [bad]])):
        for learnable in (False, True):
            with pytest.raises(ParameterError, match="at least 0"):
                make(value, learnable=learnable)
            with pytest.raises(ParameterError, match="at least 0"):
                named_map(make.__name__.lower(), q=value, learnable=learnable)
    for value in (0.0, INF, torch.zeros(2, 1), torch.tensor(INF)):
        make(value)
        with pytest.raises(ParameterError, match="can't be learned"):
            make(value, learnable=True)


def test_an_unknown_transformation_is_refused_where_a_module_is_made() -> None:
    with pytest.raises(ParameterError, match="'square', expected one of"):
        Sparsegen(g="square")  # type: ignore[arg-type]


RAW = [0.0, 1e-30, 100.0, 3e38, INF]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_whatever_the_optimizer_makes_of_it_is_in_range(make: Make, dtype: torch.dtype) -> None:
    module = make(0.5, learnable=True).to(dtype)
    z = scores(3, 6).abs().to(dtype)
    for value in [*RAW, *(-x for x in RAW)]:
        with torch.no_grad():
            raw(module).fill_(value)
        found = learned(module)
        assert found.isfinite()
        assert found < 1 if make is Sparsegen else found > 0
        p = module(z)
        assert p.dtype == dtype
        assert p.isfinite().all(), value
        module.zero_grad()
        p.square().sum().backward()
        gradient = raw(module).grad
        assert gradient is not None
        assert gradient.isfinite(), value


@given(st.floats(width=32, allow_nan=False, allow_infinity=True))
def test_any_number_is_in_range(value: float) -> None:
    positive = Positive(1.0, learnable=True)
    with torch.no_grad():
        positive.raw.fill_(value)
        found = positive()
    assert isinstance(found, Tensor)
    assert 0 < found.item() < INF
    assert 1 - found < 1


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sign", [1, -1])
def test_huge_steps_of_the_optimizer(make: Make, dtype: torch.dtype, sign: int) -> None:
    """deep-spin/entmax#39, sfschouten/court-of-xai#17: a learned alpha drifts out, then NaN."""
    module = make(torch.full((3, 1), 0.5), learnable=True).to(dtype)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e6)
    z = scores(2, 3, 5).abs().to(dtype)
    for _ in range(10):
        optimizer.zero_grad()
        p = module(z)
        assert p.isfinite().all()
        (sign * p.square().sum()).backward()
        optimizer.step()
    found = learned(module)
    assert found.isfinite().all()
    assert (found < 1 if make is Sparsegen else found > 0).all()


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("start", [1e-5, 0.25, 0.999])
def test_where_it_starts(make: Make, start: float) -> None:
    value = learned(make(start, learnable=True))
    close(value, torch.tensor(start), rtol=1e-4, atol=1e-6)


def test_large_values_start_where_they_should() -> None:
    close(learned(Sparsegen(-1e6, learnable=True)), torch.tensor(-1e6))
    close(learned(Sparsehourglass(1e6, learnable=True)), torch.tensor(1e6))


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("learnable", [False, True])
def test_a_state_goes_from_one_module_to_another(make: Make, learnable: bool) -> None:
    first, second = (make(torch.full((3, 1), start), learnable=learnable) for start in (0.2, 0.9))
    z = scores(2, 3, 6, dtype=torch.float32).abs()
    assert not torch.equal(first(z), second(z))
    state = first.state_dict()
    assert len(state) == 1
    second.load_state_dict(state)
    assert torch.equal(first(z), second(z))
    assert torch.equal(copy.deepcopy(first)(z), first(z))
    (tensor,) = state.values()
    assert tensor.shape == (3, 1)


@pytest.mark.parametrize("make", MAKES)
def test_one_a_head_is_one_map_a_head_in_its_gradients_too(make: Make) -> None:
    values = (0.1, 0.5, 0.9)
    z = scores(2, 3, 4, 6).abs()
    together = make(torch.tensor(values).view(3, 1, 1), learnable=True).double()
    p = together(z)
    p.square().sum().backward()
    shared = raw(together).grad
    assert shared is not None
    for head, value in enumerate(values):
        alone = make(value, learnable=True).double()
        q = alone(z[:, head])
        close(p[:, head], q, rtol=1e-6, atol=1e-6)
        q.square().sum().backward()
        close(shared[head, 0, 0], raw(alone).grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_fixed_lambda_near_1_survives_half_precision(dtype: torch.dtype) -> None:
    """1 - 0.001 is 1 in bfloat16."""
    z = scores(4, 6).to(dtype)
    values = torch.tensor([[0.999], [0.5], [-300.7], [0.99]])
    found = Sparsegen(values).to(dtype)(z)
    close(found, sparsegen(z, values), rtol=0.02, atol=0.02)
    assert (Sparsegen(torch.tensor([[1 - 2**-24]])).to(dtype)(z).sum(1) == 1).all()


def test_a_lambda_nearer_to_1_than_float32_has_numbers() -> None:
    z = torch.tensor([1.0, 1.0 - 2**-24, 0.0])
    expected = torch.tensor([0.649, 0.351, 0.0])
    exact = torch.tensor([1 - 2e-7], dtype=torch.float64)
    for p in (sparsegen(z, 1 - 2e-7), sparsegen(z, exact), Sparsegen(exact)(z)):
        close(p, expected, rtol=0, atol=1e-3)


def test_integers_are_numbers() -> None:
    z = scores(2, 5)
    close(sparsegen(z, 0), sparsegen(z, torch.tensor(0)))
    close(sparsehourglass(z, 2), sparsehourglass(z, torch.tensor([[2], [2]])))


def test_modules_made_on_no_device() -> None:
    """As large models are, to be loaded later."""
    with torch.device("meta"):
        module = Sparsegen(torch.full((3, 1), 0.5), learnable=True)
        assert module(torch.zeros(2, 3, 5)).shape == (2, 3, 5)
    module.to_empty(device="cpu")
    module.load_state_dict(Sparsegen(torch.full((3, 1), 0.5), learnable=True).state_dict())
    close(learned(module), torch.full((3, 1), 0.5))


def test_graphs_with_bad_parameters_give_nan() -> None:
    """Where looking at values would break the graph."""
    compiled = torch.compile(sparsegen, fullgraph=True, backend="aot_eager")
    p = compiled(torch.zeros(2, 3), torch.tensor([[0.5], [1.0]]))
    assert p.isnan().all(1).tolist() == [False, True]


@pytest.mark.parametrize("make", MAKES)
def test_gradients_of_parameters_in_a_graph(make: Make) -> None:
    torch._dynamo.reset()
    z = scores(2, 3, 6, dtype=torch.float32).abs()
    eager = make(torch.tensor([[0.1], [0.5], [0.9]]), learnable=True)
    compiled = copy.deepcopy(eager)
    torch.compile(compiled, fullgraph=True, backend="aot_eager")(z).square().sum().backward()
    eager(z).square().sum().backward()
    close(raw(compiled).grad, raw(eager).grad)
