"""Functions that configuration files name by their import paths."""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable
from typing import Any

from unarg_callback.errors import UnargError
from unarg_callback.report import printable


def resolved(what: str, value: Any, expected: str) -> Callable[..., Any]:
    """A callable of one argument, given itself or as "package.module:function".

    Args:
        what: the setting's name, for messages.
        value: what was given.
        expected: what messages say was expected.

    Raises:
        UnargError: it can't be imported, or called with one argument.

    >>> resolved("on_event", "math:sqrt", "expected a callable")(4.0)
    2.0
    """
    function = _imported(what, value, expected) if isinstance(value, str) else value
    shown = _shown(value)
    if not callable(function):
        kind = type(function).__name__
        raise UnargError(f"{what} is {shown}, of type {kind} and not callable; {expected}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Some callables written in C have none.
        return function
    try:
        signature.bind(None)
    except TypeError as cause:
        raise UnargError(
            f"{what} is {shown}, which can't be called with one argument ({cause}); {expected}"
        ) from cause
    return function


def _imported(what: str, path: str, expected: str) -> Any:
    """What an import path leads to."""
    separator = ":" if ":" in path else "."
    module_name, _, attribute = path.rpartition(separator)
    parts = [*module_name.split("."), *attribute.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise UnargError(f"{what} is {_shown(path) if path else 'blank'}; {expected}")
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as cause:  # Importing runs the user's code.
        raise UnargError(
            f"{what} is {_shown(path)}, but {module_name} can't be imported "
            f"({told(cause)}); check its spelling, and that it is on the Python path"
        ) from cause
    try:
        return operator.attrgetter(attribute)(found)
    except Exception as cause:  # A module may compute its attributes.
        raise UnargError(
            f"{what} is {_shown(path)}, but {module_name} has no {attribute}; check its spelling"
        ) from cause


def told(cause: BaseException) -> str:
    """What an exception says, on one line."""
    return printable(f"{type(cause).__name__}: {cause}", 200)


def _shown(value: object) -> str:
    """An argument as an error shows it."""
    return printable(repr(value), 100)
