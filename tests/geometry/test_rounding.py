from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch

from unarg_callback.geometry.rounding import (
    SMALLEST_NORMAL,
    UNIT_ROUNDOFF,
    float32_products_are_ieee,
    gamma,
)


@pytest.fixture
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 17, 1000])
def test_gamma_bounds_n_roundings(dtype: torch.dtype, n: int) -> None:
    unit = Fraction(torch.finfo(dtype).eps) / 2
    assert Fraction(gamma(n, dtype)) >= n * unit / (1 - n * unit) * (1 - Fraction(2) ** -50)
    assert Fraction(gamma(n, dtype)) >= (1 + unit) ** n - 1


def test_gamma_is_infinite_where_it_bounds_nothing() -> None:
    assert gamma(2**24, torch.float32) == math.inf
    assert gamma(2**24 - 1, torch.float32) < math.inf
    assert gamma(2**53) == math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constants_are_those_of_the_formats(dtype: torch.dtype) -> None:
    assert torch.finfo(dtype).eps / 2 == UNIT_ROUNDOFF[dtype]
    assert torch.finfo(dtype).tiny == SMALLEST_NORMAL[dtype]


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize(
    ("setting", "ieee"), [("highest", True), ("high", False), ("medium", False)]
)
def test_reduced_precision_products_are_told(setting: str, ieee: bool) -> None:
    torch.set_float32_matmul_precision(setting)
    assert float32_products_are_ieee(torch.device("cpu")) is ieee
