"""Inputs that are observed: the domain that follows them, or leaves an assumed one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.loggers.logger import DummyLogger
from torch import nn

from tests.distributed.processes import in_processes
from tests.tiny_training import CLASSES, DIM, batches, seeded, trainer
from unarg_callback import UnargmaxabilityMonitor, verify
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.monitor import Monitor
from unarg_callback.monitoring.observation import Observation, observed_margin

pytestmark = pytest.mark.usefixtures("time_enough")


def layer(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(DIM, CLASSES)


@pytest.mark.parametrize("text", ["observed:0.5", "observed:x", "observed:inf", "observed:nan"])
def test_no_such_margin(text: str) -> None:
    with pytest.raises(UnargError, match="expected 'observed:<margin>'"):
        observed_margin(text)
    with pytest.raises(UnargError, match="expected 'observed:<margin>'"):
        Monitor(domain=text)


class TestTheDomainThatFollows:
    def test_it_is_the_box_of_what_was_observed(self) -> None:
        model = layer()
        monitor = Monitor(every_n_steps=1, domain="observed:2")
        assert not monitor.start(model).records
        model(torch.tensor([[-1.0, 0.0], [3.0, 0.5]]))
        assert monitor.step(model, 1).records[0].skipped is None
        report = monitor.last_report
        assert report is not None
        low, high = report.domain.bounds(DIM)
        np.testing.assert_allclose(low, [-3.0, -0.25])
        np.testing.assert_allclose(high, [5.0, 0.75])
        expected = verify(OutputLayer(model.weight, model.bias), report.domain)
        assert report.status.tolist() == expected.status.tolist()

    def test_it_grows_seldom_and_checks_stay_warm(self) -> None:
        model = layer()
        monitor = Monitor(every_n_steps=1, domain="observed", max_overhead=None)
        monitor.start(model)
        domains = []
        for step in range(1, 21):
            model(torch.full((4, DIM), 1.0 + 0.05 * step) * torch.tensor([1.0, -1.0]))
            model(torch.zeros(1, DIM))
            monitor.step(model, step)
            assert monitor.last_report is not None
            domains.append(monitor.last_report.domain)
        changes = sum(one != other for one, other in zip(domains, domains[1:], strict=False))
        assert 1 <= changes <= 4
        assert [record.warm for record in monitor.records] == [False] + [True] * 19
        expected = verify(OutputLayer(model.weight, model.bias), domains[-1])
        assert monitor.last_report is not None
        assert monitor.last_report.status.tolist() == expected.status.tolist()

    def test_a_resume_goes_on_with_it(self) -> None:
        model = layer()
        first = Monitor(every_n_steps=1, domain="observed")
        first.start(model)
        model(torch.tensor([[-1.0, 0.0], [3.0, 0.5]]))
        first.step(model, 1)
        buffer = io.BytesIO()
        torch.save(first.state_dict(), buffer)
        buffer.seek(0)
        first.close()
        second = Monitor(every_n_steps=1, domain="observed")
        second.load_state_dict(torch.load(buffer, weights_only=True))
        second.start(model, 1)
        second.step(model, 2)
        assert first.last_report is not None
        assert second.last_report is not None
        assert second.last_report.domain == first.last_report.domain
        assert second.records[-1].warm
        name = "output"
        since = [monitor.heads[name].provable_since for monitor in (first, second)]
        assert since[0] == since[1]

    def test_nothing_was_observed(self) -> None:
        model = layer()
        monitor = Monitor(every_n_steps=1, domain="observed")
        monitor.start(model)
        with pytest.warns(UserWarning, match="no call of the layer in training was seen"):
            monitor.step(model, 1)
        assert monitor.retired is not None

    def test_a_function_has_no_input(self) -> None:
        monitor = Monitor(lambda model: model.weight, domain="observed")
        with pytest.raises(UnargError, match="computed by a function, so its input can't be"):
            monitor.start(layer())

    def test_a_damaged_state_is_left_out(self) -> None:
        observation = Observation(1.5)
        with pytest.warns(UserWarning, match="activation range is left out"):
            observation.load_state_dict({"range": 3})
        assert observation.waits


class TestTheDomainThatWasAssumed:
    def test_one_warning_where_it_is_too_small(self) -> None:
        model = layer()
        monitor = Monitor(every_n_steps=1, domain="box:2", observe=True)
        monitor.start(model)
        model(torch.tensor([[1.0, -2.0]]))
        monitor.step(model, 1)
        model(torch.tensor([[1.0, -7.0]]))
        with pytest.warns(UserWarning, match="leave the domain box:-2,2 in 1 of 2 dim") as caught:
            monitor.step(model, 2)
        monitor.step(model, 3)
        assert len(caught) == 1
        assert monitor.activation_ranges["output"].tokens == 2

    def test_the_free_domain_is_never_too_small(self) -> None:
        observation = Observation(None)
        observation.range.update(torch.tensor([[1e30, 0.0]]))
        assert observation.left(Domain.of("free"), Ranks()) is None

    def test_hooks_are_gone_after_training(self) -> None:
        model = layer()
        monitor = Monitor(observe=True)
        monitor.start(model)
        assert len(model._forward_pre_hooks) == 1
        monitor.finish(model, 1)
        assert not model._forward_pre_hooks
        monitor.start(model)
        monitor.interrupt()
        assert not model._forward_pre_hooks


def test_a_real_training_and_its_table(tmp_path: Path) -> None:
    model = seeded()
    inputs: list[torch.Tensor] = []
    model.generator.register_forward_pre_hook(
        lambda module, x: inputs.append(x[0].detach()) if module.training else None
    )
    monitor = UnargmaxabilityMonitor(every_n_steps=5, domain="observed")
    trainer(tmp_path, monitor, logger=DummyLogger()).fit(model, batches(), batches(2))
    seen = monitor.activation_ranges["generator"]
    assert seen.tokens == 14 * 4
    table = seen.table9("tiny")
    assert (table.min, table.max) == (
        float(torch.cat(inputs).min()),
        float(torch.cat(inputs).max()),
    )
    assert "tiny" in str(table)
    assert [record.step for record in monitor.records] == [5, 10, 14]


def two_ranks() -> Any:
    model = layer()
    monitor = Monitor(every_n_steps=1, domain="observed:1")
    monitor.start(model)
    rank = monitor.ranks.rank
    model(torch.tensor([[rank * 10.0, 1.0], [0.0, -1.0 - rank]]))
    monitor.step(model, 1)
    report = monitor.last_report
    assert report is not None
    monitor.finish(model, 1)
    seen = monitor.activation_ranges["output"]
    return [bound.tolist() for bound in report.domain.bounds(DIM)], seen.tokens


def test_two_ranks_share_what_they_observe() -> None:
    for bounds, tokens in in_processes(two_ranks):
        assert bounds == [[0.0, -2.0], [10.0, 1.0]]
        assert tokens == 4
