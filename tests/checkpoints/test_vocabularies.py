"""Class names from the vocabularies that sentencepiece, tokenizers, Marian and fairseq write."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.text_files import fast_tokenizer, pieces, sentencepiece_model
from unarg_callback import CheckpointError
from unarg_callback.checkpoints import read_labels

yaml: Any = pytest.importorskip("yaml")

ODD = ["</s>", "<unk>", "yes", "no", "null", "1.0", "0x1", "~", ":", "a: b", "#", "'", '"', "\\"]
ODDER = ["- x", "? y", "▁кот", " lead", "tab\t", "\x07", "😀", "&amp;", "it's", "[", "|"]


def refusal(path: Path, classes: int) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_labels(path, classes)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return str(caught.value)


def test_sentencepiece(tmp_path: Path) -> None:
    path = sentencepiece_model(tmp_path / "a")
    names = pieces(path)
    assert "▁" in names
    assert read_labels(path, len(names)) == names
    assert read_labels(path.with_suffix(".vocab"), len(names)) == names
    spm = path.rename(tmp_path / "a.spm")
    assert read_labels(spm, len(names)) == names
    assert f"{len(names)} names" in refusal(spm, len(names) + 1)


def test_damaged_sentencepiece(tmp_path: Path) -> None:
    path = sentencepiece_model(tmp_path / "a")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "SentencePiece" in refusal(path, 42)
    path.write_text("no model at all")
    assert "truncated, damaged or another format" in refusal(path, 42)
    path.unlink()
    assert "does not exist" in refusal(path, 42)
    chance = random.Random(0)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            read_labels(path, 42)
        except CheckpointError as problem:
            assert "\n" not in str(problem)  # noqa: PT017 (to be read is right as well)


def test_without_sentencepiece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sentencepiece_model(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    assert "pip install 'unarg_callback[sentencepiece]'" in refusal(path, 42)


@pytest.mark.parametrize("kind", ["BPE", "Unigram", "WordLevel", "WordPiece"])
def test_tokenizers(tmp_path: Path, kind: str) -> None:
    tokenizer = fast_tokenizer(kind)
    tokenizer.add_tokens(["кошка!"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    names = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    assert names[-1] == "кошка!"
    assert read_labels(tmp_path / "tokenizer.json", len(names)) == names
    assert f"ids up to {len(names) - 1}" in refusal(tmp_path / "tokenizer.json", 999)


@pytest.mark.parametrize(
    "content",
    [
        {"model": {"vocab": {"a": -1}}},
        {"model": {"vocab": {"a": "b"}}},
        {"model": {"vocab": ["a", "b"]}},
        {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1}]},
        {"model": {"vocab": {"a": 0}}, "added_tokens": 3},
    ],
)
def test_damaged_tokenizers(tmp_path: Path, content: object) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert "expected" in refusal(tmp_path / "tokenizer.json", 2)


@pytest.mark.parametrize("style", [None, '"', "'"])
@pytest.mark.parametrize("unicode", [True, False])
def test_marian_yaml(tmp_path: Path, style: str | None, unicode: bool) -> None:
    names = [*ODD, *(name for name in ODDER if style != "'" or name.isprintable())]
    text = yaml.dump(
        {name: index for index, name in enumerate(names)},
        default_style=style,
        allow_unicode=unicode,
        sort_keys=False,
        width=10**6,
    )
    # PyYAML quotes the numbers too, and marks them; Marian never does.
    for index in range(len(names)):
        text = text.replace(f': !!int "{index}"\n', f": {index}\n")
        text = text.replace(f": !!int '{index}'\n", f": {index}\n")
    (tmp_path / "vocab.yml").write_text(text, encoding="utf-8")
    assert read_labels(tmp_path / "vocab.yml", len(names)) == names


def test_marian_yaml_takes_plain_words_as_spelled(tmp_path: Path) -> None:
    """A YAML library would make a truth value, nothing and a number of these."""
    (tmp_path / "vocab.yml").write_text("</s>: 0\nyes: 1\nnull: 2\n1.0: 3\n")
    assert read_labels(tmp_path / "vocab.yml", 4) == ["</s>", "yes", "null", "1.0"]


@pytest.mark.parametrize(
    "text", ["a: 0\nb\n", "a: 0\nb: c\n", "!!python/object:os.system x\n", "a: 0\n- b\n"]
)
def test_damaged_yaml(tmp_path: Path, text: str) -> None:
    (tmp_path / "vocab.yml").write_text(text)
    assert "'token: id'" in refusal(tmp_path / "vocab.yml", 2)


def test_truncated_yaml(tmp_path: Path) -> None:
    (tmp_path / "vocab.yml").write_text("a: 0\nb: 1\nc: 2\n"[:-5])
    assert "ids up to 1" in refusal(tmp_path / "vocab.yml", 3)


def test_fairseq_dictionary(tmp_path: Path) -> None:
    (tmp_path / "dict.de.txt").write_text("der 120\ndie 90 #fairseq:overwrite\nmadeupword0000 0\n")
    names = ["<s>", "<pad>", "</s>", "<unk>", "der", "die", "madeupword0000"]
    assert read_labels(tmp_path / "dict.de.txt", 7) == names
    assert read_labels(tmp_path / "dict.de.txt", 3)[0] == "der 120"
    assert "3 names" in refusal(tmp_path / "dict.de.txt", 8)
