"""What is copied of a layer at one step, to be checked whenever there is time."""

from __future__ import annotations

from dataclasses import dataclass

from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.attention_keys import KeyBatch
from unarg_callback.monitoring.label_set_monitor import AskedSets


@dataclass(frozen=True)
class NoLayer:
    """Why there is no layer to check.

    Args:
        reason: one sentence.
        not_finite: it has NaN or inf.
    """

    reason: str
    not_finite: bool = False


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a layer that this rank has, where the layer is too large to gather.

    Args:
        layer: the rows, or None where it has none.
    """

    layer: OutputLayer | None


@dataclass(frozen=True, eq=False)
class Copy:
    """A layer as it was at one step.

    Args:
        layer: the copy, or why there is none.
        domain: where its input lies, or None for where it was assumed to.
        asked: label sets to check, or None.
        keys: of attention layers, with the copy of the first head.
    """

    layer: OutputLayer | Rows | NoLayer
    domain: Domain | None = None
    asked: AskedSets | None = None
    keys: tuple[KeyBatch, ...] = ()
