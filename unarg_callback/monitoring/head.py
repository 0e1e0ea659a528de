"""One output layer of a model: where it is, its names, and the monitor that checks it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

import torch
from torch import nn

from unarg_callback.checkpoints.labels import read_labels
from unarg_callback.devices import usable_device
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import NotFiniteError, UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.copies import Copy, NoLayer, Rows
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.head_labels import HeadLabels
from unarg_callback.monitoring.head_monitor import HeadMonitor
from unarg_callback.monitoring.label_set_monitor import LabelSetFinding
from unarg_callback.monitoring.observation import Observation
from unarg_callback.monitoring.reading import linear_of
from unarg_callback.monitoring.tags import head_name
from unarg_callback.snapshots.snapshot import (
    FoundLayer,
    find_layer,
    grown,
    layer_bytes,
    refind,
    take_rows,
    take_snapshot,
)

LayerChoice = Union[str, nn.Module, Callable[[nn.Module], Any], None]  # noqa: UP007
"""An attribute path, a module, a function of the model that returns W or (W, b), or None."""


MOST_GATHERED = 2**31
"""Bytes of a sharded layer that each rank can be expected to hold."""


class Head:
    """One output layer, its names, and its monitor.

    Args:
        choice: which layer it is.
        monitor: checks it.
        name: the head's name in tags, or None for the layer's path.
        labels: class names, a list or the path of a file that holds them, or None.
        excluded: ids of classes that take no part.
        bias: attribute path of a bias that the layer itself doesn't have, or None.
        device: where snapshots go.
        observation: watches the layer's input, or None.
        most_gathered: bytes of a sharded layer that are gathered; a larger one is checked where its
            rows are.
        labelling: how its logits are read, and the check of its label sets; None for classes alone.
    """

    def __init__(
        self,
        choice: LayerChoice,
        monitor: HeadMonitor,
        *,
        name: str | None = None,
        labels: str | Path | Sequence[str] | None = None,
        excluded: Iterable[int] = (),
        bias: str | None = None,
        device: str = "cpu",
        observation: Observation | None = None,
        most_gathered: int = MOST_GATHERED,
        labelling: HeadLabels | None = None,
    ) -> None:
        self.choice = choice
        self.labelling = labelling or HeadLabels()
        self.observation = observation
        self.monitor = monitor
        self.labels = labels
        self._given_name = name
        self._excluded = tuple(excluded)
        self._bias = bias
        self._device = device
        self._most_gathered = most_gathered
        self._names: tuple[str, ...] | None = None
        self._path = choice if isinstance(choice, str) else ""
        self._found: FoundLayer | None = None

    @property
    def name(self) -> str:
        """The head's part of each tag; final once the layer was found."""
        return head_name(self._path, self._given_name)

    def open(self, model: nn.Module) -> None:
        """Find the layer, and see that names, excluded classes and the domain fit it.

        Raises:
            UnargError: they don't, or there is no such layer.
        """
        choice, path = linear_of(model, self.choice)
        found = find_layer(model, choice, bias=self._bias)
        self._path, self._found = found.path if path is None else path, found
        self._names = self._read_names(found.classes)
        # Whatever its weights hold: names and excluded ids are the user's.
        OutputLayer(torch.zeros(found.classes, 1), names=self._names, excluded=self._excluded)
        usable_device(self._device)
        self.monitor.domain.bounds(found.features)
        self.monitor.head = self.name
        if self.observation is not None:
            self.observation.attach(found.module)
        self.labelling.open(found)
        self.monitor.by_size = self.labelling.by_size

    def close(self) -> None:
        """Watch inputs and targets no longer."""
        if self.observation is not None:
            self.observation.detach()
        self.labelling.close()

    def describe(self, names: Sequence[str] | None, excluded: Iterable[int]) -> None:
        """From the next snapshot on classes have these names, and these take no part."""
        self._names = None if names is None else tuple(names)
        self._excluded = tuple(excluded)

    def snapshot(self, model: nn.Module, ranks: Ranks) -> OutputLayer | Rows | NoLayer:
        """Copy the layer as it is now; a collective where it is sharded over ranks.

        Args:
            model: holds the layer.
            ranks: the processes that have the other parts.

        Raises:
            UnargError: it can't be found or read any more.
        """
        assert self._found is not None
        # What was found without a name stays that layer, whatever else the model gets.
        found = refind(self._found, model)
        if self.observation is not None and found.module is not self._found.module:
            self.observation.attach(found.module)
        self._found = found
        self.labelling.follow(found)
        self.monitor.by_size = self.labelling.by_size
        try:
            rows = self._rows(found, ranks)
            if rows is not None and self.monitor.by_size:
                return NoLayer(
                    "classes ranked by |z| can't be checked where their rows are; raise "
                    "most_gathered, so that the layer is gathered"
                )
            return rows or take_snapshot(
                found, names=self._names, excluded=self._excluded, device=self._device
            )
        except NotFiniteError as cause:
            return NoLayer(str(cause), not_finite=True)

    def _rows(self, found: FoundLayer, ranks: Ranks) -> Rows | None:
        """The rows of this rank, where the layer is too large to gather."""
        if not found.collective or layer_bytes(found) <= self._most_gathered:
            return None
        taken = take_rows(found, device=self._device)
        spans = ranks.gather(None if taken is None else (taken[2], len(taken[0])))
        if taken is None or not _in_order(spans, found.classes):
            # Copies of a row on several ranks, or in another order than theirs.
            return None
        weight, bias, first = taken
        last = first + len(weight)
        if first == last:
            return Rows(None)
        names = grown(self._names, found.classes)
        excluded = [index - first for index in self._excluded if first <= index < last]
        return Rows(
            OutputLayer(
                weight, bias, names=None if names is None else names[first:last], excluded=excluded
            )
        )

    def domain(self, ranks: Ranks) -> Domain | None:
        """Where the input lies by now, or None for where it was assumed to. A collective."""
        return None if self.observation is None else self.observation.follow(ranks)

    def left(self, ranks: Ranks) -> str | None:
        """Tell, once, how the input left an assumed domain. A collective."""
        watched = self.observation
        return None if watched is None else watched.left(self.monitor.domain, ranks)

    def examine(
        self,
        copy: Copy,
        ranks: Ranks,
        step: int,
        due: int,
        time_limit: float | None,
        stop: Callable[[], bool] | None = None,
        beside: Mapping[str, Any] | None = None,
        sets: LabelSetFinding | None = None,
    ) -> Finding:
        """Check a copy, or record why there is none. A collective for rows."""
        monitor, layer = self.monitor, copy.layer
        if isinstance(layer, NoLayer):
            monitor.skip(step, layer.reason, not_finite=layer.not_finite)
        elif isinstance(layer, Rows):
            monitor.check_rows(
                layer.layer,
                ranks,
                step,
                due=due,
                time_limit=time_limit,
                domain=copy.domain,
                beside=beside,
            )
        else:
            monitor.check(
                layer,
                step,
                due=due,
                time_limit=time_limit,
                domain=copy.domain,
                stop=stop,
                beside=beside,
            )
        record = monitor.records[-1]
        return Finding(
            head=self.name,
            record=record,
            report=monitor.last_report,
            at_risk=monitor.at_risk,
            provable_since=monitor.provable_since,
            potential_since=monitor.potential_since,
            events=monitor.last_events,
            label_sets=sets,
        )

    def examine_sets(
        self,
        copy: Copy,
        step: int,
        time_limit: float | None,
        stop: Callable[[], bool] | None = None,
    ) -> LabelSetFinding | None:
        """Check the label sets of a copy; None where there is nothing to check."""
        domain = copy.domain or self.monitor.domain
        return self.labelling.check(copy, step, domain, time_limit, stop)

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: tensors and builtins."""
        state = self.monitor.state_dict()
        if self.observation is not None:
            state["observation"] = self.observation.state_dict()
        if self.labelling.monitor is not None:
            state["label_sets"] = self.labelling.monitor.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave; what is missing is as at the start."""
        if self.observation is not None and "observation" in state:
            self.observation.load_state_dict(state["observation"])
            self.monitor.domain = self.observation.domain or self.monitor.domain
        self.monitor.load_state_dict(state)
        if self.labelling.monitor is not None:
            saved = state.get("label_sets")
            self.labelling.monitor.load_state_dict(saved if isinstance(saved, Mapping) else {})

    def __getstate__(self) -> dict[str, Any]:
        # It holds the model.
        return {**self.__dict__, "_found": None}

    def _read_names(self, classes: int) -> tuple[str, ...] | None:
        labels = self.labels
        if isinstance(labels, str | Path):
            _require_file(labels)
            return tuple(read_labels(labels, classes))
        if labels is not None and not isinstance(labels, Sequence):
            raise UnargError(f"labels is {labels!r}; expected names in a list, a path, or None")
        return None if labels is None else tuple(labels)


def _require_file(path: str | Path) -> None:
    """Raise unless it may be read without waiting for somebody to write it."""
    if "\0" in str(path) or (os.path.exists(path) and not os.path.isfile(path)):
        raise UnargError(f"labels is {str(path)!r}, which is no regular file; expected one")


def _in_order(spans: list[tuple[int, int] | None], classes: int) -> bool:
    """Whether the ranks' rows, each by its first and their number, make the layer in order."""
    end = 0
    for span in spans:
        if span is None or span[0] != end and span[1]:
            return False
        end += span[1]
    return end == classes
