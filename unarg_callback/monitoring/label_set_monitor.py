"""Check again and again which of the label sets of a training its head can't output."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.continuity import DAMAGED
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.label_sets import (
    IncrementalLabelSets,
    LabelHead,
    LabelSetReport,
    Rule,
    SetStatus,
    ThresholdRule,
)
from unarg_callback.label_sets.head import as_sets
from unarg_callback.monitoring.import_path import told
from unarg_callback.monitoring.seen_sets import SeenSets
from unarg_callback.monitoring.target_watch import TargetWatch, as_label_sets
from unarg_callback.monitoring.warn import warn

_NEAR = 1e-2
"""How far from 1 a distribution in low precision may sum."""


@dataclass(frozen=True, eq=False)
class AskedSets:
    """Label sets to check, as they were seen up to one step.

    Args:
        sets: (m, K) bool, all different.
        times: (m,) int64, rows with each.
        left_out: rows whose set isn't among them, as there were too many different ones.
        rule: how the head makes a set of its logits.
        exact: whether it makes all of those, and no others, that the rule says.
        ids: (K,) int64, the label that each column stands for.
        labels: of the layer, those included that take no part.
    """

    sets: NDArray[np.bool_]
    times: NDArray[np.int64]
    left_out: int
    rule: Rule
    exact: bool
    ids: NDArray[np.int64]
    labels: int

    def keys(self) -> list[bytes]:
        """What tells each set from the others, whichever labels take part."""
        rows = np.zeros((len(self.sets), self.labels), dtype=np.bool_)
        rows[:, self.ids] = self.sets
        return [row.tobytes() for row in np.packbits(rows, axis=1)]


@dataclass(frozen=True, eq=False)
class LabelSetFinding:
    """What a check of the label sets of a training found.

    Args:
        report: verdicts and proofs, a set each.
        asked: the sets, in the report's order.
        since: (m,) int64, step since which each set has been out of reach at every check that
            decided; -1 where it isn't.
    """

    report: LabelSetReport
    asked: AskedSets
    since: NDArray[np.int64]

    @property
    def out_of_reach(self) -> NDArray[np.int64]:
        """Positions of the sets that are provably out of reach, the most frequent first."""
        found = np.flatnonzero(self.report.status == SetStatus.UNATTAINABLE)
        return found[np.argsort(-self.asked.times[found], kind="stable")]

    def numbers(self) -> dict[str, float]:
        """For charts: different sets of each kind, and the share of rows with one out of reach."""
        counts, rows = self.report.counts, int(self.asked.times.sum())
        lost = int(self.asked.times[self.out_of_reach].sum())
        return {
            "seen": float(len(self.asked.sets)),
            "out_of_reach": float(counts["unattainable"]),
            "undecided": float(counts["undecided"]),
            "rows_out_of_reach": lost / rows if rows else 0.0,
            "seconds": self.report.seconds,
        }


class LabelSetMonitor:
    """Checks which label sets of a training a head can't output, from the proofs it has.

    Args:
        given: the sets to check: multi-hot (n, K), or lists of label ids; or a function of a
            training batch that returns them; or None for the targets that the head's loss gets.
    """

    def __init__(self, given: Any = None) -> None:
        self.given = given
        self.last: LabelSetFinding | None = None
        """What the last check found; it is not part of the saved state."""
        self._verifier = IncrementalLabelSets()
        self._seen: SeenSets | None = None
        self._watch: TargetWatch | None = None
        self._since: dict[bytes, int] = {}
        self._failure: Exception | None = None
        self._recording = threading.Lock()

    def open(self, labels: int, loss: torch.nn.Module | None) -> None:
        """Begin to watch, for a head of K labels.

        Args:
            labels: K.
            loss: of the head, whose targets are seen unless sets are given; or None.

        Raises:
            UnargError: the sets that were given don't fit, or there is no way to see any.
        """
        if self._watch is None or self._watch.labels != labels:
            self.close()
            self._watch = TargetWatch(labels)
        self._fit()
        if self.given is None:
            if loss is None:
                raise UnargError(
                    "the label sets of this head aren't known; give label_sets: the sets, or a "
                    "function of a training batch that returns them"
                )
            self._watch.attach(loss)

    def _fit(self) -> None:
        """Make what was seen fit the number of labels, and take in sets that are given."""
        if self._watch is None:
            return
        labels = self._watch.labels
        if self._seen is None or self._seen.labels != labels:
            self.forget()
            self._seen = SeenSets(labels)
        if self.given is not None and not callable(self.given):
            seen = SeenSets(labels)
            seen.add(as_sets(self.given, labels))
            self._seen = seen

    def watches(self, labels: int, loss: torch.nn.Module | None) -> bool:
        """Whether it was opened for these."""
        watch = self._watch
        if watch is None or watch.labels != labels:
            return False
        return self.given is not None or watch.loss is loss

    def close(self) -> None:
        """Watch no longer."""
        if self._watch is not None:
            self._watch.detach()

    def see(self, batch: Any) -> None:
        """Take in the label sets of a training batch, if a function was given for that.

        If it fails, :meth:`raise_failure` says so, at a step that all ranks know.
        """
        if self._watch is None or not callable(self.given) or self._failure is not None:
            return
        try:
            sets = self.given(batch)
            if sets is not None:
                labels = self._watch.labels
                # On another device looking at values would make training wait. A distribution
                # stands for its support, as in the losses.
                given = isinstance(sets, torch.Tensor)
                if not given or (sets.device.type == "cpu" and _is_to_be_read(sets)):
                    sets = torch.from_numpy(as_sets(sets, labels))
                as_label_sets(sets, labels)  # What the watch would leave out.
                self._watch.see(sets)
        except Exception as cause:
            self._failure = cause

    def raise_failure(self) -> None:
        """Raise what went wrong since this was last asked.

        Raises:
            UnargError: the user's function for a batch's label sets failed.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise UnargError(f"label_sets failed on a training batch: {told(failure)}") from failure

    def collect(self, ranks: Ranks) -> None:
        """Put together what all ranks have seen. A collective."""
        if self._watch is None or self._seen is None:
            return
        new = self._watch.take()
        with self._recording:
            for sets, times, left_out in ranks.gather((new.sets, new.times, new.left_out)):
                self._seen.add(sets, times)
                self._seen.left_out += left_out

    def asked(self, rule: Rule, exact: bool) -> AskedSets | None:
        """The sets to check by now; None if there are none yet."""
        seen = self._seen
        if seen is None or not len(seen.times):
            return None
        ids = np.arange(seen.labels)
        return AskedSets(seen.sets, seen.times, seen.left_out, rule, exact, ids, seen.labels)

    def check(
        self,
        head: LabelHead,
        asked: AskedSets,
        step: int,
        *,
        domain: Domain,
        time_limit: float | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> LabelSetFinding:
        """Verify the sets for the head, starting from the proofs of the last check.

        Args:
            head: a copy that nobody changes meanwhile.
            asked: the sets.
            step: optimizer steps taken when the head was copied.
            domain: where its input lies.
            time_limit: seconds, or None.
            stop: asked now and then; once it says yes, what is left is undecided.
        """
        report = self._verifier.update(
            head, asked.sets, domain=domain, time_limit=time_limit, stop=stop
        )
        since = np.full(len(asked.sets), -1, dtype=np.int64)
        with self._recording:
            verdicts = zip(asked.keys(), report.status.tolist(), strict=True)
            for at, (key, status) in enumerate(verdicts):
                if status == SetStatus.UNATTAINABLE:
                    since[at] = self._since.setdefault(key, step)
                elif status == SetStatus.ATTAINABLE:
                    self._since.pop(key, None)
            self.last = LabelSetFinding(report, asked, since)
        return self.last

    def forget(self) -> None:
        """Forget proofs, since when sets are out of reach, and those that training has shown."""
        self._verifier.reset()
        self._since, self.last = {}, None
        if self._seen is not None and (self.given is None or callable(self.given)):
            self._seen = SeenSets(self._seen.labels)
        if self._watch is not None:
            self._watch.take()

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: tensors and builtins."""
        with self._recording:
            keys = np.frombuffer(b"".join(self._since), dtype=np.uint8)
            keys = keys.reshape(len(self._since), -1) if self._since else keys.reshape(0, 1)
            return {
                "seen": None if self._seen is None else self._with_pending(self._seen),
                "since_sets": torch.from_numpy(keys.copy()),
                "since_step": torch.tensor(list(self._since.values()), dtype=torch.int64),
                "proofs": self._verifier.state_dict(),
            }

    def _with_pending(self, seen: SeenSets) -> dict[str, Any]:
        """State of the sets, those included that this rank hasn't shared yet."""
        if self._watch is None:
            return seen.state_dict()
        both = SeenSets.from_state(seen.state_dict())
        new = self._watch.seen
        both.add(new.sets, new.times)
        both.left_out += new.left_out
        return both.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave; a damaged state is left out, with a warning."""
        self.forget()
        self._seen = None
        try:
            if state.get("seen") is not None:
                self._seen = SeenSets.from_state(state["seen"])
                keys, steps = state["since_sets"].cpu().numpy(), state["since_step"].tolist()
                width = -(-self._seen.labels // 8)
                if keys.dtype != np.uint8 or (len(keys) and keys.shape[1:] != (width,)):
                    raise ValueError(f"the sets out of reach are not of {self._seen.labels} labels")
                self._since = {row.tobytes(): step for row, step in zip(keys, steps, strict=True)}
                self._verifier.load_state_dict(state["proofs"])
        except DAMAGED as cause:
            self.forget()
            self._seen = None
            warn(f"the saved label sets are left out: {type(cause).__name__}: {cause}")
        self._fit()

    def __getstate__(self) -> dict[str, Any]:
        # A lock stays in its process.
        return {key: value for key, value in self.__dict__.items() if key != "_recording"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._recording = threading.Lock()


def _is_to_be_read(rows: torch.Tensor) -> bool:
    """Whether rows should be multi-hot: not if they are class indices, or have sums of 1."""
    if rows.dim() != 2 or not rows.is_floating_point():
        return rows.dim() == 2
    return not bool(((rows >= 0).all(1) & ((rows.sum(1) - 1).abs() < _NEAR)).all())


def labelled(layer: OutputLayer, asked: AskedSets) -> tuple[LabelHead, AskedSets]:
    """The head of the labels of a layer that take part, and the asked sets of these.

    Sets that only other labels tell apart become one.

    Args:
        layer: of K labels, some perhaps excluded.
        asked: sets of them.
    """
    takes_part = np.ones(layer.classes, dtype=np.bool_)
    takes_part[list(layer.excluded)] = False
    kept, rule = np.flatnonzero(takes_part), asked.rule
    if isinstance(rule, ThresholdRule) and np.ndim(rule.thresholds):
        rule = ThresholdRule(rule.vector(layer.classes)[kept])
    names = None if layer.names is None else [layer.names[index] for index in kept.tolist()]
    head = LabelHead(layer.rows(kept), layer.biases(kept), rule, names=names)
    if len(kept) == layer.classes:
        return head, asked
    seen = SeenSets(len(kept))
    seen.add(asked.sets[:, kept], asked.times)
    return head, replace(asked, sets=seen.sets, times=seen.times, ids=asked.ids[kept])
