"""The checker shares no code with what it checks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.shared_data import load_layer, needs_shared
from unarg_callback import OutputLayer, verify
from unarg_callback.recheck import WrongProofError, check_proofs, examine
from unarg_callback.recheck.layer import ExactLayer


def test_nothing_of_the_package_but_its_errors_is_loaded() -> None:
    code = (
        "import sys, unarg_callback.recheck;"
        "print(*sorted(n for n in sys.modules if n.startswith(('unarg_callback', 'torch'))))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    own = [name for name in printed if not name.startswith("unarg_callback.recheck")]
    assert own == ["unarg_callback", "unarg_callback.errors"]


@needs_shared
@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_real_proofs_and_the_first_that_is_broken(domain: str) -> None:
    weight, bias, _ = load_layer("g2pm")
    arrays = {
        k: np.array(v) for k, v in vars(verify(OutputLayer(weight, bias), domain).proofs).items()
    }
    summary = check_proofs(arrays, weight, bias)
    assert summary.argmaxable + summary.unargmaxable == 876
    assert summary.unargmaxable in {225, 226}
    arrays["certificate_support"][-1] = arrays["witness_class"][0]
    arrays["witness"][1] = arrays["witness"][0]
    # What is left is enough, and free certificates take a while.
    keep = 2 if domain == "free" else 226
    drop = arrays["certificate_class"][:-keep]
    start = arrays["certificate_offsets"][-keep - 1]
    arrays["status"][drop] = 0
    arrays["certificate_class"] = arrays["certificate_class"][-keep:]
    arrays["certificate_offsets"] = arrays["certificate_offsets"][-keep - 1 :] - start
    for key in ("certificate_support", "certificate_weight"):
        arrays[key] = arrays[key][start:]
    wrong = examine(arrays, ExactLayer(weight, bias)).wrong
    assert set(wrong) == {int(arrays["witness_class"][1]), int(arrays["certificate_class"][-1])}
    with pytest.raises(WrongProofError, match="leads by -") as refused:
        check_proofs(arrays, weight, bias)
    assert refused.value.index == min(wrong)
