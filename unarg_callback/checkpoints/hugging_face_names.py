"""Names of a transformers model's classes, and those that its settings say are never meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unarg_callback.checkpoints.folders import read_json
from unarg_callback.checkpoints.regular_files import present
from unarg_callback.checkpoints.tensor_file import listing, shown
from unarg_callback.checkpoints.vocabulary import Exclusion, Vocabulary, exclusive, scarce
from unarg_callback.checkpoints.vocabulary_files import (
    is_tokenizer,
    sentencepiece_names,
    tokenizer_pairs,
)
from unarg_callback.errors import CheckpointError

_CONFIG, _GENERATION = "config.json", "generation_config.json"
_TOKENIZER_CONFIG, _ADDED = "tokenizer_config.json", "added_tokens.json"
_TOKENIZER, _TARGET, _VOCAB, _LINES = (
    "tokenizer.json",
    "target_vocab.json",
    "vocab.json",
    "vocab.txt",
)
_PIECES = ("spiece.model", "tokenizer.model", "spm.model", "sentencepiece.bpe.model")
_OTHER_TOKENIZERS = re.compile(
    r"(?:.*\.(?:model|spm|tiktoken|bpe)|tekken\.json|merges\.txt|bpe\.codes|dict\..*txt|vocab\..*)$"
)
# Where a piece's id is the token's; elsewhere tokenizers move the ids.
_PLAIN_PIECES = {"t5", "mt5", "umt5", "llama", "mistral", "gemma", "albert", "xlnet", "t5gemma"}


def label_names(config: dict[str, Any], classes: int) -> Vocabulary:
    """The labels of a classifier, by ``id2label``; no class is excluded."""
    labels = config.get("id2label")
    if not isinstance(labels, dict) or set(labels) != {str(index) for index in range(classes)}:
        return Vocabulary()
    names = tuple(str(labels[str(index)]) for index in range(classes))
    return Vocabulary(names, note=f"names: id2label in {_CONFIG}")


def token_names(folder: Path, config: dict[str, Any], classes: int) -> Vocabulary:
    """The tokens of a language model, and which of them it never puts out.

    Excluded are rows beyond the vocabulary, the padding token unless it has another role too, the
    mask token, and tokens that the settings for generation forbid. All other special tokens
    compete with the words, and stay.

    Args:
        folder: of the model.
        config: content of its ``config.json``.
        classes: C.

    Raises:
        CheckpointError: a file is damaged.
    """
    source, pairs = _pairs(folder, config)
    top = max((index for index, _ in pairs), default=-1)
    if top >= classes:
        note = f"names: none, as {source} has ids up to {top} for {classes} rows"
        exclusions = exclusive(_by_settings(folder, config, classes, {}))
        return Vocabulary(None, exclusions, note, _files(folder, source))
    names = dict(pairs)
    ids = {name: index for index, name in pairs}
    beyond = []
    if pairs:
        rule = f"rows beyond the vocabulary: {source} has ids up to {top}"
        beyond = [Exclusion(tuple(range(top + 1, classes)), rule)]
    exclusions = exclusive([*beyond, *_by_settings(folder, config, classes, ids)])
    if not pairs:
        note = f"names: none, as {_why_none(folder, source)}"
        return Vocabulary(None, exclusions, note, _files(folder, source))
    listed = tuple(_printable(names.get(index, str(index))) for index in range(classes))
    note = f"names: {source}{scarce(len(names), classes)}"
    return Vocabulary(listed, exclusions, note, _files(folder, source))


def _files(folder: Path, source: str) -> tuple[Path, ...]:
    """What is read of the folder for names and exclusions."""
    names = (source, _GENERATION, _TOKENIZER_CONFIG, _ADDED)
    return tuple(folder / name for name in names if name and (folder / name).is_file())


def _why_none(folder: Path, source: str) -> str:
    if source:
        return f"{source} is empty"
    found = sorted(p.name for p in folder.iterdir() if _OTHER_TOKENIZERS.fullmatch(p.name))
    if not found:
        return "the folder has no tokenizer"
    listed = listing(shown(name) for name in found)
    return (
        f"the folder has {listed}, but for this model_type it isn't known that its ids are those "
        "of the rows; say --labels FILE if they are"
    )


def _pairs(folder: Path, config: dict[str, Any]) -> tuple[str, list[tuple[int, str]]]:
    """The first vocabulary of the folder, with the tokens that were added to it later."""
    if present(folder / _TARGET):  # Marian, with one vocabulary a language.
        return _TARGET, _flat(folder / _TARGET)
    if present(folder / _TOKENIZER):
        content = read_json(folder / _TOKENIZER)
        if not is_tokenizer(content):
            raise CheckpointError(
                f"{folder / _TOKENIZER} has no vocabulary; expected what tokenizer.save writes"
            )
        return _TOKENIZER, _with_added(folder, tokenizer_pairs(folder / _TOKENIZER, content))
    if present(folder / _VOCAB):
        return _VOCAB, _with_added(folder, _flat(folder / _VOCAB))
    if present(folder / _LINES):
        lines = _text(folder / _LINES)
        tokens = lines.replace("\r\n", "\n").removesuffix("\n").split("\n")
        return _LINES, _with_added(folder, list(enumerate(tokens)))
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in _PLAIN_PIECES:
        for name in _PIECES:
            if present(folder / name):
                pieces = sentencepiece_names(folder / name)
                return name, _with_added(folder, list(enumerate(pieces)))
    return "", []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as cause:
        raise CheckpointError(
            f"{path} is not UTF-8 (byte {cause.start}); expected one token a line"
        ) from cause


def _flat(path: Path) -> list[tuple[int, str]]:
    content = read_json(path)
    if not all(type(index) is int and index >= 0 for index in content.values()):
        raise CheckpointError(f"{path} does not map tokens to ids; expected a vocabulary")
    return [(index, token) for token, index in content.items()]


def _with_added(folder: Path, pairs: list[tuple[int, str]]) -> list[tuple[int, str]]:
    found = dict(pairs)
    if present(folder / _ADDED):
        found.update(_flat(folder / _ADDED))
    decoder = _settings(folder / _TOKENIZER_CONFIG).get("added_tokens_decoder")
    for index, token in (decoder if isinstance(decoder, dict) else {}).items():
        if index.isascii() and index.isdigit():
            found[int(index)] = _content(token) or index
    return sorted(found.items())


def _by_settings(
    folder: Path, config: dict[str, Any], classes: int, ids: dict[str, int]
) -> list[Exclusion]:
    generation = _settings(folder / _GENERATION)
    tokenizer = _settings(folder / _TOKENIZER_CONFIG)
    found = [
        Exclusion(_in_range(_forbidden(settings, key), classes), f"never put out: {key} in {name}")
        for name, settings in ((_GENERATION, generation), (_CONFIG, config))
        for key in ("bad_words_ids", "suppress_tokens")
    ]
    other_roles = {
        index
        for settings in (generation, config)
        for key in ("eos_token_id", "bos_token_id", "forced_bos_token_id")
        for index in _listed(settings.get(key))
    }
    other_roles.update(
        ids[token]
        for key in ("eos_token", "bos_token", "unk_token")
        if (token := _content(tokenizer.get(key))) in ids
    )
    # A configuration that took over another model's id is no reason to drop a word.
    named = ids.get(_content(tokenizer.get("pad_token")))
    padding = [
        index
        for index in _listed(config.get("pad_token_id"))
        if index not in other_roles and named in (None, index)
    ]
    found.append(
        Exclusion(_in_range(padding, classes), f"padding token: pad_token_id in {_CONFIG}")
    )
    mask = ids.get(_content(tokenizer.get("mask_token")))
    if mask is not None and mask not in other_roles:
        found.append(Exclusion((mask,), f"mask token, only ever an input: {_TOKENIZER_CONFIG}"))
    return found


def _forbidden(settings: dict[str, Any], key: str) -> list[int]:
    """Ids that may never be generated; a longer sequence forbids none of its tokens alone."""
    value = settings.get(key)
    if key == "suppress_tokens":
        return _listed(value)
    words = value if isinstance(value, list) else []
    return [index for word in words if len(found := _listed(word)) == 1 for index in found]


def _listed(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [index for index in values if type(index) is int]


def _in_range(ids: Iterable[int], classes: int) -> tuple[int, ...]:
    return tuple(sorted({index for index in ids if 0 <= index < classes}))


def _settings(path: Path) -> dict[str, Any]:
    return read_json(path) if present(path) else {}


def _content(token: Any) -> str:
    """Text of a token, which may come with how it is split off."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else ""


def _printable(name: str) -> str:
    # JSON can spell half a surrogate pair, which no output could encode.
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
