from __future__ import annotations

import math

import pytest
import torch

from tests.activations.maps import CASES, Map, inside
from unarg_callback.activations import (
    ParameterError,
    sparsecone,
    sparsegen,
    sparsehourglass,
    sparsemax,
    spherical_softmax,
    sum_normalization,
    sum_normalization_pp,
)

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("classes", [4, 2000])
def test_nan_and_infinity_make_their_row_nan_and_no_other(name: str, classes: int) -> None:
    for bad in (NAN, INF):
        if name == "sparsegen_tanh" and bad == INF:
            continue
        z = inside(name, 3, classes)
        z[1, 2] = bad
        p = CASES[name].run(z)
        assert p[1].isnan().all(), bad
        torch.testing.assert_close(p[0::2], CASES[name].run(z[0::2]))
        assert p[0::2].isfinite().all()


@pytest.mark.parametrize("classes", [3, 3000])
def test_as_softmax_has_it(classes: int) -> None:
    """Every mixture of finite, infinite and NaN scores is NaN exactly where softmax is."""
    values = (0.0, 1.0, NAN, INF, -INF)
    rows = torch.cartesian_prod(*[torch.tensor(values)] * 3)
    z = rows.new_full((len(rows), classes), -INF)
    z[:, :3] = rows
    expected = z.softmax(1).isnan()
    for lambda_ in (0.0, 0.5):
        assert torch.equal(sparsegen(z, lambda_).isnan(), expected)
    assert torch.equal(sparsemax(z)[~expected].isfinite(), torch.ones(int((~expected).sum())) > 0)


def test_scores_outside_of_a_domain() -> None:
    nan = [True, True]
    assert sum_normalization(torch.tensor([-1.0, 3.0])).isnan().tolist() == nan
    assert sum_normalization(torch.zeros(2)).isnan().tolist() == nan
    assert spherical_softmax(torch.zeros(2)).isnan().tolist() == nan
    assert sum_normalization_pp(torch.tensor([1.0, -1.0])).isnan().tolist() == nan
    assert sparsegen(torch.tensor([-1.0, 3.0]), g="log").isnan().tolist() == nan
    assert sparsegen(torch.zeros(2), g="log").isnan().tolist() == nan
    assert sparsegen(torch.tensor([0.0, 3.0]), g="log").tolist() == [0.0, 1.0]


def test_sparsecone_is_nan_where_its_formula_turns_the_order_around() -> None:
    for z in ((-2.0, -1.0), (-1.0, -1.0)):
        assert sparsecone(torch.tensor(z), 1.0).isnan().all()
    assert sparsehourglass(torch.tensor([-2.0, -1.0]), 1.0).tolist() == pytest.approx([0.2, 0.8])


def test_undefined_rows_do_not_spoil_learned_parameters() -> None:
    q = torch.tensor(1.0, requires_grad=True)
    z = torch.tensor([[-2.0, -1.0], [0.5, 0.2]])
    sparsecone(z, q)[1, 0].backward()
    assert q.grad is not None
    assert q.grad.isfinite()


@pytest.mark.parametrize("bad", [1.0, 2.0, INF, -INF, NAN])
def test_a_bad_lambda_is_an_error(bad: float) -> None:
    z = torch.zeros(2, 3)
    with pytest.raises(ParameterError, match="below 1"):
        sparsegen(z, bad)
    with pytest.raises(ParameterError, match="below 1"):
        sparsegen(z, torch.tensor([[0.0], [bad]]))


@pytest.mark.parametrize("bad", [-1.0, NAN])
@pytest.mark.parametrize("run", [sparsecone, sparsehourglass])
def test_a_bad_q_is_an_error(bad: float, run: Map) -> None:
    z = torch.ones(2, 3)
    with pytest.raises(ParameterError, match="at least 0"):
        run(z, bad)
    with pytest.raises(ParameterError, match="at least 0"):
        run(z, torch.tensor([[0.0], [bad]]))


def test_where_values_are_hidden_a_bad_parameter_gives_nan() -> None:
    z = torch.zeros(3)
    p = torch.func.vmap(lambda lambda_: sparsegen(z, lambda_))(torch.tensor([0.5, 1.0]))
    assert p.isnan().all(1).tolist() == [False, True]


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 1, 1)])
def test_parameters_must_fit(shape: tuple[int, ...]) -> None:
    for run in (sparsegen, sparsehourglass):
        with pytest.raises(ParameterError, match="broadcasts"):
            run(torch.ones(2, 3), torch.full(shape, 0.5))


def test_an_unknown_transformation_is_an_error() -> None:
    with pytest.raises(ParameterError, match="exp"):
        sparsegen(torch.ones(3), g="square")  # type: ignore[arg-type]
