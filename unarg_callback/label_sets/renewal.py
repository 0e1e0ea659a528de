"""Start a check from the proofs of an earlier one."""

from __future__ import annotations

import numpy as np

from unarg_callback.label_sets import interior
from unarg_callback.label_sets.evidence import SetEvidence
from unarg_callback.label_sets.ledger import Ids, Ledger
from unarg_callback.label_sets.proof import Combination, SetStatus
from unarg_callback.label_sets.starts import reflect


def renew(ledger: Ledger, held: SetEvidence) -> tuple[int, int]:
    """Try what proved each set before, then what is near it.

    Witnesses are evaluated, and those that fail are moved by reflections; certificates are checked
    again, and those that fail are solved anew over the inequalities that they had.

    Args:
        ledger: takes what is proven.
        held: the earlier proofs; nothing in them is believed.

    Returns:
        How many sets have a witness, and a certificate, after that.
    """
    places = {row.tobytes(): at for at, row in enumerate(np.packbits(held.sets, axis=1))}
    before = np.array(
        [places.get(row.tobytes(), -1) for row in np.packbits(ledger.sets, axis=1)], dtype=np.int64
    )
    if not places:
        return 0, 0
    status = np.where(before >= 0, held.status[before], 0)
    known = np.flatnonzero((status == SetStatus.ATTAINABLE) & (ledger.status == 0))
    for start in range(0, len(known), ledger.batch):
        if not ledger.limits.reached():
            at = known[start : start + ledger.batch]
            reflect(ledger, at, held.points[before[at]])
    for sign in ledger.problem.signs:
        parts = [
            (int(at), part)
            for at in ledger.missing(sign)
            if (part := held.combinations.get((int(before[at]), sign))) is not None
        ]
        _certificates(ledger, sign, parts)
    seen = ledger.status[before >= 0]
    return int((seen == SetStatus.ATTAINABLE).sum()), int((seen == SetStatus.UNATTAINABLE).sum())


def _certificates(ledger: Ledger, sign: int, parts: list[tuple[int, Combination]]) -> None:
    for start in range(0, len(parts), ledger.batch):
        if ledger.limits.reached():
            return
        some = parts[start : start + ledger.batch]
        weights = np.zeros((len(some), ledger.problem.labels))
        for row, (_, part) in zip(weights, some, strict=True):
            row[part.support] = part.weight
        condition = np.array([part.sign_weight for _, part in some])
        at: Ids = np.array([one for one, _ in some], dtype=np.int64)
        accepted = ledger.offer_weights(at, sign, weights, condition)
        if ledger.problem.domain.is_free:
            continue
        failed = [part for part, good in zip(some, accepted, strict=True) if not good]
        ids = np.array([one for one, _ in failed], dtype=np.int64)
        interior.renew(ledger, sign, ids, [part.support for _, part in failed])
