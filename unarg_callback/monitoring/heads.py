"""Make the heads that a user asked for, each with its own settings and its monitor."""

from __future__ import annotations

from typing import Any

from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.monitoring.head import Head
from unarg_callback.monitoring.head_labels import HeadLabels
from unarg_callback.monitoring.head_monitor import HeadMonitor
from unarg_callback.monitoring.observation import Observation, observed_margin
from unarg_callback.monitoring.reading import given_rule
from unarg_callback.monitoring.settings import (
    excluded_ids,
    flag,
    for_head,
    label_sets,
    seconds,
    whole,
)


def make_heads(
    choices: list[tuple[str | None, Any]],
    *,
    device: str,
    patience: int | None,
    time_limit: float | None,
    observe: bool,
    most_gathered: int,
    **given: Any,
) -> list[Head]:
    """Make a head for each choice.

    Args:
        choices: (name or None, layer) of each.
        device: where snapshots go and searches run.
        patience: of each :class:`HeadMonitor`.
        time_limit: likewise.
        observe: whether inputs are watched even where the domain doesn't follow them.
        most_gathered: see :class:`Head`.
        given: "labels", "domain", "exclude", "bias", "rule" and "label_sets", each for all heads
            or by head.

    Raises:
        UnargError: one of these can't be read.
    """
    patience = None if patience is None else whole("patience", patience)
    time_limit = seconds("time_limit", time_limit)
    observe = flag("observe", observe)
    most_gathered = whole("most_gathered", most_gathered)
    keys = [name or (choice if isinstance(choice, str) else None) for name, choice in choices]
    heads = []
    for key, (name, choice) in zip(keys, choices, strict=True):
        own = {what: for_head(what, value, key, keys) for what, value in given.items()}
        domain = "box:100" if own["domain"] is None else own["domain"]
        if isinstance(domain, bool | bytes) or callable(domain):
            raise UnargError(f"domain is {domain!r}; expected text such as 'box:100', or a Domain")
        if own["bias"] is not None and not isinstance(own["bias"], str):
            raise UnargError(f"bias is {own['bias']!r}; expected an attribute path, or None")
        margin = observed_margin(domain)
        assumed = Domain.of(domain if margin is None else "box:100")
        observed = observe or margin is not None
        monitor = HeadMonitor(
            assumed, patience=patience, time_limit=time_limit, device=device, head=key or "output"
        )
        heads.append(
            Head(
                choice,
                monitor,
                name=name,
                labels=own["labels"],
                excluded=excluded_ids(own["exclude"]),
                bias=own["bias"],
                device=device,
                observation=Observation(margin) if observed else None,
                labelling=HeadLabels(given_rule(own["rule"]), label_sets(own["label_sets"])),
                most_gathered=most_gathered,
            )
        )
    return heads
