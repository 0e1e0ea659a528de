from __future__ import annotations

import math

import pytest
import torch

from tests.activations.maps import CASES, inside, scores
from unarg_callback.activations import ScoresError, sparsegen, sparsehourglass, sparsemax

MASK = torch.tensor([True, False, True, True, False, True])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("garbage", [0.0, 1e30, math.inf, -math.inf, math.nan])
def test_a_mask_is_the_map_of_what_is_left(name: str, garbage: float) -> None:
    left = inside(name, 4, 4, seed=2)
    z = torch.full((4, 6), garbage, dtype=torch.float64)
    z[:, MASK] = left
    z.requires_grad_()
    p = CASES[name].run(z, mask=MASK)
    torch.testing.assert_close(p[:, MASK], CASES[name].run(left))
    assert (p[:, ~MASK] == 0).all()
    p.square().sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert (z.grad[:, ~MASK] == 0).all()


@pytest.mark.parametrize("name", CASES)
def test_masks_broadcast_and_differ_by_row(name: str) -> None:
    z = inside(name, 3, 2, 6).abs() + 0.1
    mask = torch.ones(3, 1, 6, dtype=torch.bool).tril()
    mask[0] = True
    p = CASES[name].run(z, mask=mask)
    for i in range(3):
        row = mask[i, 0]
        torch.testing.assert_close(p[i][:, row], CASES[name].run(z[i][:, row]))
    torch.testing.assert_close(
        CASES[name].run(z.movedim(-1, 0), dim=0, mask=mask.movedim(-1, 0)).movedim(0, -1), p
    )


@pytest.mark.parametrize("name", CASES)
def test_a_row_without_classes_is_nan_and_spoils_no_other(name: str) -> None:
    z = inside(name, 2, 6).requires_grad_()
    mask = torch.stack([torch.zeros(6, dtype=torch.bool), MASK])
    p = CASES[name].run(z, mask=mask)
    assert p[0, MASK].isnan().all()
    p[1].square().sum().backward()
    assert z.grad is not None
    assert z.grad[1].isfinite().all()


def test_minus_infinity_masks_where_the_map_allows_it() -> None:
    z = torch.tensor([-1.0, -math.inf, -1.2])
    for lambda_ in (0.0, 0.3, torch.tensor([0.3])):
        masked = sparsegen(z, lambda_, mask=torch.tensor([True, False, True]))
        assert torch.equal(sparsegen(z, lambda_), masked)
    p = sparsegen(torch.tensor([-1.0, -math.inf]), g="exp")
    assert p.tolist() == pytest.approx([0.684, 0.316], abs=1e-3)
    assert sparsehourglass(z).isnan().all()


def test_half_precision_masks() -> None:
    z = scores(3, 6, dtype=torch.float16)
    assert (sparsemax(z, mask=MASK)[:, ~MASK] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask": torch.ones(6)}, "expected bool"),
        ({"mask": torch.ones(5, dtype=torch.bool)}, "doesn't broadcast"),
        ({"mask": torch.ones(2, 4, 6, dtype=torch.bool)}, "doesn't broadcast"),
        ({"dim": 2}, "has no|have 2 dimensions"),
        ({"z": torch.ones(4, 6, dtype=torch.int64)}, "floating point"),
    ],
)
def test_what_does_not_fit_is_said(arguments: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ScoresError, match=message):
        sparsemax(**{"z": scores(4, 6), **arguments})  # type: ignore[arg-type]
