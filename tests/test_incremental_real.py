"""IncrementalVerifier along real training runs: the verdicts of a cold check, each one proven."""

from __future__ import annotations

import numpy as np
import pytest

from tests.independent import check_proofs
from tests.shared_data import load_snapshot, needs_shared
from unarg_callback import IncrementalVerifier, OutputLayer, Report, Status, verify

pytestmark = needs_shared

SAMPLE = 400


def require_proven(report: Report, name: str, sample: int | None = None) -> None:
    """Proofs of a snapshot in exact arithmetic: all, or all certificates and some witnesses."""
    weight, bias = load_snapshot(name)
    proofs = dict(vars(report.proofs))
    if sample is not None:
        # A class left out as a target still counts as a rival, so only its proof is taken away.
        chosen = np.random.default_rng(0).choice(
            len(proofs["witness_class"]), min(sample, len(proofs["witness_class"])), replace=False
        )
        chosen.sort()
        status = proofs["status"].copy()
        status[np.delete(proofs["witness_class"], chosen)] = Status.UNDECIDED
        proofs["status"] = status
        proofs["witness"] = proofs["witness"][chosen]
        proofs["witness_class"] = proofs["witness_class"][chosen]
    summary = check_proofs(proofs, weight, bias)
    assert all(lead is not None and report.lead[t] <= lead for t, lead in summary.leads.items())
    assert all(report.lead[t] >= bound for t, bound in summary.bounds.items())


def follow(names: list[str], sample: int | None = None) -> list[Report]:
    """Check snapshots in order, each against a cold check."""
    verifier = IncrementalVerifier("box:100")
    reports = []
    for at, name in enumerate(names):
        layer = OutputLayer(*load_snapshot(name))
        report, cold = verifier.update(layer), verify(layer)
        assert report.reuse.warm == (at > 0)
        assert report.complete
        assert report.min_lead == cold.min_lead
        np.testing.assert_array_equal(report.status, cold.status, name)
        np.testing.assert_array_equal(report.duplicate_of, cold.duplicate_of, name)
        assert report.counts["undecided"] == 0
        assert not report.age.any()
        require_proven(report, name, sample)
        reports.append(report)
    return reports


@pytest.mark.slow
def test_ru64_keeps_most_of_its_witnesses() -> None:
    before, after = follow(["ru64_550", "ru64_600"], SAMPLE)
    assert after.reuse.kept > 0.5 * after.classes
    assert before.counts["unargmaxable"] == after.counts["unargmaxable"] == 0


@pytest.mark.slow
def test_ru16_late_in_training() -> None:
    follow(["ru16_300", "ru16_400"], SAMPLE)


@pytest.mark.slow
def test_ru16_from_the_start() -> None:
    reports = follow([f"ru16_{step}" for step in (0, 100, 200, 300, 400)])
    assert [report.counts["unargmaxable"] for report in reports[:3]] == [742, 1077, 1103]


def test_an_unchanged_snapshot_costs_no_search() -> None:
    layer = OutputLayer(*load_snapshot("ru64_550"))
    verifier = IncrementalVerifier("box:100")
    first, again = verifier.update(layer), verifier.update(layer)
    assert again.reuse.kept == first.classes
    assert again.reuse.searched == again.reuse.solved == 0
    np.testing.assert_array_equal(again.status, first.status)
    require_proven(again, "ru64_550", SAMPLE)
