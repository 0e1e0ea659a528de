"""Put a report together from what the stages of a check have found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.geometry.evidence import Evidence
from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report, Reuse
from unarg_callback.search.reflect import reflect
from unarg_callback.search.stages import Stages

_LOOKED_AT = 256


def report_of(
    stages: Stages,
    evidence: Evidence,
    seconds: float,
    *,
    age: NDArray[Any] | None = None,
    reuse: Reuse | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """Return the report of one check, by class ids.

    Args:
        stages: what was found.
        evidence: the proofs of it.
        seconds: wall time.
        age: (A,) checks since each class was last decided.
        reuse: what was taken over from the last check.
        notes: sentences to stand before those about this check.
    """
    checker, layer = stages.checker, stages.checker.layer
    active, count = evidence.active, stages.count
    status = evidence.status
    undecided = status == Status.UNDECIDED
    rival = np.where(undecided, stages.state.rival.numpy(), -1)
    for target, outcome in stages.outcomes.items():
        if outcome.support is not None and outcome.weight is not None:
            rival[target] = outcome.support[outcome.weight.argmax()]
    ids = np.append(active, -1)  # -1 stays -1

    def by_id(values: NDArray[Any], fill: object) -> NDArray[Any]:
        everywhere = np.full(layer.classes, fill, dtype=values.dtype)
        everywhere[active] = values
        # The next update may answer with the same report.
        everywhere.setflags(write=False)
        return everywhere

    return Report(
        dim=layer.dim,
        domain=checker.domain,
        min_lead=checker.min_lead,
        scale=checker.logit_range,
        status=by_id(status, Status.EXCLUDED),
        lead=by_id(np.where(undecided, np.nan, evidence.lead), np.nan),
        measured=by_id(stages.measured.numpy(), True),
        reflections=by_id(stages.state.reflections.numpy(), 0),
        rival=by_id(ids[rival], -1),
        duplicate_of=by_id(ids[stages.twins.duplicate_of.numpy()], -1),
        potential=by_id(stages.potential.numpy(), False),
        age=by_id(np.zeros(count, np.int64) if age is None else age.astype(np.int64), 0),
        reuse=reuse or Reuse(),
        names=layer.names,
        evidence=evidence,
        seconds=seconds,
        complete=not (stages.limits.cut_short and undecided.any()),
        notes=(*notes, *_notes(stages, evidence)),
    )


def _notes(stages: Stages, evidence: Evidence) -> tuple[str, ...]:
    layer = stages.checker.layer
    notes = []
    close = _lead_by_too_little(stages, evidence)
    if close:
        notes.append(
            f"At least {close:,} of the unargmaxable classes lead somewhere, if by no more than "
            f"{stages.checker.min_lead:.3g}. Leads up to that count as ties: it is min_lead, by "
            "default 1e-9 of the range of the logits, which one class with far larger weights can "
            "make that large."
        )
    if len(layer.active) <= layer.dim:
        notes.append(
            f"No more classes ({len(layer.active)}) than features ({layer.dim}): all are "
            "argmaxable unless rows coincide or depend on each other."
        )
    if stages.limits.cut_short and len(stages.todo()):
        notes.append("The time limit ended the check; what it did not reach is undecided.")
    reasons = sorted(stages.reasons().items())
    notes += [f"{count:,} left undecided: {reason}." for reason, count in reasons]
    return tuple(notes)


def _lead_by_too_little(stages: Stages, evidence: Evidence) -> int:
    """How many unargmaxable classes are seen to lead, where some of them were tried last or next.

    What is counted is proven; there may be more.
    """
    checker = stages.checker
    out = torch.from_numpy(evidence.status == Status.UNARGMAXABLE)
    targets = out.nonzero().squeeze(1)
    targets = targets[:: max(1, len(targets) // _LOOKED_AT)]
    points = stages.state.point[targets.to(stages.state.point.device)]
    seen = torch.zeros_like(out)
    for turn in range(2):
        if not len(targets):
            break
        found = checker.witnesses(targets, points.double())
        seen[targets[(found.lead > 0).cpu()]] = True
        seen[found.rival[found.rival_lead > 0].cpu()] = True
        loses = found.rival >= 0
        targets, points = targets[loses.cpu()], points[loses]
        if turn == 0 and len(targets):
            own, rival = targets.to(points.device), found.rival[loses]
            points = checker.fit(reflect(checker, stages.frame, own, points, rival))
    return int((seen & out).sum())
