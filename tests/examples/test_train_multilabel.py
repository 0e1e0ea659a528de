"""The multilabel study: short real runs, its CSV, table and figures."""

from __future__ import annotations

import csv
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("jsonargparse", reason="the extra `examples` isn't installed")

import train_multilabel
from multilabel.study import Grid, Result, Training, run_study
from multilabel.synthetic import Synthetic
from multilabel.tables import table
from tests.examples.multilabel_files import write_mulan
from tests.shared_data import SHARED, needs_shared
from unarg_callback.heads.multilabel import METHODS

CONFIGS = Path(__file__).parents[2] / "configs"


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_real_set_is_studied_from_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_mulan(tmp_path)
    status = train_multilabel.main(
        ["--config", str(CONFIGS / "multilabel_scene.yaml"), "--data.name", "tiny"]
        + ["--data.folder", str(tmp_path), "--workdir", str(tmp_path / "out")]
        + ["--training.epochs", "3", "--training.batch_size", "8", "--seeds", "[1]"]
    )
    printed = capsys.readouterr().out
    assert status == 0, printed
    lines = read(tmp_path / "out")
    sizes = dict(zip(METHODS, (1, 1, 1, 4, 4, 4), strict=True))
    assert Counter(line["method"] for line in lines) == sizes
    assert Counter(line["method"] for line in lines if line["selected"] == "True") == dict.fromkeys(
        sizes, 1
    )
    assert all(0 <= float(line["f_micro"]) <= 1 for line in lines)
    assert all(method in printed for method in METHODS)


def test_figures_are_drawn_with_matplotlib(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")
    config = str(CONFIGS / "multilabel_synthetic.yaml")
    heads = "[{method: softmax+log}, {method: sparsehourglass+hinge, q: [0.1, 1]}]"
    status = train_multilabel.main(
        ["--config", config, "--workdir", str(tmp_path), "--heads", heads]
        + ["--data.documents", "100", "--data.means", "[2, 4]", "--data.ranges", "[]"]
        + ["--data.lengths", "[200]", "--training.epochs", "1"]
    )
    assert status == 0
    assert len(read(tmp_path)) == 9
    for name in ("parameters.png", "settings.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_missing_data_end_the_script_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--config", str(CONFIGS / "multilabel_birds.yaml")]
    arguments += ["--data.folder", str(tmp_path), "--workdir", str(tmp_path)]
    assert train_multilabel.main(arguments) == 2
    assert "train_multilabel: " in capsys.readouterr().err


def test_methods_learn_and_softmax_tunes_its_threshold() -> None:
    data = Synthetic(labels=4, documents=400, means=[2], ranges=[], lengths=[])
    heads = [Grid(method) for method in METHODS]
    results = list(run_study(data, heads, Training(20, 50, 0.1, 0.0), seeds=[1]))
    assert [result.method for result in results] == list(METHODS)
    assert min(result.f_micro for result in results) > 0.75
    softmax, *sparse = results
    assert 0 < softmax.threshold < 0.5
    assert softmax.threshold != 0.25
    assert softmax.support == pytest.approx(4)
    assert softmax.labels < 4
    for result in sparse:
        assert result.threshold == 0
        assert result.support == pytest.approx(result.labels)
        assert result.support < 4
    tuned = list(run_study(data, heads[1:2], Training(20, 50, 0.1, 0.0, tune_all=True), seeds=[1]))
    assert tuned[0].threshold > 0
    assert tuned[0].labels < tuned[0].support
    again = list(run_study(data, heads[:2], Training(20, 50, 0.1, 0.0), seeds=[1]))
    assert [result.f_micro for result in again] == [result.f_micro for result in results[:2]]


def test_the_parameter_is_chosen_by_validation_for_each_seed() -> None:
    data = Synthetic(labels=4, documents=200, means=[2], ranges=[], lengths=[])
    heads = [Grid("sparsegen_lin+huber", lambda_=[-30.0, 0.5])]
    results = list(run_study(data, heads, Training(5, 50, 0.1, 0.0), seeds=[1, 2]))
    assert [(result.seed, result.parameter_value) for result in results] == [
        *((1, -30.0), (1, 0.5), (2, -30.0), (2, 0.5))
    ]
    for pair in (results[:2], results[2:]):
        (chosen,) = [result for result in pair if result.selected]
        assert chosen.valid_f_micro == max(result.valid_f_micro for result in pair)


def test_the_table_has_means_over_seeds_of_what_was_selected() -> None:
    one = Result("scene", 0, 1, "m", "", math.nan, 0.9, 0.6, 0.5, 0.1, 2.0, 2.0, 1.5, 0.0, True)
    two = replace(one, seed=2, f_micro=0.8)
    other = replace(one, f_micro=0.1, selected=False)
    (_, line) = table([one, two, other]).splitlines()
    assert line.split()[:5] == ["scene", "0", "m", "0.700", "±0.141"]


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize(("name", "printed"), [("scene", 0.70), ("emotions", 0.63)])
def test_f_on_real_sets_is_near_the_papers(name: str, printed: float, tmp_path: Path) -> None:
    assert SHARED is not None
    status = train_multilabel.main(
        ["--config", str(CONFIGS / f"multilabel_{name}.yaml"), "--seeds", "[1]"]
        + ["--data.folder", str(SHARED / "data" / "mulan"), "--workdir", str(tmp_path)]
        + [
            "--heads",
            "[{method: softmax+log}, {method: sparsemax+huber}, {method: sparsemax+hinge}]",
        ]
    )
    assert status == 0
    for line in read(tmp_path):
        assert float(line["f_micro"]) == pytest.approx(printed, abs=0.06), line["method"]
