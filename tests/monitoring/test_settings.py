"""What a user may say about one head or several."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from unarg_callback.errors import UnargError
from unarg_callback.monitoring.settings import excluded_ids, for_head, head_choices


def test_one_head() -> None:
    module = nn.Linear(2, 3)
    assert head_choices(None, None) == [(None, None)]
    assert head_choices("decoder.out", "words") == [("words", "decoder.out")]
    assert head_choices(module, None) == [(None, module)]
    assert head_choices(len, None) == [(None, len)]


def test_several_heads() -> None:
    assert head_choices(["a", "b.c"], None) == [(None, "a"), (None, "b.c")]
    module = nn.Linear(2, 3)
    assert head_choices({"x": "a", "y": module}, None) == [("x", "a"), ("y", module)]


@pytest.mark.parametrize(
    ("layer", "name", "told"),
    [
        (3, None, "layer is 3; expected an attribute path"),
        ([], None, "layer is empty"),
        ({}, None, "layer is empty"),
        ({1: "a"}, None, "the key 1"),
        (["a", 2], None, "layer is 2"),
        ({"x": "a"}, "y", "several heads"),
        ("a", 7, "name is 7"),
    ],
)
def test_what_is_refused(layer: Any, name: Any, told: str) -> None:
    with pytest.raises(UnargError, match=told):
        head_choices(layer, name)


def test_settings_by_head() -> None:
    keys = ["x", "y"]
    assert for_head("domain", "free", "x", keys) == "free"
    assert for_head("domain", {"x": "free"}, "x", keys) == "free"
    assert for_head("domain", {"x": "free"}, "y", keys) is None
    with pytest.raises(UnargError, match=r"labels has the key 'z', which is no head.* x, y"):
        for_head("labels", {"z": []}, "x", keys)
    with pytest.raises(UnargError, match="the only head has no name"):
        for_head("labels", {"z": []}, None, [None])


def test_excluded() -> None:
    assert excluded_ids(None) == ()
    assert excluded_ids(3) == (3,)
    assert excluded_ids([4, 5]) == (4, 5)
    assert excluded_ids("1,3-5") == (1, 3, 4, 5)
