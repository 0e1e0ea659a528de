"""Keys under scaled dot products: key j is first for query q if ``q . k_j > q . k_i`` for all i.

That is the question about the classes of a layer without bias whose rows are the keys, and the
engine answers it. Without a bias the size of a query changes no order, so any box about 0 stands
for all of R^d.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.absolute import folded, mirrored
from unarg_callback.attention.report import KeyReport
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report
from unarg_callback.search.limits import Limits
from unarg_callback.verification import verify

_DOMAIN = "box:1"


def verify_dot(
    keys: Tensor, views: NDArray[np.bool_], *, by_size: bool, limits: Limits
) -> KeyReport:
    """Decide for each key whether some query puts it first.

    Where queries may see different keys, a key that can be first among some can be among any part
    of them, and one that can't be first among some can't be among more. So the largest views come
    first, for witnesses, and then for each open key the smallest that hold it, for certificates.

    Args:
        keys: (S, d).
        views: (V, S) bool, the different sets of keys that a query may see.
        by_size: whether scores are ranked by their size, of either sign.
        limits: when to stop.
    """
    checks: dict[bytes, tuple[NDArray[np.int64], Report]] = {}

    def check(view: NDArray[np.bool_]) -> Report | None:
        """The report on the keys of a view, or None where there is no time for it."""
        name = view.tobytes()
        if name not in checks and not limits.reached():
            members = np.flatnonzero(view)
            checks[name] = members, _verify(keys[torch.from_numpy(members)], by_size, limits)
        return checks[name][1] if name in checks else None

    status = np.full(views.shape[1], Status.UNDECIDED, dtype=np.int8)
    status[~views.any(0)] = Status.EXCLUDED
    for view in views[_ends(views, largest=True)]:
        _note_argmaxable(status, view, check(view))
    for j in np.flatnonzero(status == Status.UNDECIDED).tolist():
        holding = views[views[:, j]]
        proven = []
        for view in holding[_ends(holding, largest=False)]:
            report = check(view)
            _note_argmaxable(status, view, report)
            if status[j] == Status.ARGMAXABLE:
                break
            at = int(view[:j].sum())
            proven.append(report is not None and report.status[at] == Status.UNARGMAXABLE)
        if status[j] != Status.ARGMAXABLE and all(proven):
            status[j] = Status.UNARGMAXABLE
    complete = all(report.complete for _, report in checks.values()) and not limits.cut_short
    return KeyReport(status, complete, tuple(checks.values()))


def _verify(keys: Tensor, by_size: bool, limits: Limits) -> Report:
    layer = OutputLayer(keys)
    left = max(limits.remaining(), 1e-9) if limits.limited else None
    report = verify(mirrored(layer) if by_size else layer, _DOMAIN, time_limit=left)
    return folded(report, None) if by_size else report


def _note_argmaxable(
    status: NDArray[np.int8], view: NDArray[np.bool_], report: Report | None
) -> None:
    if report is not None:
        status[np.flatnonzero(view)[report.ids(Status.ARGMAXABLE)]] = Status.ARGMAXABLE


def _ends(views: NDArray[np.bool_], *, largest: bool) -> NDArray[np.int64]:
    """Positions of the views that no other holds (or, of the smallest, that hold no other)."""
    count = views.sum(1)
    order = np.argsort(-count if largest else count, kind="stable")
    kept: list[int] = []
    for at in order.tolist():
        held = (
            (views[at] <= views[one]).all() if largest else (views[one] <= views[at]).all()
            for one in kept
        )
        if not any(held):
            kept.append(at)
    return np.array(kept, dtype=np.int64)
