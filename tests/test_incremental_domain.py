"""A domain that changes between updates: every proof is tried again, and none is believed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.layer_updates import DOMAINS, Drift, domain_of, drift
from tests.test_incremental import require_same, require_sound, stored
from unarg_callback import (
    Domain,
    DomainError,
    IncrementalVerifier,
    OutputLayer,
    Report,
    Status,
    verify,
)
from unarg_callback.search import renewal

NOTE = "The proofs were for another domain and were tried again."
DIM = 4


def crowded(seed: int, **options: Any) -> Drift:
    updates = ["small steps", "same"]
    return drift(seed, "box:100", "crowded", updates, classes=100, dim=DIM, **options)


def require_right(report: Report, sequence: Drift, at: int, domain: Domain | str) -> None:
    step = sequence.steps[at]
    where = f"step {at} of {sequence} in {domain}"
    require_sound(report, step, where)
    require_same(report, verify(step.layer(), domain, **sequence.options), step, where)


@pytest.mark.parametrize("after", DOMAINS)
@pytest.mark.parametrize("before", DOMAINS)
def test_from_any_domain_to_any_other(before: str, after: str) -> None:
    for seed, dtype in enumerate((torch.float32, torch.float64)):
        options: dict[str, Any] = {"sweep_dtype": dtype}
        sequence = crowded(seed, excluded=7 * seed, options=options)
        verifier = IncrementalVerifier(domain_of(before, DIM), **options)
        verifier.update(sequence.steps[0].layer())
        then = domain_of(after, DIM)
        for at in (1, 2):
            report = verifier.update(sequence.steps[at].layer(), domain=then if at == 1 else None)
            assert report.reuse.warm
            assert (NOTE in report.notes) == (at == 1 and before != after)
            assert verifier.domain == Domain.of(then)
            require_right(report, sequence, at, then)


def test_a_box_that_grows_on_one_layer_keeps_its_witnesses() -> None:
    # At a bias of the rows' size a larger box has more argmaxable classes.
    sequence = crowded(3)
    layer = sequence.steps[0].layer()
    verifier = IncrementalVerifier(1.0)
    sizes = [1.0, 1.3, 2.0, 20.0, 20.0, 3.0, 0.2]
    argmaxable: list[int] = []
    for at, size in enumerate(sizes):
        report = verifier.update(layer, domain=size)
        require_right(report, sequence, 0, Domain.box(size))
        assert report.reuse.warm is bool(at)
        assert (NOTE in report.notes) is (at > 0 and size != sizes[at - 1])
        if at in (1, 2, 3):
            assert report.reuse.evaluated >= argmaxable[-1]
            assert report.reuse.searched <= 100 - argmaxable[-1] - report.reuse.recertified
        argmaxable.append(report.counts["argmaxable"])
    assert argmaxable[0] < argmaxable[3]
    assert argmaxable[6] < argmaxable[3]


@pytest.mark.parametrize("after", ["nonnegative:50", "box:100", "free", "box:-1,3"])
def test_a_saved_state_of_another_domain_is_tried(after: str) -> None:
    sequence = crowded(5)
    first = IncrementalVerifier("box:20")
    first.update(sequence.steps[0].layer())
    verifier = IncrementalVerifier(after)
    verifier.load_state_dict(stored(first.state_dict()))
    assert str(verifier.domain) == str(Domain.parse(after))
    # What was loaded can be saved as it came.
    again = IncrementalVerifier(after)
    again.load_state_dict(stored(verifier.state_dict()))
    for one in (verifier, again):
        report = one.update(sequence.steps[1].layer())
        assert report.reuse.warm
        assert report.notes[0] == NOTE
        require_right(report, sequence, 1, after)
        assert NOTE not in one.update(sequence.steps[1].layer()).notes
    back = IncrementalVerifier("box:20")
    back.load_state_dict(first.state_dict())
    assert NOTE not in back.update(sequence.steps[0].layer()).notes


def test_witnesses_kept_in_full_move_into_a_smaller_box() -> None:
    sequence = crowded(6)
    verifier = IncrementalVerifier("box:100", deepen=50, sweep_dtype=torch.float64)
    report = verifier.update(sequence.steps[0].layer())
    assert report.evidence.points.full.dtype == torch.float64
    assert len(report.evidence.points.odd) > 5
    for dtype in (torch.float64, torch.float32):
        other = IncrementalVerifier("box:100", sweep_dtype=dtype)
        other.load_state_dict(verifier.state_dict())
        for domain in (Domain.box(7.0), Domain.box([0.0, -3.0, 1.0, -100.0], [1.0, 4.0, 1.0, 100])):
            report = other.update(sequence.steps[0].layer(), domain=domain)
            require_right(report, sequence, 0, domain)


@pytest.mark.parametrize("after", ["box:3", "free", "nonnegative:50"])
def test_without_any_time_nothing_is_wrong_and_all_is_done_in_the_end(
    after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "_SLICE", 16)
    sequence = crowded(7)
    layer = sequence.steps[0].layer()
    verifier = IncrementalVerifier("box:100")
    verifier.update(layer)
    cold = verify(layer, after)
    checks = 0
    undecided = np.ones(100, dtype=bool)
    while undecided.any() and checks < 100:
        report = verifier.update(layer, time_limit=0.0, domain=after)
        require_sound(report, sequence.steps[0])
        undecided = report.status == Status.UNDECIDED
        assert (report.status == cold.status)[~undecided].all()
        checks += 1
    assert checks > 1
    np.testing.assert_array_equal(report.status, cold.status)


def test_a_failed_update_leaves_the_domain_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    sequence = crowded(8)
    layer = sequence.steps[0].layer()
    verifier = IncrementalVerifier("box:100")
    with pytest.raises(DomainError):
        verifier.update(layer, domain="ball:3")
    with pytest.raises(DomainError):
        verifier.update(layer, domain=[1.0, 2.0])
    assert str(verifier.domain) == "box:-100,100"
    first = verifier.update(layer)
    for bad in ("ball:3", [1.0, 2.0]):
        with pytest.raises(DomainError):
            verifier.update(layer, domain=bad)

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    for what in ("report_of", "Held", "Renewal"):
        with monkeypatch.context() as patch:
            patch.setattr(f"unarg_callback.incremental.{what}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                verifier.update(layer, domain="box:2")
        assert verifier.last_report is first
        assert str(verifier.domain) == "box:-100,100"
    assert verifier.update(layer).reuse.searched == 0


def test_a_reset_keeps_the_domain() -> None:
    layer = OutputLayer(torch.eye(3))
    verifier = IncrementalVerifier("box:5")
    verifier.update(layer, domain="box:6")
    verifier.reset()
    assert str(verifier.domain) == "box:-6,6"
    verifier.update(layer)
    verifier.load_state_dict({})
    report = verifier.update(layer)
    assert str(report.domain) == "box:-6,6"
    assert not report.reuse.warm
    assert not report.notes or NOTE not in report.notes


def test_the_same_domain_in_another_form_changes_nothing() -> None:
    layer = crowded(9).steps[0].layer()
    verifier = IncrementalVerifier("box:100")
    first = verifier.update(layer)
    report = verifier.update(layer, domain=Domain.box([100.0] * DIM))
    assert report.reuse.kept == first.counts["argmaxable"]
    assert report.notes == first.notes
