"""Charts of a run: TensorBoard's custom layout, and the distribution of the leads."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unarg_callback.geometry.proof import Status
from unarg_callback.report import Report

BANDS = "unargmaxable classes: proven, and at most"
"""The category that holds the bands of all heads."""

_KEYS = ("keys", "never_first", "undecided")

LOWEST_EXPONENT = -10
"""Relative leads below ten to this power count as that; ``min_lead`` is above it by default."""

LEAD_EDGES: NDArray[np.float64] = np.linspace(LOWEST_EXPONENT, 0, 20 * -LOWEST_EXPONENT + 1)
"""Bins of the histogram of leads, in powers of ten: twenty a decade."""
LEAD_EDGES.flags.writeable = False


KEYS = "attention: keys that no query can put first"
"""The category of all attention layers."""


def layout(
    heads: Sequence[str], sets: Sequence[str] = (), attention: Sequence[str] = ()
) -> dict[str, dict[str, list[object]]]:
    """One layout for all heads of a run, fit for ``SummaryWriter.add_custom_scalars``.

    First come the bands of all heads: the number of unargmaxable classes lies between those that
    are proven, which is the line, and these together with the undecided. Then each head has a
    category of its own.

    Of the layouts that a run was given TensorBoard shows the last, so each has to hold all heads.

    Args:
        heads: the head's part of each tag.
        sets: of these, the heads whose label sets are checked.
        attention: the attention layers' part of each tag.

    >>> list(layout(["generator"]))
    ['unargmaxable classes: proven, and at most', 'unarg: generator']
    """
    bands: dict[str, list[object]] = {head: _band(head) for head in heads}
    charts = {f"unarg: {head}": _charts(head, head in sets) for head in heads}
    keys = {layer: _lines([f"unarg_attention/{layer}/{n}" for n in _KEYS]) for layer in attention}
    return {BANDS: bands, **charts, **({KEYS: keys} if keys else {})}


def distribution_tag(head: str) -> str:
    """Tag of the histogram of leads, in powers of ten."""
    return f"unarg_lead/{head}/log10"


def lead_exponents(report: Report) -> NDArray[np.float64]:
    """log10 of the leads of the argmaxable classes relative to the range of the logits.

    Leads spread over many orders of magnitude, and it is the low ones that matter.

    Args:
        report: what a check found.

    Returns:
        One value for each class with a known lead, from -10 to 0; none in the free domain, where
        logits have no range.
    """
    if not (math.isfinite(report.scale) and report.scale > 0):
        return np.empty(0)
    leads = report.lead[report.status == Status.ARGMAXABLE] / report.scale
    leads = leads[np.isfinite(leads)]
    return np.log10(np.clip(leads, 10.0**LOWEST_EXPONENT, 1.0))


def _band(head: str) -> list[object]:
    # TensorBoard takes the three tags of a band as they are, those of lines as patterns.
    return ["Margin", [f"unarg/{head}/{name}" for name in ("provable", "provable", "at_most")]]


def _charts(head: str, sets: bool) -> dict[str, list[object]]:
    counts = [f"unarg/{head}/{name}" for name in ("potential", "provable", "undecided")]
    leads = [f"unarg_lead/{head}/{name}" for name in ("min", "p01", "p10", "p50")]
    reach = [f"unarg_labels/{head}/{name}" for name in ("seen", "out_of_reach", "undecided")]
    return {
        "potential, provable, undecided": _lines(counts),
        **({"label sets: seen, out of reach, undecided": _lines(reach)} if sets else {}),
        "leads / range of the logits: min, p01, p10, p50": _lines(leads),
        # Each has its own unit.
        "share of classes reused": _lines([f"unarg_cost/{head}/reused"]),
        "seconds a check": _lines([f"unarg_cost/{head}/seconds"]),
        "steps too late": _lines([f"unarg_cost/{head}/late_steps"]),
    }


def _lines(tags: Sequence[str]) -> list[object]:
    return ["Multiline", [f"{re.escape(tag)}$" for tag in tags]]
