"""Every map against its definition, over sizes, scales, ties and precisions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.activations.maps import CASES, inside
from tests.activations.oracles import ORACLES, condition
from unarg_callback.activations import projection

SIZES = (1, 2, 7, 64, 1024, 5000, 50_000)
SCALES = (1e-5, 1e-2, 1.0, 1e2, 1e8)
UNIT = {torch.float64: 1e-13, torch.float32: 3e-7}


def assert_is_the_map(name: str, z: Tensor) -> None:
    """Values, sum, support and order of all rows."""
    p = CASES[name].run(z)
    assert p.dtype == z.dtype
    unit = UNIT[z.dtype]
    for row, found in zip(z.double().numpy(), p.double().numpy(), strict=True):
        wide = row.astype(np.longdouble)
        expected = ORACLES[name](wide)
        tolerance = unit * (1 + condition(name, wide))
        np.testing.assert_allclose(found, expected.astype(np.float64), rtol=0, atol=tolerance)
        # Softmax is PyTorch's, whose float32 loses digits over many classes.
        assert abs(found.sum() - 1) < unit * (len(row) / 100 if name == "softmax" else 10) + unit
        assert (found >= 0).all()
        # Rounding may decide at the border of the support alone.
        strange = (found > 0) != (expected > 0)
        assert (np.maximum(found, expected)[strange] < tolerance).all()
        if CASES[name].monotone:
            steps = np.diff(found[np.argsort(row, kind="stable")])
            assert (steps >= (0 if CASES[name].sparse else -unit)).all()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", CASES)
def test_definitions_in_both_precisions(name: str, scale: float) -> None:
    for classes in SIZES:
        z = inside(name, 2, classes, seed=classes) * scale
        for dtype in UNIT:
            assert_is_the_map(name, z.to(dtype))


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e8])
@pytest.mark.parametrize("name", CASES)
def test_ties(name: str, scale: float) -> None:
    """Scores of a few values, and of one: equal scores have equal probabilities."""
    for classes in (2, 5, 33, 3000):
        draw = torch.Generator().manual_seed(classes)
        z = (torch.randint(1, 5, (3, classes), generator=draw).double() / 4) * scale
        z[0] = scale
        for dtype in UNIT:
            assert_is_the_map(name, z.to(dtype))
            p = CASES[name].run(z.to(dtype))
            for row, found in zip(z, p, strict=True):
                for value in row.unique():
                    same = found[row == value]
                    torch.testing.assert_close(same, same[:1].expand_as(same))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.sparse])
def test_what_compilers_see_is_the_same_map(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They get the projection by sorting, eager mode gets Newton's."""
    for classes in (1, 2, 50, 3000):
        z = inside(name, 4, classes, seed=classes)
        fast = CASES[name].run(z)
        with monkeypatch.context() as patch:
            patch.setattr(projection, "is_recorded", lambda x: True)
            slow = CASES[name].run(z)
        torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
