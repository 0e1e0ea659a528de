"""What a check of label sets found."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unarg_callback.geometry.domain import Domain
from unarg_callback.label_sets.evidence import SetEvidence
from unarg_callback.label_sets.proof import SetCertificate, SetStatus, SetWitness
from unarg_callback.report import printable


@dataclass(frozen=True)
class SetReuse:
    """What a check took over from the one before, in distinct sets.

    Args:
        warm: whether it started from earlier proofs.
        kept: witnesses that still are.
        recertified: certificates that still are, or are with new weights.
    """

    warm: bool = False
    kept: int = 0
    recertified: int = 0


@dataclass(frozen=True, eq=False)
class LabelSetReport:
    """The verdict on each label set, with the proof behind it.

    Args:
        rule: the rule, in words.
        dim: d, features of the head.
        domain: where the input may lie.
        min_margin: what a margin must exceed, in units of the logits.
        scale: what margins may be measured by; infinite in the free domain.
        evidence: proofs of the distinct sets.
        position: (n,) int64, which of the distinct sets each given one is.
        distinct_margin: (m,) float64, the margin of each distinct set.
        names: K label names or None.
        seconds: wall time of the check.
        complete: False if a time limit cut the check short.
        reuse: what was taken over from the check before.
        notes: what a reader should know besides, a sentence each.
    """

    rule: str
    dim: int
    domain: Domain
    min_margin: float
    scale: float
    evidence: SetEvidence
    position: NDArray[np.int64]
    distinct_margin: NDArray[np.float64]
    names: tuple[str, ...] | None
    seconds: float
    complete: bool
    reuse: SetReuse = field(default_factory=SetReuse)
    notes: tuple[str, ...] = ()

    @cached_property
    def status(self) -> NDArray[np.int8]:
        """(n,) values of :class:`SetStatus`, in the order in which the sets were given."""
        return self.evidence.status[self.position]

    @cached_property
    def margin(self) -> NDArray[np.float64]:
        """(n,) bounds on the best margin: from below where attainable, from above where not."""
        return self.distinct_margin[self.position]

    @property
    def distinct(self) -> int:
        """How many different sets were given."""
        return len(self.evidence.sets)

    @property
    def counts(self) -> dict[str, int]:
        """How many of the given sets have each status, and how many different ones there are."""
        found = {one.name.lower(): int((self.status == one).sum()) for one in SetStatus}
        different = np.bincount(self.evidence.status, minlength=len(SetStatus))
        return {
            **found,
            "distinct": self.distinct,
            **{f"distinct_{one.name.lower()}": int(different[one]) for one in SetStatus},
        }

    def proof_of(self, index: int) -> SetWitness | SetCertificate | None:
        """The proof of a given set, or None where it is undecided."""
        return self.evidence.proof(int(self.position[index]))

    def summary(self) -> str:
        """Two clauses: how many of what, and where the input may lie."""
        counts = self.counts
        cut = "" if self.complete else "; cut short by the time limit"
        return (
            f"{len(self.position):,} label sets ({self.distinct:,} different) of "
            f"{self.evidence.sets.shape[1]:,} labels x {self.dim} features, {self.rule}, "
            f"{self.domain}: {counts['attainable']:,} attainable, "
            f"{counts['unattainable']:,} provably out of reach, "
            f"{counts['undecided']:,} undecided{cut}"
        )

    def table(self, limit: int = 20) -> str:
        """Text for people: the summary, then a line for each set that isn't attainable.

        Args:
            limit: most lines, the sets that were given most often first.
        """
        times = np.bincount(self.position, minlength=self.distinct)
        shown = np.flatnonzero(self.evidence.status != SetStatus.ATTAINABLE)
        shown = shown[np.argsort(-times[shown], kind="stable")]
        lines = [self.summary(), *self.notes]
        if limit and len(shown):
            lines += ["", f"{'times':>7}  {'status':12}  {'best margin':>12}  labels"]
            lines += [self._line(int(at), int(times[at])) for at in shown[:limit]]
        if len(shown) > limit:
            lines.append(f"... and {len(shown) - limit:,} more")
        return "\n".join(lines)

    def _line(self, at: int, times: int) -> str:
        status = SetStatus(self.evidence.status[at])
        known = status == SetStatus.UNATTAINABLE
        margin = f"<= {self.distinct_margin[at]:.3g}" if known else "unknown"
        members = np.flatnonzero(self.evidence.sets[at]).tolist()
        named = [str(i) if self.names is None else printable(self.names[i], 16) for i in members]
        text = printable(", ".join(named) if named else "(none)", 60)
        return f"{times:>7,}  {status.name.lower():12}  {margin:>12}  {text}"
