"""What doesn't fit together is refused, with what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from unarg_callback.attention import KeysError, verify_keys

KEYS = np.eye(3)


@pytest.mark.parametrize(
    ("keys", "options", "told"),
    [
        (np.full((2, 2), np.nan), {}, "NaN or infinite"),
        (np.array([[np.inf, 0.0]]), {}, "NaN or infinite"),
        (np.zeros(3), {}, r"keys are torch.float64 of shape \(3,\); expected floating point in 2"),
        (np.zeros((2, 3, 4)), {}, "in 2 dimensions"),
        (np.zeros((2, 3), dtype=np.int64), {}, "keys are torch.int64"),
        (KEYS, {"allowed": np.ones((2, 4), dtype=np.bool_)}, r"shape \(2, 4\); expected bool"),
        (KEYS, {"allowed": np.ones(3, dtype=np.bool_)}, r"shape \(T, 3\)"),
        (KEYS, {"allowed": torch.zeros(3, 3)}, "allowed is float32"),
        (KEYS, {"direction": np.ones(2)}, r"direction has shape \(2,\).*expected \(3,\)"),
        (KEYS, {"direction": np.ones((1, 3))}, "direction are torch.float64"),
        (KEYS, {"direction": [1.0, np.nan, 0.0]}, "isn't finite"),
        (KEYS, {"direction": np.ones(3), "by_size": True}, "additive scores ranked by size"),
    ],
)
def test_refused(keys: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(KeysError, match=told):
        verify_keys(keys, **options)


def test_tensors_that_need_gradients_stay_as_they_are() -> None:
    keys = torch.randn(5, 2, requires_grad=True)
    before = keys.detach().clone()
    for direction in (None, torch.ones(2, requires_grad=True)):
        verify_keys(keys, torch.ones(5, 5).tril().bool(), direction=direction)
    assert keys.grad is None
    assert torch.equal(keys.detach(), before)
