"""Class filters of ``unarg check`` and ``unarg compare``, on vocabularies of the real libraries."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints.text_files import fast_tokenizer, pieces, sentencepiece_model
from tests.commands.running import unarg
from unarg_callback import Proofs, Status

CYRILLIC = re.compile(r"▁?[а-яё]+")


@pytest.fixture(params=["tokenizers", "sentencepiece"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, list[str]]:
    """A layer of two features, a vocabulary file that a library wrote, and the names in it."""
    if request.param == "tokenizers":
        tokenizer = fast_tokenizer("BPE")
        labels = tmp_path / "tokenizer.json"
        tokenizer.save(str(labels))
        names = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    else:
        labels = sentencepiece_model(tmp_path / "spm")
        names = pieces(labels)
    rng = np.random.default_rng(0)
    layer = tmp_path / "layer.npz"
    np.savez(layer, W=rng.normal(size=(len(names), 2)), b=rng.normal(size=len(names)))
    return layer, labels, names


def listed(out: str) -> list[int]:
    """Ids of the first table."""
    lines = out.split("\n\n")[1].splitlines()[1:]
    return [int(line.split()[0]) for line in lines if not line.startswith("...")]


def test_the_table_lists_the_script_and_the_check_is_of_all(
    model: tuple[Path, Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, labels, names = model
    common = (layer, "--labels", labels, "--limit", "999")
    assert unarg("check", *common, "--proofs", tmp_path / "all.npz") == 0
    whole = capsys.readouterr().out
    assert "Listed" not in whole
    assert unarg("check", *common, "--script", "Cyrillic", "--proofs", tmp_path / "some.npz") == 0
    out = capsys.readouterr().out
    status = Proofs.load(tmp_path / "all.npz").status
    assert np.array_equal(Proofs.load(tmp_path / "some.npz").status, status)
    unargmaxable = np.flatnonzero(status == Status.UNARGMAXABLE).tolist()
    kept = [index for index, name in enumerate(names) if CYRILLIC.fullmatch(name)]
    shown = [index for index in unargmaxable if index in kept]
    assert 0 < len(shown) < len(unargmaxable)
    assert listed(whole) == unargmaxable
    assert listed(out) == shown
    # The verdicts are of all classes, with the filter and without.
    assert out.splitlines()[:3] == whole.splitlines()[:3]
    assert out.splitlines()[3] == (
        f"Listed (script Cyrillic): {len(kept)} of {len(names)} classes, "
        f"{len(shown)} of {len(unargmaxable)} unargmaxable"
    )


def test_what_the_limit_leaves_out_is_counted_among_those_kept(
    model: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    layer, labels, _ = model
    common = (layer, "--labels", labels, "--words", "--keep-regex", "о")
    assert unarg("check", *common, "--limit", "99") == 0
    count = len(listed(capsys.readouterr().out))
    assert count > 2
    assert unarg("check", *common, "--limit", "2") == 0
    out = capsys.readouterr().out
    assert f"... and {count - 2} more" in out
    assert "Listed (no digits or punctuation, names matching 'о'): " in out


def test_json_lists_the_same_and_says_what_was_chosen(
    model: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    layer, labels, names = model
    common = (layer, "--labels", labels, "--json", "-", "--quiet")
    assert unarg("check", *common) == 0
    whole = json.loads(capsys.readouterr().out)
    assert "filter" not in whole
    assert unarg("check", *common, "--script", "Cyrillic", "--script", "Latin", "--words") == 0
    some = json.loads(capsys.readouterr().out)
    kept = [name for name in names if re.fullmatch("▁?[а-яёa-z]+", name)]
    assert [one["name"] for one in some["unargmaxable"]] == [
        one["name"] for one in whole["unargmaxable"] if one["name"] in kept
    ]
    assert some["counts"] == whole["counts"]
    chosen = some.pop("filter")
    assert chosen["script"] == ["Cyrillic", "Latin"]
    assert (chosen["words"], chosen["keep_regex"]) == (True, None)
    assert chosen["classes"] == len(kept)
    assert chosen["counts"]["unargmaxable"] == len(some["unargmaxable"])
    assert some.keys() == whole.keys()


def test_further_questions_list_the_same_classes(
    model: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    layer, labels, names = model
    # Greatest weights of one sign mean that hardly anybody leads by much.
    common = (layer, "--labels", labels, "--domain", "box:1", "--min-lead", "5", "--limit", "99")
    assert unarg("check", *common) == 0
    whole = capsys.readouterr().out.rpartition("can win, but provably")[2].splitlines()[2:]
    assert unarg("check", *common, "--script", "Latin") == 0
    some = capsys.readouterr().out.rpartition("can win, but provably")[2].splitlines()[2:]
    kept = [index for index, name in enumerate(names) if re.fullmatch("▁?[a-z]+", name)]
    assert [int(line.split()[0]) for line in some] == [
        int(line.split()[0]) for line in whole if int(line.split()[0]) in kept
    ]
    assert 0 < len(some) < len(whole)


def test_all_classes_count_for_the_exit_status(
    model: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    layer, labels, _ = model
    fail = ("--fail-on", "unargmaxable", "--keep-regex", "nobody")
    assert unarg("check", layer, "--labels", labels, *fail) == 1
    out = capsys.readouterr().out
    assert re.search(r"0 of \d+ classes, 0 of \d+ unargmaxable$", out.strip())


def test_classes_without_names(
    model: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert unarg("check", model[0], "--words") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "The classes have no names, so the filter leaves none out: no digits or punctuation" in out
    )


def test_compare(
    model: tuple[Path, Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, labels, names = model
    other = tmp_path / "other.npz"
    with np.load(layer) as archive:
        np.savez(other, W=archive["W"][::-1], b=archive["b"][::-1])
    common = (layer, other, "--labels", labels, "--limit", "999")
    assert unarg("compare", *common) == 0
    whole = capsys.readouterr().out
    assert unarg("compare", *common, "--script", "Cyrillic") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:6] == whole.splitlines()[:6]
    kept = {name for name in names if CYRILLIC.fullmatch(name)}
    assert f"Below are classes with script Cyrillic only: {len(kept)} of {len(names)} that" in out

    def rows(text: str) -> set[tuple[str, ...]]:
        return {tuple(line.split()) for line in text.splitlines() if re.match(r"  \d", line)}

    assert rows(out) == {row for row in rows(whole) if row[1] in kept}
    assert rows(out)
    fail = ("--fail-on", "appeared", "--quiet", "--keep-regex", "nobody")
    assert unarg("compare", *common, *fail) == 1
    assert unarg("compare", layer, other, "--words") == 0
    assert "The classes have no names, so the filter leaves none out" in capsys.readouterr().out
    assert unarg("compare", *common, "--script", "Klingon") == 2


def test_compare_layers_of_different_sizes(
    model: tuple[Path, Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, labels, names = model
    fewer, text = tmp_path / "fewer.npz", tmp_path / "fewer.txt"
    with np.load(layer) as archive:
        np.savez(fewer, W=archive["W"][10:], b=archive["b"][10:])
    text.write_text("\n".join(names[10:]), encoding="utf-8")
    arguments = (layer, fewer, "--labels", labels, "--labels-b", text, "--script", "Latin")
    assert unarg("compare", *arguments) == 0
    out = " ".join(capsys.readouterr().out.split())
    latin = [bool(re.fullmatch("▁?[a-z]+", name)) for name in names]
    assert (
        f"only: {sum(latin[10:])} of {len(names) - 10} that are in both, "
        f"{sum(latin[:10])} of 10 only in A." in out
    )
    assert f"Classes are compared by name: {sum(latin[10:])} are in both" in out
