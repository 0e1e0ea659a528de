"""A class proven at another's point keeps that witness, whatever its own later try gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.independent import check_proofs
from unarg_callback import OutputLayer, verify
from unarg_callback.search import reflect


@pytest.mark.parametrize("seed", range(8))
def test_a_failed_try_does_not_replace_a_witness(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflect, "_SWEEP", 16)
    weight = np.random.default_rng(seed).normal(size=(200, 4))
    check_proofs(vars(verify(OutputLayer(weight)).proofs), weight, None)
