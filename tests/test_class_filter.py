"""Which class names a report tells about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import load_layer, needs_shared
from unarg_callback.class_filter import ClassFilter, bare, spelt_in_bytes
from unarg_callback.errors import UnargError


@pytest.mark.parametrize(
    ("script", "kept", "left_out"),
    [
        ("Cyrillic", ["▁Мир", "мир@@", "Ђ", "##ёж", "й"], ["mир", "мир2", "мир.", "<unk>", "▁"]),
        ("Latin", ["Ġthe", "naïve", "naïve", "Ａ"], ["μ", "a1", "a-b", "", "</s>", "[CLS]"]),
        ("Greek", ["ἄνθρωπος", "▁μ"], ["a", "µ"]),
        ("Arabic", ["سَلام", "ـه"], ["١", "،", "a"]),
        ("Hebrew", ["שָׁלוֹם"], ["a"]),
        ("Han", ["汉", "々", "㐀"], ["か", "한", "。", "1"]),
        ("Japanese", ["ラーメン", "食べる", "ﾊ"], ["한", "a"]),
        ("Hangul", ["한국"], ["汉"]),
        ("devanagari", ["हिन्दी"], ["१", "a"]),
    ],
)
def test_scripts(script: str, kept: list[str], left_out: list[str]) -> None:
    mask = ClassFilter(scripts=(script,)).mask([*kept, *left_out])
    assert mask.tolist() == [True] * len(kept) + [False] * len(left_out)


def test_several_scripts_may_be_mixed() -> None:
    chosen = ClassFilter(scripts=("Han", "Hiragana"))
    assert chosen.mask(["食べる", "漢字", "ラ", "a"]).tolist() == [True, True, False, False]


def test_digits_punctuation_and_special_tokens() -> None:
    words = ClassFilter(words=True)
    kept = ["▁word", "Ġword", "wo@@", "##rd", "слово</w>", "￭word", "é", "ª"]
    left_out = ["1", "a1", "②", "x²", "...", "a-b", "€", "a b", "", "▁", "<s>", "<0x0A>", "[MASK]",
                "<|endoftext|>", "@@", "\u200b", "\ue000"]  # fmt: skip
    assert words.mask([*kept, *left_out]).tolist() == [True] * len(kept) + [False] * len(left_out)


def test_patterns_see_the_name_without_marks() -> None:
    chosen = ClassFilter(pattern="^[a-z]{2}$")
    assert chosen.mask(["▁ab", "ab@@", "abc", "<unk>"]).tolist() == [True, True, False, False]
    # A pattern alone leaves special tokens to itself.
    assert ClassFilter(pattern="unk").mask(["<unk>"]).tolist() == [True]


def spelt(text: str) -> str:
    """As GPT-2's byte-level vocabulary spells it, by its published rule."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in own}
    for byte in range(256):
        table.setdefault(byte, chr(256 + len(table) - len(own)))
    return "".join(table[byte] for byte in text.encode())


def test_names_spelt_in_bytes_are_read() -> None:
    texts = [" мир", "мир", " world", "é", "3", "—"]
    names = [*map(spelt, texts), "<|endoftext|>", spelt("м")[:1]]
    assert names[0].startswith("Ġ")
    assert spelt_in_bytes(names)
    kept = ClassFilter(scripts=("Cyrillic",)).mask(names)
    assert kept.tolist() == [True, True, *[False] * 6]
    assert ClassFilter(words=True).mask(names).tolist()[:6] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    # Elsewhere the same characters are letters.
    assert not spelt_in_bytes(["é", "Ð", "мир"])
    assert ClassFilter(scripts=("Latin",)).mask(["é", "Ð", "мир"]).tolist() == [True, True, False]


@given(st.text(max_size=8))
def test_any_name_is_either_kept_or_not(name: str) -> None:
    everything = ClassFilter(scripts=("Latin",), words=True, pattern=".")
    assert everything.mask([name]).dtype == bool
    assert bare(bare(name)) is not None
    if everything.keeps(name):
        assert ClassFilter(words=True).keeps(name)
        assert ClassFilter(scripts=("Latin",)).keeps(name)


def test_what_it_says_of_itself() -> None:
    assert str(ClassFilter(("Han",), True, "x+")) == (
        "script Han, no digits or punctuation, names matching 'x+'"
    )
    assert not ClassFilter()
    assert ClassFilter().mask(["<unk>", ""]).all()
    assert ClassFilter(pattern="")


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"scripts": ("Klingon",)}, "'Klingon' is not known"), ({"pattern": "("}, "no regular exp")],
)
def test_bad_options(options: dict[str, object], reason: str) -> None:
    with pytest.raises(UnargError, match=reason):
        ClassFilter(**options)  # type: ignore[arg-type]


@needs_shared
def test_a_real_vocabulary() -> None:
    names = load_layer("ppocrv4_rec_ch")[2]
    kept = ClassFilter(scripts=("Han",)).mask(names)
    assert kept.sum() > 6000
    others = np.flatnonzero(~kept)
    assert {names[index] for index in others} >= {"a", "Z", "0", "—", "α"}
