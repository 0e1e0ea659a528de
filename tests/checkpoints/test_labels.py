"""Class names from every form they come in."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.shared_data import SHARED, load_layer, needs_shared
from unarg_callback import CheckpointError
from unarg_callback.checkpoints import read_labels


def written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(text.encode("utf-8"))
    return path


@pytest.mark.parametrize(
    "content", [["a", "б", ""], {"б": 1, "a": 0, "": 2}, {"2": "", "0": "a", "1": "б"}]
)
def test_json(tmp_path: Path, content: Any) -> None:
    assert read_labels(written(tmp_path, "a.json", content), 3) == ["a", "б", ""]


@pytest.mark.parametrize("text", ["a\n\u2028\nc", "a\r\n\u2028\r\nc\r\n", "\ufeffa\n\u2028\nc\n"])
def test_one_a_line(tmp_path: Path, text: str) -> None:
    assert read_labels(written(tmp_path, "a.txt", text), 3) == ["a", "\u2028", "c"]


def test_sentencepiece_vocab(tmp_path: Path) -> None:
    text = "<unk>\t0\n\u2581the\t-3.2\n\t\t-4\n"
    assert read_labels(written(tmp_path, "a.vocab", text), 3) == ["<unk>", "\u2581the", "\t"]


def test_vocab_without_scores(tmp_path: Path) -> None:
    assert read_labels(written(tmp_path, "a.vocab", "a\nb\t1\n"), 2) == ["a", "b\t1"]


def test_object_with_gaps_names_them_by_id(tmp_path: Path) -> None:
    assert read_labels(written(tmp_path, "a.json", {"a": 0, "c": 2}), 3) == ["a", "1", "c"]


def test_half_a_surrogate_pair_can_be_written_out(tmp_path: Path) -> None:
    names = read_labels(written(tmp_path, "a.json", '["\\ud83d", "b"]'), 2)
    assert names == ["\\ud83d", "b"]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.json", ["a"], "1 names"),
        ("a.json", {"a": 0, "b": 5}, "ids up to 5"),
        ("a.json", {"a": 10**12}, "ids up to 1000000000000"),
        ("a.json", {}, "ids up to -1"),
        ("a.txt", "a\nb\n", "2 names"),
        ("a.txt", "", "0 names"),
    ],
)
def test_wrong_number_says_both(tmp_path: Path, name: str, content: Any, found: str) -> None:
    with pytest.raises(CheckpointError, match=f"has {found}, but the layer has 3 classes"):
        read_labels(written(tmp_path, name, content), 3)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.json", "[1, 2", "is not JSON"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.json", [1, 2, 3], "neither a list of names"),
        ("a.json", "3", "neither a list of names"),
        ("a.json", {"a": "b"}, "neither names to ids"),
        ("a.json", {"a": True, "b": 0, "c": 1}, "neither names to ids"),
        ("a.json", {"9" * 5000: "a"}, "neither names to ids"),
        ("a.json", {"a": 2, "b": 2, "c": 0}, "gives id 2 to 'b' and 'a'"),
        ("a.json", {"a": 2, "b": -1, "c": 0}, "gives id -1 to 'b'"),
        ("a.csv", "a\nb\nc\n", "format not known"),
    ],
)
def test_unreadable(tmp_path: Path, name: str, content: Any, problem: str) -> None:
    with pytest.raises(CheckpointError, match=problem) as caught:
        read_labels(written(tmp_path, name, content), 3)
    assert "\n" not in str(caught.value)
    assert "expected" in str(caught.value)


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("ключ".encode("koi8-r"))
    with pytest.raises(CheckpointError, match="is not UTF-8"):
        read_labels(tmp_path / "a.txt", 3)


def test_missing_or_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        read_labels(tmp_path / "none.json", 3)
    with pytest.raises(CheckpointError, match="is a folder"):
        read_labels(tmp_path, 3)


@needs_shared
def test_real_labels() -> None:
    assert SHARED is not None
    _, _, names = load_layer("ppocrv4_rec_ch")
    assert read_labels(SHARED / "data/layers/ppocrv4_rec_ch.labels.json", 6625) == names
