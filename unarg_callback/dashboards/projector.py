"""TensorBoard's projector: rows of W as points, coloured by what is known of their classes."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.dashboards.tables import since_step, visible
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.monitoring.finding import Finding
from unarg_callback.report import Report

MAX_POINTS = 10_000
"""Most classes shown; beyond it t-SNE in the browser takes a sample of its own."""

MAX_NUMBERS = 1_000_000
"""Most numbers written, some eight bytes each."""

COLUMNS = ("token", "class", "status", "since step", "beaten by")
"""What is told of each point; without names there is no token. TensorBoard labels the points by the
first of them that isn't numeric."""

_AT_RISK = "at risk"
_DIGITS = 5
_CONFIG = "projector_config.pbtxt"
_EMBEDDING = re.compile(r"^embeddings \{\n.*?^\}\n?", re.MULTILINE | re.DOTALL)
_LONGEST_TAG = 75
"""Each slash takes three characters in the folder's name, of which there may be 255."""


def projector_tag(head: str) -> str:
    """Name of the view: its own for each head, of bounded length.

    The projector asks for a view by its name without escaping it, and torch names a folder after
    it: only what is plain in both is kept.

    >>> projector_tag("decoder/generator")
    'unarg-decoder/generator'
    """
    plain = re.sub(r"[^A-Za-z0-9._/-]", "_", head)[:_LONGEST_TAG]
    if plain == head:
        return f"unarg-{head}"
    return f"unarg-{plain}-{hashlib.sha256(head.encode('utf-8', 'replace')).hexdigest()[:8]}"


def points(
    report: Report, at_risk: Iterable[int] = (), limit: int = MAX_POINTS
) -> NDArray[np.int64]:
    """Ids of the classes to show, ascending.

    The unargmaxable come first, then the undecided, then those at risk, then the other argmaxable
    classes; of a group that doesn't fit as many as do, evenly spaced. Excluded ones are left out.

    Args:
        report: what a check found.
        at_risk: ids of argmaxable classes that may soon be lost.
        limit: most classes.
    """
    risky = np.zeros(report.classes, bool)
    risky[list(at_risk)] = True
    argmaxable = report.status == Status.ARGMAXABLE
    groups = (
        report.status == Status.UNARGMAXABLE,
        report.status == Status.UNDECIDED,
        argmaxable & risky,
        argmaxable & ~risky,
    )
    chosen: list[NDArray[np.int64]] = []
    for group in groups:
        members, left = np.flatnonzero(group), limit - sum(map(len, chosen))
        if len(members) > left:
            members = members[np.arange(left) * len(members) // max(left, 1)]
        chosen.append(members)
    return np.sort(np.concatenate(chosen))


def write_projector(writer: Any, finding: Finding, layer: OutputLayer) -> int:
    """Show rows of W in the projector; the view of another head or writer in the run stays.

    At most 10,000 classes and a million numbers are written, to five digits of the largest: text of
    some 8 MB, which takes two or three seconds. That is for the end of a training.

    Args:
        writer: a ``SummaryWriter``.
        finding: of a check of this layer.
        layer: what was checked, of C classes and d features.

    Returns:
        How many classes are shown; none, and nothing is written, if the check was skipped.

    Raises:
        OSError: a file can't be written.
        ValueError: the layer has another number of classes than the report.
        Exception: whatever the writer raises.
    """
    report = finding.report
    if report is None:
        return 0
    if layer.classes != report.classes:
        raise ValueError(
            f"the layer has {layer.classes} classes and the report {report.classes}; "
            "expected the layer that was checked"
        )
    risky = [entry.index for entry in finding.at_risk]
    ids = points(report, risky, min(MAX_POINTS, max(MAX_NUMBERS // layer.dim, 1)))
    if not len(ids):
        return 0
    folder = getattr(writer, "log_dir", None)
    before = _read(folder)
    writer.add_embedding(
        _rounded(layer.weight[ids.tolist()].detach().double().cpu().numpy()),
        metadata=_metadata(finding, report, ids, set(risky)),
        metadata_header=list(COLUMNS if report.names is not None else COLUMNS[1:]),
        tag=projector_tag(finding.head),
        global_step=finding.record.step,
    )
    _restore(folder, before)
    return len(ids)


def _metadata(
    finding: Finding, report: Report, ids: NDArray[np.int64], risky: set[int]
) -> list[list[str]]:
    """A row of cells a class; no name can end a cell or a row."""
    rows = []
    for index in ids.tolist():
        status = Status(int(report.status[index])).name.lower()
        if index in risky and report.status[index] == Status.ARGMAXABLE:
            status = _AT_RISK
        since = since_step(finding, index)
        rival = int(report.duplicate_of[index])
        rival = rival if rival >= 0 else int(report.rival[index])
        beaten = since is not None and rival >= 0
        rows.append(
            [
                *([visible(report.name(index))] if report.names is not None else []),
                str(index),
                status,
                "-" if since is None else str(since),
                visible(report.name(rival)) if beaten else "-",
            ]
        )
    return rows


def _rounded(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers that are short as text."""
    largest = float(np.abs(rows).max(initial=0.0))
    if not 1e-30 < largest < 1e30:
        return rows
    places = _DIGITS - 1 - math.floor(math.log10(largest))
    return np.array(np.round(rows, places))


def _read(folder: object) -> str:
    """The run's list of views, as far as there is one."""
    if not isinstance(folder, str):
        return ""
    from tensorboard.compat import tf

    path = f"{folder}/{_CONFIG}"
    if not tf.io.gfile.exists(path):
        return ""
    with tf.io.gfile.GFile(path, "r") as file:
        return str(file.read())


def _restore(folder: object, before: str) -> None:
    """Put views back that the writer didn't know of: each lists only its own."""
    after = _read(folder)
    missing = [entry for entry in _EMBEDDING.findall(before) if entry.strip() not in after]
    if missing:
        from tensorboard.compat import tf

        with tf.io.gfile.GFile(f"{folder}/{_CONFIG}", "wb") as file:
            file.write("\n".join([*(entry.rstrip() for entry in missing), after]).encode())
