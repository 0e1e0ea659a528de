"""Trained layers in two parts: the known counts, and every proof accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.distributed.processes import in_processes
from tests.distributed.row_layers import Answer, answer_of
from tests.independent import check_proofs
from tests.shared_data import load_layer, needs_shared
from unarg_callback import OutputLayer
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.distributed.row_evidence import joined_proofs
from unarg_callback.distributed.row_sharded import verify_rows

pytestmark = [needs_shared, pytest.mark.slow]


def parts_verified(name: str, domain: str) -> Answer:
    ranks = Ranks.join()
    weight, bias, names = load_layer(name)
    own = np.array_split(np.arange(len(weight)), ranks.size)[ranks.rank]
    layer = OutputLayer(weight[own], bias[own], names=[names[at] for at in own])
    answer = answer_of(verify_rows(layer, ranks, domain))
    ranks.close()
    return answer


@pytest.mark.parametrize(
    ("name", "domain", "unargmaxable"),
    [
        ("g2pm", "box:100", 226),
        ("g2pm", "free", 225),
        ("g2pm", "nonnegative:1000", 229),
        ("ppocrv4_rec_ch", "box:100", 202),
    ],
)
def test_trained_layers(name: str, domain: str, unargmaxable: int) -> None:
    answers = in_processes(parts_verified, name, domain)
    weight, bias, names = load_layer(name)
    summary = check_proofs(vars(joined_proofs([answer.proofs for answer in answers])), weight, bias)
    assert (summary.unargmaxable, summary.undecided) == (unargmaxable, 0)
    told: list[dict[str, Any]] = [answer.report for answer in answers]
    assert told[0]["names"] == told[1]["names"] == tuple(names)
    for one in told:
        assert one["complete"]
        assert np.array_equal(one["status"], told[0]["status"])
        assert int((one["status"] == 2).sum()) == unargmaxable
