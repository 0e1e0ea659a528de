"""Names of heads and of the numbers that each check logs."""

from __future__ import annotations

import re

from unarg_callback.monitoring.record import CheckRecord

_MOST_OF_A_HEAD = 100


def head_name(path: str, name: str | None = None) -> str:
    """The head's part of each tag: the given name, or the attribute path, or "output".

    At most 100 characters, all of them letters, digits, or one of ``_ . / -``.

    >>> head_name("decoder.generator"), head_name("", None), head_name("", "target words")
    ('decoder.generator', 'output', 'target_words')
    """
    return re.sub(r"[^\w./-]+", "_", name or path).strip("/")[:_MOST_OF_A_HEAD] or "output"


def scalars(head: str, record: CheckRecord) -> dict[str, float]:
    """Values of one check by tag; none if it was skipped.

    The number of unargmaxable classes is from ``provable`` to ``at_most``.

    >>> values = scalars("generator", CheckRecord(step=10, classes=5, provable=2, undecided=1))
    >>> values["unarg/generator/provable"], values["unarg/generator/at_most"]
    (2.0, 3.0)
    """
    if record.skipped is not None:
        return {}
    return {
        f"unarg/{head}/potential": float(record.potential),
        f"unarg/{head}/provable": float(record.provable),
        f"unarg/{head}/undecided": float(record.undecided),
        f"unarg/{head}/at_most": float(record.provable + record.undecided),
        f"unarg/{head}/argmaxable": float(record.argmaxable),
        f"unarg/{head}/classes": float(record.classes),
        f"unarg/{head}/duplicates": float(record.duplicates),
        f"unarg_cost/{head}/seconds": record.seconds,
        f"unarg_cost/{head}/reflections": float(record.reflections),
        f"unarg_cost/{head}/reused": _reused(record),
        f"unarg_cost/{head}/late_steps": float(record.step - record.due),
        **{f"unarg_lead/{head}/{name}": value for name, value in record.leads.items()},
        **{_labels_tag(head, name): value for name, value in record.label_sets.items()},
        **{
            f"unarg_attention/{layer}/{name}": value
            for layer, numbers in record.attention.items()
            for name, value in numbers.items()
        },
    }


def _labels_tag(head: str, name: str) -> str:
    if name == "seconds":
        return f"unarg_cost/{head}/label_sets_seconds"
    return f"unarg_labels/{head}/{name}"


def _reused(record: CheckRecord) -> float:
    """Share of the classes settled by what the check before had proven."""
    checked = record.classes - record.excluded
    return (record.kept + record.recertified) / checked if checked else 0.0
