"""Label sets of two ranks, each of which sees others: one union, one record, one end."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.processes import in_processes
from unarg_callback import Monitor
from unarg_callback.heads import MultilabelHead, SparseAttention
from unarg_callback.label_sets import verify_label_sets

LABELS = 6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.att = SparseAttention(2)
        self.head = MultilabelHead.named("sparsemax+huber", in_features=2, num_labels=LABELS)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        hidden, _ = self.att(x, x, x)
        loss: Tensor = self.head.loss(self.head(hidden[:, 0]), y)
        return loss


def batch(rank: int, step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(10 * rank + step)
    x, y = torch.randn(8, 3, 2, generator=draw), torch.rand(8, LABELS, generator=draw) < 0.4
    y[:, 0] = bool(rank)  # No set of one rank is one of the other.
    return x, y


def numbers(monitor: Monitor) -> list[Any]:
    return [
        (
            record.step,
            record.provable,
            {k: v for k, v in record.label_sets.items() if k != "seconds"},
            record.attention,
        )
        for record in monitor.heads["head"].records
    ]


def trained(options: dict[str, Any], steps: int = 3) -> dict[str, Any]:
    """The same steps on every rank, of other batches: the weights stay equal, as nobody learns."""
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    net = Net()
    monitor = Monitor(**{"every_n_steps": 1, "on_error": "raise", "max_overhead": None, **options})
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monitor.start(net)
        values = []
        for step in range(1, steps + 1):
            x, y = batch(rank, step)
            net.loss(x, y)
            monitor.see((x, y))
            values.append(dict(monitor.step(net, step).values))
        monitor.finish(net, steps)
        told = [str(warning.message) for warning in caught]
    found = monitor.label_sets.get("head")
    return {
        "records": numbers(monitor),
        "values": values,
        "retired": monitor.retired,
        "sets": None if found is None else (found.asked.sets, found.asked.times),
        "told": [text for text in told if "Unargmax" in text],
        "state": monitor.state_dict()["heads"]["head"].get("label_sets"),
        "hooks": sum(len(part._forward_pre_hooks) for part in net.modules()),
    }


def of_batch(given: Any) -> Any:
    return given[1]


def failing_on_one(given: Any) -> Any:
    if torch.distributed.get_rank() == 1 and bool((given[1] == batch(1, 2)[1]).all()):
        raise KeyError("only here")
    return given[1]


def test_the_union_is_checked_and_records_are_equal() -> None:
    sets = torch.cat([batch(rank, step)[1] for rank in range(2) for step in range(1, 4)])
    distinct, times = sets.unique(dim=0, return_counts=True)
    torch.manual_seed(0)
    expected = verify_label_sets(Net().head.label_head(), distinct).counts
    for options in ({"attention": True}, {"label_sets": of_batch}):
        first, second = in_processes(trained, options)
        assert first["records"] == second["records"]
        assert first["values"] == second["values"]
        assert first["told"] == second["told"] == []
        assert first["hooks"] == second["hooks"] == 0
        last = first["records"][-1][2]
        assert last["seen"] == len(distinct)
        assert last["out_of_reach"] == expected["unattainable"] > 0
        rows, counted = first["sets"]
        found = {tuple(row): int(n) for row, n in zip(rows.tolist(), counted, strict=True)}
        wanted = zip(distinct.tolist(), times.tolist(), strict=True)
        assert found == {tuple(row): n for row, n in wanted}
        # Either rank may be the one that saves.
        for state in (first["state"], second["state"]):
            assert int(state["seen"]["times"].sum()) == len(sets)
        if "attention" in options:
            assert first["records"][-1][3]["att"]["keys"] == 2 * 3


def test_a_function_that_fails_on_one_rank_retires_all() -> None:
    answers = in_processes(trained, {"label_sets": failing_on_one, "on_error": "warn"})
    first, second = answers
    assert "label_sets failed on a training batch: KeyError" in second["retired"]
    assert "rank 1 failed" in first["retired"]
    assert "KeyError: 'only here'" in first["retired"]
    steps = [[record[0] for record in answer["records"]] for answer in answers]
    assert steps == [[0, 1, 2], [0, 1, 2]]
    assert [answer["hooks"] for answer in answers] == [0, 0]


def failing_watch(options: dict[str, Any]) -> Any:
    """The first rank alone can't read its keys."""
    from unarg_callback.monitoring.attention_watch import AttentionWatch

    def broken(self: AttentionWatch) -> Any:
        raise MemoryError("no room")

    AttentionWatch.copy = broken  # type: ignore[method-assign]
    return trained(options)


@pytest.mark.slow
def test_keys_that_the_first_rank_cannot_copy_retire_all() -> None:
    answers = in_processes(failing_watch, {"attention": True, "on_error": "warn"})
    assert all("no room" in answer["retired"] for answer in answers)
    assert answers[0]["hooks"] == answers[1]["hooks"] == 0
