"""The top level of a YAML file, read as text: nothing in it is ever made an object."""

from __future__ import annotations

import re

_PAIR = re.compile(r"([A-Za-z0-9_][\w .-]*?)\s*:(?:\s+(.*))?")

_ITEM = re.compile(r"\s*-\s+(.*)")


def top_level(text: str) -> dict[str, str | list[str]]:
    r"""Scalars, as they are spelled, and lists of scalars; what is nested deeper is left out.

    >>> top_level("type: transformer\ndim-vocabs:\n  - 32000\n  - 32000\ntied: true  # yes\n")
    {'type': 'transformer', 'dim-vocabs': ['32000', '32000'], 'tied': 'true'}
    >>> top_level("vocabs: [a.yml, 'b.yml']")
    {'vocabs': ['a.yml', 'b.yml']}
    """
    found: dict[str, str | list[str]] = {}
    key = ""
    for line in text.splitlines():
        item = _ITEM.fullmatch(line)
        if item is not None:
            if key and (found[key] == "" or isinstance(found[key], list)):
                found[key] = [*items(found[key]), _scalar(item[1])]
            continue
        pair = _PAIR.fullmatch(line)
        if pair is None:
            continue
        key, value = pair[1], (pair[2] or "").strip()
        if value.startswith("[") and value.endswith("]"):
            found[key] = [_scalar(part) for part in value[1:-1].split(",") if part.strip()]
            key = ""
        else:
            found[key] = _scalar(value)
    return found


def items(value: str | list[str] | None) -> list[str]:
    """The items of a list, or the scalar alone."""
    if isinstance(value, list):
        return value
    return [value] if value else []


def switched_on(value: str | list[str] | None) -> bool:
    """Whether a setting is there and true."""
    return isinstance(value, str) and value.lower() in {"true", "yes", "on", "1"}


def _scalar(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    text = re.sub(r"\s+#.*$", "", text)
    return "" if text in {"~", "null"} else text
