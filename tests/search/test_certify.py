from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.search import Stage, status_of
from unarg_callback import Status
from unarg_callback.search.certify import BoxCertifier, FreeCertifier, certifier_of

CROSS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0], [0.2, 0.1]])
SUPPORT = torch.tensor([[0, 1, 2, 3]])


@pytest.mark.parametrize("domain", ["box:1", "free"])
def test_offers_are_answered_in_order(domain: str) -> None:
    stage = Stage.of(CROSS, domain=domain)
    certifier = certifier_of(stage.checker, stage.frame)
    targets = torch.tensor([4, 0, 4])
    supports = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 0, 1]])
    weights = torch.tensor([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.25] * 4]).double()
    first, second, third = certifier.offer(targets, supports, weights)
    assert second is None
    for outcome in (first, third):
        assert outcome is not None
        assert outcome.target == 4
        assert status_of(stage, outcome) == Status.UNARGMAXABLE
        assert outcome.weight is not None
        assert (outcome.weight > 0).all()
        assert outcome.weight.sum() == pytest.approx(1.0)


def test_the_domain_decides_who_certifies() -> None:
    box, free = Stage.of(CROSS), Stage.of(CROSS, domain="free")
    assert isinstance(certifier_of(box.checker, box.frame), BoxCertifier)
    assert isinstance(certifier_of(free.checker, free.frame), FreeCertifier)


def test_a_box_certificate_leaves_out_rivals_without_weight() -> None:
    stage = Stage.of(CROSS, domain="box:1")
    (found,) = BoxCertifier(stage.checker).offer(
        torch.tensor([4]), SUPPORT, torch.tensor([[0.0, 0.0, 0.5, 0.5]]).double()
    )
    assert found is not None
    assert found.support is not None
    assert found.support.tolist() == [2, 3]
    assert 0.0 <= found.lead < 1e-9


def test_free_weights_need_only_name_the_rivals() -> None:
    stage = Stage.of(CROSS, domain="free")
    certifier = FreeCertifier(stage.checker, stage.frame)
    (found,) = certifier.offer(
        torch.tensor([5]), SUPPORT, torch.tensor([[0.9, 0.01, 0.01, 0.08]]).double()
    )
    assert found is not None
    assert status_of(stage, found) == Status.UNARGMAXABLE
    (lost,) = certifier.offer(
        torch.tensor([5]), SUPPORT, torch.tensor([[0.0, 0.5, 0.0, 0.5]]).double()
    )
    assert lost is None
