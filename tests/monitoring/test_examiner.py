"""Several heads, checked together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from unarg_callback.errors import UnargError
from unarg_callback.monitoring.budget import OverheadBudget
from unarg_callback.monitoring.copies import Copy, NoLayer, Rows
from unarg_callback.monitoring.examiner import Examiner
from unarg_callback.monitoring.head import Head
from unarg_callback.monitoring.head_monitor import HeadMonitor
from unarg_callback.monitoring.observation import Observation


def examiner(*heads: Head, share: float | None = None) -> Examiner:
    return Examiner(heads, OverheadBudget(share, credit=100.0), divided=True)


def head(path: str, **options: Any) -> Head:
    return Head(path, HeadMonitor("box:10"), **options)


def model() -> Any:
    torch.manual_seed(0)
    return nn.ModuleDict({"a": nn.Linear(2, 9), "b": nn.Linear(3, 12)})


def test_all_heads_in_order() -> None:
    both, net = examiner(head("a"), head("b")), model()
    both.open(net)
    found = both.examine(both.copy(net), 4, 3, limited=False)
    assert [(one.head, one.record.classes, one.record.due) for one in found] == [
        ("a", 9, 3),
        ("b", 12, 3),
    ]
    assert not both.unfinished
    assert both.budget.essential > 0


def test_two_heads_of_one_name() -> None:
    both = examiner(head("a"), head("b", name="a"))
    with pytest.raises(UnargError, match="two heads have the name 'a'"):
        both.open(model())


def test_one_that_can_not_be_copied_keeps_no_other_from_its_check() -> None:
    both, net = examiner(head("a"), head("b")), model()
    both.open(net)
    with torch.no_grad():
        net["a"].bias[0] = torch.inf
    found = both.examine(both.copy(net), 4, 4, limited=False)
    assert [one.record.skipped is None for one in found] == [False, True]


def test_what_is_left_undecided_is_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    one, net = examiner(head("b"), share=0.5), model()
    one.open(net)
    monkeypatch.setattr(OverheadBudget, "allowance", property(lambda _: 0.0))
    torch.manual_seed(1)
    net["b"] = nn.Linear(3, 40_000)
    one.examine(one.copy(net), 1, 1, limited=True)
    assert one.unfinished


def test_whether_it_waits_and_where_rows_are() -> None:
    assert not examiner(head("a")).waits
    assert not examiner(head("a", observation=Observation(None))).waits
    assert examiner(head("a"), head("b", observation=Observation(2.0))).waits
    assert Examiner.scattered([Copy(NoLayer("x")), Copy(Rows(None))])
    assert not Examiner.scattered([Copy(NoLayer("x"))])
