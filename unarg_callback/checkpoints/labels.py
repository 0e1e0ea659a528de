"""Class names from a file, in whatever form vocabularies come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unarg_callback.checkpoints.regular_files import require_regular_file
from unarg_callback.checkpoints.tensor_file import reason
from unarg_callback.checkpoints.vocabulary_files import (
    fairseq_names,
    is_tokenizer,
    sentencepiece_names,
    tokenizer_pairs,
    yaml_pairs,
)
from unarg_callback.errors import CheckpointError

_FORMS = (
    "a .json list of names, a .json object from names to ids or ids to names, a tokenizer.json, a "
    ".txt or .vocab with one name a line, a SentencePiece .model, or a Marian .yml"
)
_SENTENCEPIECE = {".model", ".spm"}


def read_labels(path: str | Path, classes: int) -> list[str]:
    """Read one name a class, by ascending id.

    An object may leave ids out (as vocabularies with reserved rows do): such a class is named by
    its id. Its highest id still has to be the last class.

    Args:
        path: .json (a list, an object or a tokenizer.json), .txt, .vocab or .yml in UTF-8, or a
            SentencePiece .model or .spm (which needs the package sentencepiece).
        classes: C, how many names are expected.

    Raises:
        CheckpointError: the file can't be read, or holds another number of names.
    """
    where = require_regular_file(path, f"labels: {_FORMS}")
    if where.suffix.lower() in _SENTENCEPIECE:
        names = sentencepiece_names(where)
    else:
        names = _from_text(where, _text(where), classes)
    if len(names) != classes:
        raise _wrong_number(where, f"{len(names)} names", classes)
    # JSON can spell half a surrogate pair, which no output could encode.
    return [name.encode("utf-8", "backslashreplace").decode("utf-8") for name in names]


def _text(where: Path) -> str:
    try:
        return where.read_text(encoding="utf-8-sig")
    except OSError as cause:
        raise CheckpointError(
            f"labels {where} can't be read: {cause.strerror or cause}; expected {_FORMS}"
        ) from cause
    except UnicodeDecodeError as cause:
        raise CheckpointError(
            f"labels {where} is not UTF-8 (byte {cause.start}); expected {_FORMS}"
        ) from cause


def _from_text(where: Path, text: str, classes: int) -> list[str]:
    suffix = where.suffix.lower()
    if suffix == ".json":
        return _from_json(where, text, classes)
    if suffix in {".yml", ".yaml"}:
        return _by_id(where, yaml_pairs(where, text), classes)
    if suffix in {".txt", ".vocab"}:
        names = _from_lines(text, with_scores=suffix == ".vocab")
        return fairseq_names(names, classes) or names
    raise CheckpointError(f"labels {where} has a format not known here; expected {_FORMS}")


def _from_lines(text: str, with_scores: bool) -> list[str]:
    # Only these breaks: str.splitlines would also cut inside names, at U+2028 for one.
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if with_scores and all(_is_scored(line) for line in lines):
        return [line.rpartition("\t")[0] for line in lines]
    return lines


def _is_scored(line: str) -> bool:
    piece, _, score = line.rpartition("\t")
    try:
        float(score)
    except ValueError:
        return False
    return piece != ""


def _from_json(path: Path, text: str, classes: int) -> list[str]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise CheckpointError(
            f"labels {path} is not JSON ({reason(cause)}); expected {_FORMS}"
        ) from cause
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return content
    if isinstance(content, dict) and is_tokenizer(content):
        return _by_id(path, tokenizer_pairs(path, content), classes)
    if isinstance(content, dict):
        return _by_id(path, _ids_to_names(path, content), classes)
    raise CheckpointError(
        f"labels {path} is neither a list of names nor an object; expected {_FORMS}"
    )


def _ids_to_names(path: Path, content: dict[str, Any]) -> list[tuple[int, str]]:
    if all(type(value) is int for value in content.values()):
        return [(value, key) for key, value in content.items()]
    if all(isinstance(v, str) and _is_id(k) for k, v in content.items()):
        return [(int(key), value) for key, value in content.items()]
    raise CheckpointError(
        f"labels {path} is an object that maps neither names to ids nor ids to names; expected "
        f"{_FORMS}"
    )


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _by_id(path: Path, pairs: list[tuple[int, str]], classes: int) -> list[str]:
    top = max((index for index, _ in pairs), default=-1)
    if top != classes - 1:
        raise _wrong_number(path, f"ids up to {top}", classes)
    names: dict[int, str] = {}
    for index, name in pairs:
        if index < 0 or index in names:
            raise CheckpointError(
                f"labels {path} gives id {index} to {name!r}"
                + (f" and {names[index]!r}" if index in names else "")
                + "; expected one name for each id from 0"
            )
        names[index] = name
    return [names.get(index, str(index)) for index in range(classes)]


def _wrong_number(path: Path, found: str, classes: int) -> CheckpointError:
    return CheckpointError(
        f"labels {path} has {found}, but the layer has {classes} classes; expected one a class"
    )
