"""What a user may say about one head or several, and how it is read."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy import ndarray
from torch import Tensor, nn

from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import parse_ids
from unarg_callback.monitoring.attention_watch import AttentionWatch
from unarg_callback.monitoring.head import LayerChoice
from unarg_callback.monitoring.import_path import resolved
from unarg_callback.monitoring.label_set_monitor import LabelSetMonitor

_SETS = (
    "expected multi-hot sets, lists of label ids, a function of a training batch that returns "
    "them, or its import path"
)


def head_choices(layer: Any, name: str | None) -> list[tuple[str | None, LayerChoice]]:
    """The heads that a ``layer`` argument asks for, with the names given to them.

    Args:
        layer: a path, module, function or None for one head; a list of paths, or a dictionary of
            any of these by name, for several.
        name: of the only head, or None.

    Raises:
        UnargError: it is none of these, or there is a name for several.

    >>> head_choices({"source": "encoder.out", "target": "decoder.out"}, None)
    [('source', 'encoder.out'), ('target', 'decoder.out')]
    """
    if name is not None and not isinstance(name, str):
        raise UnargError(f"name is {name!r}; expected text, or None")
    several = isinstance(layer, Mapping) or (
        isinstance(layer, Sequence) and not isinstance(layer, str)
    )
    if several and name is not None:
        raise UnargError(
            f"name is {name!r} and layer asks for several heads; give names as the keys of layer"
        )
    if several and not layer:
        raise UnargError("layer is empty; expected at least one head")
    if isinstance(layer, Mapping):
        wrong = [key for key in layer if not isinstance(key, str)]
        if wrong:
            raise UnargError(f"layer has the key {wrong[0]!r}; expected names of heads, text")
        return [(key, _choice(value)) for key, value in layer.items()]
    if isinstance(layer, Sequence) and not isinstance(layer, str):
        return [(None, _choice(value)) for value in layer]
    return [(name, _choice(layer))]


def for_head(what: str, value: Any, key: str | None, keys: Iterable[str | None]) -> Any:
    """The part of an argument that is about one head: all of it, unless it is a dictionary.

    Args:
        what: the argument's name.
        value: what was given.
        key: the head's name, or its path.
        keys: those of all heads.

    Raises:
        UnargError: a dictionary has a key that is no head.

    >>> for_head("domain", {"source": "free"}, "source", ["source", "target"])
    'free'
    >>> for_head("domain", "box:10", "source", ["source", "target"])
    'box:10'
    """
    if not isinstance(value, Mapping):
        return value
    known = [str(one) for one in keys if one is not None]
    unknown = [one for one in value if one not in known]
    if unknown:
        raise UnargError(
            f"{what} has the key {unknown[0]!r}, which is no head; expected some of "
            f"{', '.join(known) or 'none, as the only head has no name'}"
        )
    return value.get(key)


def whole(what: str, value: Any, least: int = 0) -> int:
    """A whole number, of whatever integer type.

    Raises:
        UnargError: it is none, or below ``least``.

    >>> whole("step", 3)
    3
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise UnargError(f"{what} is {value!r}; expected a whole number from {least}")
    return number


def seconds(what: str, value: Any) -> float | None:
    """Seconds above 0, of whatever type of number, or None.

    Raises:
        UnargError: it is neither.
    """
    if value is None:
        return None
    try:
        number = float("nan") if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not number > 0:
        raise UnargError(f"{what} is {value!r}; expected seconds above 0, or None")
    return number


def flag(what: str, value: Any) -> bool:
    """True or False, and nothing that only counts as one of them.

    Raises:
        UnargError: it is neither.
    """
    if not isinstance(value, bool):
        raise UnargError(f"{what} is {value!r}; expected True or False")
    return value


def one_of(what: str, value: Any, choices: Sequence[str]) -> Any:
    """One of some words.

    Raises:
        UnargError: it is none.
    """
    if value not in choices:
        raise UnargError(f"{what} is {value!r}; expected {' or '.join(map(repr, choices))}")
    return value


def excluded_ids(value: str | int | Iterable[int] | None) -> tuple[int, ...]:
    """Class ids from an id, a list, or text such as "0,5,10-20".

    >>> excluded_ids("0,5,10-12")
    (0, 5, 10, 11, 12)
    """
    if isinstance(value, bytes | bytearray):
        raise UnargError(f"exclude is {value!r}; expected ids, or text such as '0,5,10-20'")
    if isinstance(value, Iterable) and not isinstance(value, str):
        try:
            return tuple(value)
        except TypeError as cause:
            raise UnargError(f"exclude is {value!r}; expected a list of ids") from cause
    return () if value is None else parse_ids(str(value))


def label_sets(value: Any) -> LabelSetMonitor | None:
    """A monitor of label sets for what the user gave; None for none.

    Args:
        value: None or True for the targets that a multilabel head's loss gets; False for nothing;
            the sets; or a function of a training batch that returns them, or its import path.

    Raises:
        UnargError: it is none of these.
    """
    if value is False:
        return None
    if value is None or value is True:
        return LabelSetMonitor()
    if isinstance(value, str) or callable(value):
        return LabelSetMonitor(resolved("label_sets", value, _SETS))
    if not isinstance(value, Tensor | ndarray | Sequence) or isinstance(value, bytes):
        raise UnargError(f"label_sets is of type {type(value).__name__}; {_SETS}")
    return LabelSetMonitor(value)


def attention_watch(value: Any) -> AttentionWatch | None:
    """A watch of the attention layers that the user asked for; None for none.

    Raises:
        UnargError: it isn't True, False, or attribute paths.
    """
    if value is None or value is False:
        return None
    if value is True:
        return AttentionWatch()
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, Sequence) or not all(isinstance(path, str) for path in paths):
        raise UnargError(f"attention is {value!r}; expected True, False, or attribute paths")
    return AttentionWatch(tuple(paths))


def _choice(layer: Any) -> LayerChoice:
    if layer is None or isinstance(layer, str | nn.Module) or callable(layer):
        return layer
    raise UnargError(
        f"layer is {layer!r}; expected an attribute path, a module, a function of the model that "
        "returns W or (W, b), a list of paths, a dictionary of these by name, or None"
    )
