"""Parallel text: from gettext catalogues of an installed package, or from a TSV file."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterable, Iterator
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_MO_MAGIC = 0x950412DE


class CorpusError(ValueError):
    """No parallel text can be read; the message is one line a person can act on."""


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Splits(NamedTuple):
    """Pairs for training, for validation and for the final test; no source is in two of them."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def read_mo(data: bytes, name: str = "catalogue") -> list[Pair]:
    """Pairs of a compiled gettext catalogue, the header left out.

    A message with plural forms gives its singular; a context before the message is dropped.

    Args:
        data: the file's bytes.
        name: what to call the file in an error.

    Raises:
        CorpusError: the bytes are no such catalogue.
    """
    try:
        order = next(o for o in "<>" if struct.unpack_from(f"{o}I", data)[0] == _MO_MAGIC)
        count, sources, targets = struct.unpack_from(f"{order}3I", data, 8)
        pairs = []
        for i in range(count):
            source = _mo_string(data, order, sources + 8 * i)
            target = _mo_string(data, order, targets + 8 * i)
            pairs.append(Pair(source.split("\x04")[-1], target))
    except (StopIteration, struct.error, UnicodeDecodeError) as cause:
        raise CorpusError(f"{name} isn't a readable .mo file; expected gettext's format") from cause
    return [pair for pair in pairs if pair.source]


def _mo_string(data: bytes, order: str, at: int) -> str:
    length, start = struct.unpack_from(f"{order}2I", data, at)
    if start + length > len(data):
        raise struct.error("string beyond the end of the file")
    return data[start : start + length].split(b"\0")[0].decode("utf-8")


def read_language_pack(locale: str) -> list[Pair]:
    """Pairs (English, translation) of JupyterLab's language pack for a locale such as ``fr_FR``.

    Raises:
        CorpusError: the pack isn't installed.
    """
    package = f"jupyterlab_language_pack_{locale}"
    if find_spec(package) is None:
        pip_name = package.replace("_", "-")
        raise CorpusError(f"no language pack for {locale!r}; try: pip install {pip_name}")
    folder = resources.files(package) / "locale" / locale / "LC_MESSAGES"
    catalogues = sorted((f for f in folder.iterdir() if f.name.endswith(".mo")), key=str)
    return [pair for f in catalogues for pair in read_mo(f.read_bytes(), f.name)]


def read_tsv(path: str | Path) -> list[Pair]:
    """Pairs of a UTF-8 file with a source, a TAB and a target on each line; gzip by ``.gz``.

    Raises:
        CorpusError: the file can't be read, or a line doesn't have two fields.
    """
    try:
        return list(_tsv_pairs(Path(path)))
    except (OSError, EOFError, UnicodeDecodeError) as cause:
        raise CorpusError(f"{path} can't be read ({cause}); expected UTF-8 text") from cause


def _tsv_pairs(path: Path) -> Iterator[Pair]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.rstrip("\r\n").split("\t")
            if fields == [""]:
                continue
            if len(fields) != 2 or not all(field.strip() for field in fields):
                raise CorpusError(
                    f"{path}, line {number}: {len(fields)} field(s), "
                    f"{sum(bool(field.strip()) for field in fields)} of them with text; "
                    "expected a source, one TAB and a target"
                )
            yield Pair(*fields)


def clean(pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs worth learning from: white space made single, no copies, one target a source.

    Sources that differ only in case count as one, so that none is on both sides of a split. What
    is the same in both languages is left out: copying it would raise every score.
    """
    first: dict[str, Pair] = {}
    for pair in pairs:
        source, target = " ".join(pair.source.split()), " ".join(pair.target.split())
        if source and target and source != target:
            first.setdefault(source.casefold(), Pair(source, target))
    return list(first.values())


def split(pairs: list[Pair], held_out: int, seed: int) -> Splits:
    """Shuffle by ``seed`` and hold out ``held_out`` pairs for validation and as many for the test.

    Raises:
        CorpusError: too few pairs to train on would be left.
    """
    if len(pairs) < 3 * held_out:
        raise CorpusError(
            f"{len(pairs)} different pairs, of which 2 x {held_out} would be held out; "
            "expected at least a third for training: give a larger corpus or hold out fewer"
        )
    shuffled = sorted(pairs)
    random.Random(seed).shuffle(shuffled)
    return Splits(
        train=shuffled[2 * held_out :],
        valid=shuffled[:held_out],
        test=shuffled[held_out : 2 * held_out],
    )
