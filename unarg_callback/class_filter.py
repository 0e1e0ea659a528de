"""Which classes a report tells about: words of one script, without digits and punctuation.

The paper looks at tokens of the target language only: it tells them by their script, and leaves
out those with digits or punctuation (its section 5.2). A filter never changes the problem: classes
that it leaves out still beat others.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unarg_callback.errors import UnargError

_COMBINED = {
    "han": ("CJK", "IDEOGRAPHIC"),
    "japanese": ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA"),
    "korean": ("HANGUL", "CJK"),
}
"""Scripts that Unicode's names of characters call otherwise, or that are written together."""
_WIDTHS = ("FULLWIDTH", "HALFWIDTH")
_LISTED = (
    "Arabic Armenian Bengali Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han "
    "Hangul Hebrew Hiragana Japanese Kannada Katakana Khmer Korean Lao Latin Malayalam Mongolian "
    "Myanmar Oriya Sinhala Tamil Telugu Thai Tibetan"
)
_NAMES = _LISTED.split()
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z][A-Z0-9_]*\]|<0x[0-9A-Fa-f]{2}>")
"""``<unk>``, ``</s>``, ``<|endoftext|>``, ``[CLS]``, ``<0x0A>``."""
_STARTS = ("##", "\uffed")
_ENDS = ("@@", "</w>", "\uffed")
_SPACES = str.maketrans(
    "", "", "\N{LOWER ONE EIGHTH BLOCK}\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
)
_PREFIXES = {name.lower(): _COMBINED.get(name.lower(), (name.upper(),)) for name in _NAMES}
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + n): byte for n, byte in enumerate(sorted(set(range(256)) - _PRINTABLE))
}
"""The byte that each character of GPT-2's alphabet stands for: printable ones themselves."""
_LONGEST = 10_000
_ENOUGH = 0.98
"""Share of the names that are spelt in bytes where a vocabulary is."""


@dataclass(frozen=True)
class ClassFilter:
    r"""Which class names a report tells about.

    Marks of subword vocabularies (``▁``, ``Ġ``, ``@@``, ``##``, ``</w>``) are no part of a name
    here. Names that GPT-2's way of spelling bytes has garbled are read as what they stand for.

    Args:
        scripts: keep names that are letters of these and nothing else; empty for any name. Special
            tokens such as ``<unk>`` are left out.
        words: leave out names with digits, punctuation or symbols, and special tokens.
        pattern: keep names, as they are without their marks, in which this is found: in their first
            10,000 characters.
        known: vocabularies with the masks of their names, as :meth:`on` found them.

    Raises:
        UnargError: a script has a name not known here, or the pattern is no regular expression.

    >>> ClassFilter(scripts=("Cyrillic",)).mask(["▁Мир", "мир@@", "peace", "<unk>", "м1"]).tolist()
    [True, True, False, False, False]
    >>> ClassFilter(words=True).mask(["▁the", "Ġ2022", "...", "##ing", "[CLS]"]).tolist()
    [True, False, False, True, False]
    """

    scripts: tuple[str, ...] = ()
    words: bool = False
    pattern: str | None = None
    known: tuple[tuple[tuple[str, ...], NDArray[np.bool_]], ...] = field(
        default=(), repr=False, compare=False
    )

    def __post_init__(self) -> None:
        unknown = [name for name in self.scripts if name.lower() not in _PREFIXES]
        if unknown:
            raise UnargError(f"script {unknown[0]!r} is not known here; expected one of {_LISTED}")
        try:
            re.compile(self.pattern or "")
        except re.error as cause:
            raise UnargError(
                f"{self.pattern!r} is no regular expression ({cause}); expected one as in Python"
            ) from cause

    def __bool__(self) -> bool:
        """Whether it could leave anything out."""
        return bool(self.scripts or self.words or self.pattern is not None)

    def __str__(self) -> str:
        """What is kept, in a few words.

        >>> print(ClassFilter(scripts=("Latin", "Greek"), words=True))
        script Latin or Greek, no digits or punctuation
        """
        parts = [f"script {' or '.join(self.scripts)}"] if self.scripts else []
        parts += ["no digits or punctuation"] if self.words else []
        parts += [] if self.pattern is None else [f"names matching {self.pattern!r}"]
        return ", ".join(parts)

    def mask(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """(C,) bool, True for the names that are kept.

        Args:
            names: C class names, all of one vocabulary.
        """
        asked = tuple(names)
        for vocabulary, mask in self.known:
            if vocabulary == asked:
                return mask.copy()
        in_bytes = spelt_in_bytes(asked)
        return np.array([self.keeps(name, in_bytes=in_bytes) for name in asked], dtype=bool)

    def on(self, names: Sequence[str]) -> ClassFilter:
        """The same filter, which knows already whom of a vocabulary it keeps.

        A pattern can take for ever, as ``(a+)+$`` does on some names; asked before the work whose
        results it would keep back, it can't lose them.

        Args:
            names: C class names.
        """
        return replace(self, known=(*self.known, (tuple(names), self.mask(names))))

    def keeps(self, name: str, *, in_bytes: bool = False) -> bool:
        """Whether a name is told about.

        Args:
            name: of a class.
            in_bytes: whether the vocabulary spells bytes as GPT-2's does.
        """
        text = bare(name, in_bytes=in_bytes)
        special = _SPECIAL.fullmatch(text) is not None
        if (self.scripts or self.words) and (special or not text):
            return False
        if self.scripts and not _is_of(text, self._prefixes()):
            return False
        if self.words and any(unicodedata.category(c)[0] in "NPSZC" for c in text):
            return False
        return self.pattern is None or re.search(self.pattern, text[:_LONGEST]) is not None

    def _prefixes(self) -> tuple[str, ...]:
        return tuple(p for name in self.scripts for p in _PREFIXES[name.lower()])


def bare(name: str, *, in_bytes: bool = False) -> str:
    """A class name without the marks that subword vocabularies add.

    Args:
        name: of a class.
        in_bytes: whether the vocabulary spells bytes as GPT-2's does. Bytes that are no whole
            character stay as they are.

    >>> bare("▁word"), bare("wo@@"), bare("##rd"), bare("Ġword"), bare("word</w>")
    ('word', 'wo', 'rd', 'word', 'word')
    """
    text = _decoded(name) if in_bytes else name
    if _SPECIAL.fullmatch(text):
        return text
    text = text.strip().translate(_SPACES)
    for mark in _STARTS:
        text = text.removeprefix(mark) if text != mark else text
    for mark in _ENDS:
        text = text.removesuffix(mark) if text != mark else text
    return text


def spelt_in_bytes(names: Iterable[str]) -> bool:
    """Whether a vocabulary spells bytes as GPT-2's does, where a space is ``Ġ``.

    >>> spelt_in_bytes(["Ġthe", "Ð¼Ð¸ÑĢ", "<|endoftext|>"]), spelt_in_bytes(["▁the", "мир"])
    (True, False)
    """
    plain, spaces, total = 0, 0, 0
    for name in names:
        total += 1
        plain += all(c in _BYTE_OF for c in name) or _SPECIAL.fullmatch(name) is not None
        spaces += name.startswith("\u0120")
    return spaces > 0 and plain >= _ENOUGH * total


def _decoded(name: str) -> str:
    if not all(c in _BYTE_OF for c in name):
        return name
    try:
        return bytes(_BYTE_OF[c] for c in name).decode("utf-8")
    except UnicodeDecodeError:
        return name


def _is_of(text: str, prefixes: tuple[str, ...]) -> bool:
    """Whether all are letters of a script; marks are of that of the letters they stand on."""
    own = [c for c in text if not unicodedata.category(c).startswith("M")]
    return bool(own) and all(
        unicodedata.category(c).startswith("L") and _word(c) in prefixes for c in own
    )


def _word(character: str) -> str:
    """The first word of a character's name that could be a script."""
    words = re.split(r"[ -]", unicodedata.name(character, ""))
    return next((word for word in words if word not in _WIDTHS), "")
