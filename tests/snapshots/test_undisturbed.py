"""Whatever runs inside leaves global state as it was."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from unarg_callback.snapshots.undisturbed import undisturbed


def state(model: nn.Module) -> list[Any]:
    numbers: Any = np.random.get_state()
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        [numbers[0], numbers[1].tolist(), *numbers[2:]],
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        [torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda")],
        torch.is_autocast_cache_enabled(),
        [part.training for part in model.modules()],
    ]


def disturb(model: nn.Module) -> None:
    torch.manual_seed(1)
    random.random()
    np.random.standard_normal()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float64)
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_cache_enabled(False)
    model.train(not model.training)


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(fails: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    model[1].eval()
    before = state(model)
    try:
        with undisturbed(model):
            disturb(model)
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert state(model) == before


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_modes_that_were_on_stay_on(mode: Any) -> None:
    model = nn.Linear(2, 2)
    with mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = state(model)
        with undisturbed(model):
            disturb(model)
        assert state(model) == before


def test_inside_there_are_no_gradients_and_no_autocast() -> None:
    weight = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16), undisturbed():
        product = weight @ weight
    assert product.dtype == torch.float32
    assert not product.requires_grad


def test_it_nests() -> None:
    model = nn.Linear(2, 2)
    before = state(model)
    with undisturbed(model):
        with undisturbed():
            disturb(model)
        disturb(model)
    assert state(model) == before
