"""Maps by name."""

from __future__ import annotations

import pytest
import torch

from tests.activations.maps import CASES, scores
from unarg_callback.activations import ParameterError
from unarg_callback.heads import named_map
from unarg_callback.heads.named_maps import MAP_NAMES


@pytest.mark.parametrize("name", MAP_NAMES)
def test_each_name_is_the_function_of_that_name(name: str) -> None:
    case = CASES[name]
    z = case.domain(scores(4, 7))
    torch.testing.assert_close(named_map(name, lambda_=0.3, q=0.5)(z), case.run(z))


def test_the_dimension_is_passed_on() -> None:
    for name in MAP_NAMES:
        z = CASES[name].domain(scores(4, 7))
        torch.testing.assert_close(named_map(name, dim=0)(z.T), named_map(name)(z).T)


def test_what_is_learned_has_a_gradient() -> None:
    for name in MAP_NAMES:
        if name.startswith("sparsegen") or name in ("sparsecone", "sparsehourglass"):
            made = named_map(name, learnable=True)
            (parameter,) = made.parameters()
            made(CASES[name].domain(scores(4, 7)))[:, 0].sum().backward()
            assert parameter.grad is not None


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "sum_normalization_pp"])
def test_maps_without_parameters_have_nothing_to_learn(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} has no parameter to learn"):
        named_map(name, learnable=True)


@pytest.mark.parametrize("name", ["sparsegen", "sparsegen_cube", "Softmax", ""])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ParameterError, match="expected one of softmax, .*, sparsehourglass"):
        named_map(name)
