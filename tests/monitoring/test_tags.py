"""Tags, and the values that each check logs."""

from __future__ import annotations

import pytest

from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.monitoring.tags import head_name, scalars


def test_tags_and_values() -> None:
    record = CheckRecord(
        step=3,
        classes=9,
        argmaxable=4,
        potential=4,
        provable=3,
        undecided=1,
        duplicates=2,
        seconds=0.25,
        reflections=40,
        due=1,
        kept=5,
        recertified=1,
        excluded=1,
        leads={"min": 0.125},
    )
    assert scalars("generator", record) == {
        "unarg/generator/potential": 4.0,
        "unarg/generator/provable": 3.0,
        "unarg/generator/undecided": 1.0,
        "unarg/generator/at_most": 4.0,
        "unarg/generator/argmaxable": 4.0,
        "unarg/generator/classes": 9.0,
        "unarg/generator/duplicates": 2.0,
        "unarg_cost/generator/seconds": 0.25,
        "unarg_cost/generator/reflections": 40.0,
        "unarg_cost/generator/reused": 0.75,
        "unarg_cost/generator/late_steps": 2.0,
        "unarg_lead/generator/min": 0.125,
    }


def test_a_skipped_check_has_no_values() -> None:
    assert scalars("generator", CheckRecord(step=3, skipped="NaN")) == {}


@pytest.mark.parametrize(
    ("path", "name", "head"),
    [
        ("decoder.generator", None, "decoder.generator"),
        ("", None, "output"),
        ("x", "target words", "target_words"),
        ("x", "a/b", "a/b"),
        ("x", "/", "output"),
        ("x", "h" * 10_000, "h" * 100),
        ("x", "a\u202e|<b>\n\u0301", "a_b_"),
    ],
)
def test_head_name(path: str, name: str | None, head: str) -> None:
    assert head_name(path, name) == head
