from __future__ import annotations

import pytest
import torch

from tests.activations.maps import scores
from unarg_callback.activations import ParameterError, lambda_for_support, sparsegen
from unarg_callback.activations.transforms import Transform


def support(z: torch.Tensor, lambda_: torch.Tensor, g: Transform = "lin") -> torch.Tensor:
    return (sparsegen(z, lambda_, g=g) > 0).sum(-1)


@pytest.mark.parametrize("g", ["lin", "exp", "sq"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_every_number_is_reached(g: Transform, scale: float) -> None:
    z = scores(20, 9) * (min(scale, 3) if g == "exp" else scale)
    for k in range(1, 10):
        assert (support(z, lambda_for_support(z, k, g=g), g) == k).all(), k


def test_float32_and_wide_rows() -> None:
    z = scores(10, 2000, dtype=torch.float32)
    for k in (1, 10, 500):
        assert (support(z, lambda_for_support(z, k)) == k).all()


def test_equal_scores_come_and_go_together() -> None:
    z = torch.tensor([[3.0, 2.0, 2.0, 1.0], [5.0, 5.0, 5.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    found = [support(z, lambda_for_support(z, k)).tolist() for k in (1, 2, 3, 4)]
    assert found == [[1, 3, 4], [1, 3, 4], [3, 3, 4], [4, 4, 4]]


def test_masks_and_dimensions() -> None:
    z = scores(4, 6)
    mask = torch.tensor([True, False, True, True, False, True])
    for k in (1, 3, 6):
        lambda_ = lambda_for_support(z, k, mask=mask)
        p = sparsegen(z, lambda_, mask=mask)
        assert ((p > 0).sum(1) == min(k, 4)).all()
        down = lambda_for_support(z.T, k, dim=0, mask=mask[:, None])
        torch.testing.assert_close(down.T, lambda_)


def test_supports_are_nested_as_lambda_grows() -> None:
    z = scores(100, 8)
    before = torch.ones_like(z, dtype=torch.bool)
    for lambda_ in (-50.0, -5.0, 0.0, 0.5, 0.9, 0.99):
        now = sparsegen(z, lambda_) > 0
        assert (before | ~now).all()
        before = now


@pytest.mark.parametrize("k", [0, 5, -1])
def test_k_out_of_range_is_an_error(k: int) -> None:
    with pytest.raises(ParameterError, match="expected 1 to 4"):
        lambda_for_support(scores(4), k)
