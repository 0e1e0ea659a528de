"""The study of attention in the MT example: short real runs, their CSV, table and figure."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

REASON = "the extra `examples` isn't installed"
pytest.importorskip("sentencepiece", reason=REASON)
pytest.importorskip("sacrebleu", reason=REASON)
pytest.importorskip("jsonargparse", reason=REASON)
pytest.importorskip("jupyterlab_language_pack_fr_FR", reason=REASON)

import mt.study
import mt_attention_study
from mt.drawing import Drawing, DrawingError
from mt.study import Grid, Result
from mt.tables import table

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = (
    ["--config", str(CONFIGS / "mt_small.yaml"), "--trainer.enable_progress_bar", "false"]
    + ["--data.vocabulary", "300", "--data.held_out", "10", "--trainer.max_epochs", "1"]
    + ["--trainer.limit_train_batches", "2", "--model.width", "16", "--model.output_width", "4"]
    + ["--model.layers", "2"]
)


def arguments(workdir: Path, **changes: Any) -> list[str]:
    """Of the script: the real configuration, made small."""
    options = {
        "workdir": str(workdir),
        "training": TINY,
        "seeds": [1],
        "attentions": [{"map": "softmax"}, {"map": "sparsegen_lin", "lambda_": [0.5]}],
        "drawing": {"models": ["softmax", "sparsegen_lin, lambda = 0.5"], "sentences": [3, 4]},
    } | changes
    given = [
        f"--{name}={json.dumps(value)}" for name, value in options.items() if name != "workdir"
    ]
    return [
        "--config", str(CONFIGS / "mt_sparse_study.yaml"), "--workdir", str(workdir), *given
    ]  # fmt: skip


def no_training(cli: Any) -> int:
    raise AssertionError("a model was trained")


@pytest.mark.slow
def test_maps_are_trained_with_the_monitor_compared_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")
    assert mt_attention_study.main(arguments(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "sparsegen_lin, lambda = 0.5 " in printed
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        softmax, sparse = csv.DictReader(file)
    assert (softmax["map"], sparse["map"]) == ("softmax", "sparsegen_lin")
    for layer in ("support_0", "support_1"):
        assert float(softmax[layer]) == pytest.approx(float(softmax["length"]))
        assert 1 <= float(sparse[layer]) < float(sparse["length"])
    # The monitor's last count, which the check of the saved file has confirmed.
    saved = tmp_path / "sparsegen_lin_lambda_0.5_seed_1" / "model.unarg.json"
    assert int(sparse["unargmaxable"]) == json.loads(saved.read_text())["counts"]["unargmaxable"]
    assert "The two agree" in (saved.parent / "log.txt").read_text(encoding="utf-8")
    picture = tmp_path / "attention.png"
    assert picture.read_bytes().startswith(b"\x89PNG")

    # A later call with the same arguments draws anew, and trains nothing.
    picture.unlink()
    monkeypatch.setattr(mt.study, "run", no_training)
    assert mt_attention_study.main(arguments(tmp_path)) == 0
    assert capsys.readouterr().out == printed
    assert picture.exists()
    with pytest.raises(AssertionError, match="a model was trained"):
        mt_attention_study.main(arguments(tmp_path, training=[*TINY, "--model.heads", "2"]))

    drawing = {"models": ["softmax"], "sentences": [10]}
    assert mt_attention_study.main(arguments(tmp_path, drawing=drawing)) == 2
    assert "expected sentences from 0 to 9" in capsys.readouterr().err


def test_a_disagreement_ends_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.study, "run", lambda cli: 1)
    assert mt_attention_study.main(arguments(tmp_path)) == 1
    assert f"{tmp_path / 'softmax_seed_1'} didn't pass" in capsys.readouterr().err
    assert not list(tmp_path.rglob("result.json"))


def test_what_is_to_be_drawn_is_checked_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.study, "run", no_training)
    drawing = {"models": ["sparsemax"], "sentences": [0]}
    assert mt_attention_study.main(arguments(tmp_path, drawing=drawing)) == 2
    assert "no model 'sparsemax' to draw" in capsys.readouterr().err


def test_no_corpus_ends_the_study_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = [*TINY, "--corpus", str(tmp_path / "none.tsv")]
    assert mt_attention_study.main(arguments(tmp_path, training=training)) == 2
    assert "mt_attention_study: " in capsys.readouterr().err


def test_the_config_draws_what_it_trains() -> None:
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((CONFIGS / "mt_sparse_study.yaml").read_text(encoding="utf-8"))
    grids = [Grid(**grid) for grid in config["attentions"]]
    Drawing(**config["drawing"]).check(grids)
    with pytest.raises(DrawingError, match="no model 'sparsecone'"):
        Drawing(["sparsecone"], [0]).check(grids)


def test_the_table_has_means_over_seeds_and_marks_the_best_parameter() -> None:
    one = Result("softmax", "", float("nan"), 1, 4.0, 5.0, 20.0, (9.0, 9.0), 9.0, 100, 0)
    low = replace(one, map="sparsegen_lin", parameter="lambda", value=-4.0, support=(2.0, 1.0))
    high = replace(low, value=0.5, valid_loss=4.5)
    second = [replace(r, seed=2, bleu=7.0, valid_loss=r.valid_loss + 0.2) for r in (one, low, high)]
    _, softmax, best, other, note = table([one, low, high, *second]).splitlines()
    assert " ".join(softmax.split()) == "softmax 4.100 6.0 ± 1.4 20.0 ± 0.0 9.0, 9.0 100 0"
    assert best.startswith("sparsegen_lin, lambda = -4 * ")
    assert other.startswith("sparsegen_lin, lambda = 0.5  ")
    assert "2.0, 1.0" in best
    assert note.startswith("2 seed(s), 9.0 source tokens")
