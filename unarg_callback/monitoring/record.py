"""One check in numbers, as it is logged, kept and saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class CheckRecord:
    """One check in numbers, all of them builtins.

    Args:
        step: optimizer steps taken when the layer was copied.
        classes: C, excluded ones included.
        argmaxable: classes with a witness.
        provable: classes proven unargmaxable.
        potential: classes that the approximate search left unproven.
        undecided: classes with no proof either way.
        excluded: classes that take no part.
        duplicates: classes that share row and bias with another.
        appeared: of the provable, those that weren't when last decided (at the first check: all).
        returned: argmaxable classes that were provably unargmaxable when last decided.
        reflections: steps that the search spent, over all classes.
        seconds: wall time.
        complete: False if a time limit cut the check short.
        due: step at which the check fell due; before ``step`` if it had to wait for its budget.
        warm: whether it started from the proofs of the check before.
        kept: witnesses settled by the bound on their lead's change.
        evaluated: witnesses tried again.
        recertified: certificates that hold with new weights over the rivals they had.
        searched: classes searched for a witness.
        solved: classes that came to the exact stage.
        oldest: most checks for which a class has been undecided.
        lost: classes argmaxable when last decided and provably unargmaxable now.
        forewarned: of these, how many the check before had listed as at risk.
        leads: quantiles of the relative leads of argmaxable classes.
        label_sets: of a multilabel head, numbers of the label sets that training has seen; see
            :meth:`LabelSetFinding.numbers`.
        attention: of the first head, numbers of the keys of each attention layer that is watched.
        skipped: why there was no check (all counts are then 0), or None.
    """

    step: int
    classes: int = 0
    argmaxable: int = 0
    provable: int = 0
    potential: int = 0
    undecided: int = 0
    excluded: int = 0
    duplicates: int = 0
    appeared: int = 0
    returned: int = 0
    reflections: int = 0
    seconds: float = 0.0
    complete: bool = True
    due: int = 0
    warm: bool = False
    kept: int = 0
    evaluated: int = 0
    recertified: int = 0
    searched: int = 0
    solved: int = 0
    oldest: int = 0
    lost: int = 0
    forewarned: int = 0
    leads: dict[str, float] = field(default_factory=dict)
    label_sets: dict[str, float] = field(default_factory=dict)
    attention: dict[str, dict[str, float]] = field(default_factory=dict)
    skipped: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CheckRecord:
        """Inverse of :meth:`to_dict`; unknown fields are left out, missing ones get defaults."""
        known = {key: values[key] for key in cls.__dataclass_fields__ if key in values}
        return cls(**known)
