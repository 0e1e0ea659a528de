"""Vocabularies as tokenizers keep them: ``tokenizer.json``, SentencePiece, Marian's YAML, fairseq.

Each gives (id, name) pairs or a list by id; nothing here knows of a layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unarg_callback.checkpoints.regular_files import require_regular_file
from unarg_callback.checkpoints.tensor_file import reason, shown
from unarg_callback.errors import CheckpointError

FAIRSEQ_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
"""What fairseq puts before the lines of every ``dict.txt``."""

_YAML_LINE = re.compile(
    r"""(?P<key> "(?:[^"\\]|\\.)*" | '(?:[^']|'')*' | [^\s].*? ) \s* :\s+ (?P<id>-?\d+) \s* """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b"} | {
    "f": "\f",
    "v": "\v",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


def is_tokenizer(content: Mapping[str, Any]) -> bool:
    """Whether a JSON object is what the package tokenizers saves."""
    model = content.get("model")
    return isinstance(model, Mapping) and isinstance(model.get("vocab"), Mapping | list)


def tokenizer_pairs(path: Path, content: Mapping[str, Any]) -> list[tuple[int, str]]:
    """(id, token) of a ``tokenizer.json``, added tokens included; an added one names its id.

    Raises:
        CheckpointError: an entry isn't what the format has there.
    """
    vocab = content["model"]["vocab"]
    try:
        if isinstance(vocab, Mapping):
            found = {_id(index): str(token) for token, index in vocab.items()}
        else:  # A unigram model: [piece, score] by id.
            found = {index: str(piece) for index, (piece, _) in enumerate(vocab)}
        for added in content.get("added_tokens") or ():
            found[_id(added["id"])] = str(added["content"])
    except (KeyError, TypeError, ValueError) as cause:
        raise CheckpointError(
            f"{path} has an entry of its vocabulary that can't be read ({reason(cause)}); expected "
            "what tokenizer.save writes"
        ) from cause
    return sorted(found.items())


def sentencepiece_names(path: Path) -> list[str]:
    """Pieces by id of a SentencePiece ``.model``.

    Raises:
        CheckpointError: it can't be read, or the package sentencepiece isn't installed.
    """
    require_regular_file(path, "a SentencePiece model")
    try:
        import sentencepiece
    except ImportError as cause:
        raise CheckpointError(
            f"{path} needs the package sentencepiece to be read; install it with: "
            "pip install 'unarg_callback[sentencepiece]' (or name the .vocab beside it)"
        ) from cause
    try:
        model = sentencepiece.SentencePieceProcessor()
        model.load_from_serialized_proto(path.read_bytes())
        return [model.id_to_piece(index) for index in range(model.get_piece_size())]
    except OSError as cause:
        raise CheckpointError(f"{path} can't be read: {cause.strerror or cause}") from cause
    except (RuntimeError, TypeError, ValueError) as cause:
        raise CheckpointError(
            f"{path} can't be read as a SentencePiece model ({reason(cause)}); it is truncated, "
            "damaged or another format"
        ) from cause


def yaml_pairs(path: Path, text: str) -> list[tuple[int, str]]:
    """(id, token) of a Marian ``.yml`` vocabulary: one ``token: id`` a line.

    Plain tokens such as ``yes``, ``null`` or ``1.0`` are taken as they are spelled, as Marian does.

    Raises:
        CheckpointError: a line is something else.
    """
    pairs = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip() or line.startswith("#") or line in {"---", "...", "{}"}:
            continue
        match = _YAML_LINE.fullmatch(line)
        if match is None:
            raise CheckpointError(
                f"{path} has {shown(line[:60])} in line {number}; expected one 'token: id' a line, "
                "as Marian writes vocabularies"
            )
        pairs.append((int(match["id"]), _yaml_text(match["key"])))
    return pairs


def fairseq_names(lines: list[str], classes: int) -> list[str] | None:
    """Names by id if these are the lines ``token count`` of a fairseq ``dict.txt``, else None."""
    if len(lines) + len(FAIRSEQ_SPECIALS) != classes:
        return None
    split = [line.removesuffix(" #fairseq:overwrite").rpartition(" ") for line in lines]
    if not all(token and count.isascii() and count.isdigit() for token, _, count in split):
        return None
    return [*FAIRSEQ_SPECIALS, *(token for token, _, _ in split)]


def _id(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no id")
    return value


def _yaml_text(key: str) -> str:
    if len(key) > 1 and key[0] == key[-1] == "'":
        return key[1:-1].replace("''", "'")
    if len(key) > 1 and key[0] == key[-1] == '"':
        return _ESCAPE.sub(_unescaped, key[1:-1])
    return key


def _unescaped(match: re.Match[str]) -> str:
    text = match[1]
    if len(text) > 1 and int(text[1:], 16) <= 0x10FFFF:
        return chr(int(text[1:], 16))
    return _ESCAPED.get(text, text)
