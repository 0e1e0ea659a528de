"""Classes masked by their bias: out of reach themselves, and no matter for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.independent import check_proofs
from unarg_callback import Domain, IncrementalVerifier, OutputLayer, Report, Status, verify
from unarg_callback.geometry.checker import Checker

MASKS = (-1e4, -1e9, -1e12, float(np.finfo(np.float32).min), -1e300)
DOMAINS = ("box:100", "box:-1,3", "nonnegative:10")


def layer(
    seed: int, dim: int = 8, classes: int = 60, kind: Any = np.float32
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(classes, dim)).astype(kind)
    return weight, (0.3 * rng.normal(size=classes)).astype(np.float64)


def without(weight: Any, bias: Any, masked: list[int], domain: str) -> Report:
    return verify(OutputLayer(weight, bias, excluded=masked), domain)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("mask", MASKS)
def test_the_others_have_the_verdicts_that_they_have_without_them(
    mask: float, domain: str, tmp_path: Path
) -> None:
    weight, bias = layer(0)
    masked = [3, 17, 18]
    expected = without(weight, bias, masked, domain)
    bias[masked] = [mask, mask * 1.5, mask]
    report = verify(OutputLayer(weight, bias), domain)
    others = np.setdiff1d(np.arange(60), masked)
    assert (report.status[others] == expected.status[others]).all()
    assert (report.status[masked] == Status.UNARGMAXABLE).all()
    assert not any("lead somewhere" in note for note in report.notes)
    summary = check_proofs(report.save_proofs(tmp_path / "proofs.npz"), weight, bias)
    assert (summary.argmaxable, summary.unargmaxable, summary.undecided) == (
        report.counts["argmaxable"],
        report.counts["unargmaxable"],
        0,
    )


def test_half_of_the_classes_masked() -> None:
    weight, bias = layer(1, dim=4)
    masked = list(range(0, 60, 2))
    expected = without(weight, bias, masked, "box:100")
    bias[masked] = -1e30
    report = verify(OutputLayer(weight, bias))
    assert (report.status[1::2] == expected.status[1::2]).all()
    assert (report.status[masked] == Status.UNARGMAXABLE).all()
    # Read off, not searched for.
    assert not report.reflections[masked].any()
    assert len(set(report.rival[masked].tolist())) == 1


def test_a_class_that_is_always_first() -> None:
    weight, bias = layer(2)
    bias[5] = 1e12
    report = verify(OutputLayer(weight, bias))
    assert report.counts["argmaxable"] == 1
    assert report.ids(Status.ARGMAXABLE).tolist() == [5]
    assert report.counts["undecided"] == 0


@settings(deadline=None, print_blob=True, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(2, 30),
    st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 1e3]),
    st.sampled_from([1e-3, 1.0, 1e2, 1e6, 1e15, 1e38]),
    st.sampled_from(DOMAINS),
)
def test_raised_biases_are_below_all_leads_that_matter(
    seed: int, dim: int, classes: int, size: float, mask: float, domain: str
) -> None:
    """No class whose bias is raised can lead, raised or not; no lead is larger than it is."""
    rng = np.random.default_rng(seed)
    weight = size * rng.normal(size=(classes, dim)) + rng.choice([0.0, 5.0])
    bias = size * rng.normal(size=classes) - mask * (rng.random(classes) < 0.4)
    checker = Checker(OutputLayer(weight, bias), Domain.parse(domain))
    sweep = checker.double
    stands = torch.from_numpy(bias)
    counted = sweep.biases(slice(None)) * sweep.unit + sweep.bias_middle
    scale = float(stands.abs().amax())
    assert (counted >= stands - 1e-15 * scale).all()
    raised = (counted > stands + 1e-12 * scale).nonzero().squeeze(1)
    assert int(stands.argmax()) not in raised.tolist()
    low, high = checker.low, checker.high
    points = low + (high - low) * torch.rand(200, dim, generator=torch.manual_seed(0)).double()
    logits = points @ torch.from_numpy(weight).T + counted
    assert not torch.isin(logits.argmax(1), raised).any()


def test_an_explicit_min_lead_counts_for_leads_over_masked_classes() -> None:
    weight = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.2]])
    bias = np.array([0.0, 0.0, -1e9])
    report = verify(OutputLayer(weight, bias), "box:1", min_lead=1.5)
    assert report.status.tolist() == [Status.ARGMAXABLE, Status.ARGMAXABLE, Status.UNARGMAXABLE]
    alone = np.array([[1.0, 0.0], [0.5, 0.2]])
    report = verify(OutputLayer(alone, bias[1:]), "box:1", min_lead=1e5)
    assert report.status.tolist() == [Status.ARGMAXABLE, Status.UNARGMAXABLE]


def test_masks_that_come_and_go_between_updates() -> None:
    weight, bias = layer(3)
    verifier = IncrementalVerifier("box:100")
    for masked in ([], [7], [7, 8, 9], [8], []):
        now = bias.copy()
        now[masked] = -1e12
        report = verifier.update(OutputLayer(weight, now))
        expected = verify(OutputLayer(weight, now))
        assert (report.status == expected.status).all()
        assert (report.status[masked] == Status.UNARGMAXABLE).all()


def test_a_row_far_larger_than_all_others_is_told_of() -> None:
    weight, bias = layer(4)
    weight[3] *= 1e10
    report = verify(OutputLayer(weight, bias))
    assert report.counts["unargmaxable"] >= 50
    assert any("lead somewhere" in note for note in report.notes)
