"""Data of the multilabel example: Mulan's files, and synthetic documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from multilabel.data import Case, CaseData, DataError, Rows, standardized
from multilabel.mulan import Mulan, read_arff, read_labels
from multilabel.synthetic import Synthetic, documents
from tests.examples.multilabel_files import LABELS, write_mulan
from tests.shared_data import SHARED, needs_shared


def test_features_and_labels_are_told_apart(tmp_path: Path) -> None:
    write_mulan(tmp_path, rows=10)
    labels = read_labels(tmp_path / "tiny.xml")
    assert tuple(labels) == LABELS
    x, y = read_arff(tmp_path / "tiny-train.arff", labels)
    assert x.shape == (10, 4)  # Two numbers, and a nominal feature of two values.
    assert y[:4].tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]]
    assert not y[9].any()
    assert x[:, 2:].tolist() == [[1.0, 0.0]] * 9 + [[0.0, 1.0]]


def test_rows_without_labels_are_not_trained_on(tmp_path: Path) -> None:
    write_mulan(tmp_path)
    (case,) = Mulan("tiny", str(tmp_path)).cases(1)
    assert case.train.y.any(-1).all()
    assert len(case.valid.x) == 8
    assert len(case.test.x) == 40
    assert int((~case.test.y.any(-1)).sum()) == 4
    (dropped,) = Mulan("tiny", str(tmp_path), drop_unlabelled=True).cases(1)
    assert dropped.test.y.any(-1).all()
    assert len(dropped.test.x) == 36


def test_the_validation_split_depends_on_the_seed(tmp_path: Path) -> None:
    write_mulan(tmp_path)
    (one, again, other) = (next(Mulan("tiny", str(tmp_path)).cases(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.valid.x, again.valid.x)
    assert not torch.equal(one.valid.x, other.valid.x)
    assert torch.equal(one.test.x, other.test.x)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("tiny.xml", "<labels", r"tiny\.xml can't be read .*Mulan's XML"),
        ("tiny.xml", '<labels xmlns="http://x"></labels>', "has 0 labels"),
        ("tiny.xml", '<l xmlns="http://x"><label name="green"/></l>', "no attribute 'green'"),
        ("tiny-train.arff", "no arff", r"tiny-train\.arff can't be read .*dense ARFF"),
        ("tiny-train.arff", "@relation x\n@attribute red {0,1}\n@data\n{0 1}\n", "can't be read"),
        ("tiny-test.arff", None, "can't be read"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, file: str, text: str | None, message: str) -> None:
    write_mulan(tmp_path)
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(Mulan("tiny", str(tmp_path)).cases(1))


def test_missing_values_are_refused(tmp_path: Path) -> None:
    write_mulan(tmp_path)
    path = tmp_path / "tiny-train.arff"
    path.write_text(path.read_text().rstrip() + "\n?,1,up,1,0,0\n", encoding="utf-8")
    with pytest.raises(DataError, match="missing or infinite values"):
        read_arff(path, list(LABELS))


@needs_shared
@pytest.mark.parametrize(
    ("name", "features", "labels", "rows", "cardinality", "empty"),
    [
        ("scene", 294, 6, (1211, 1196), 1.074, 0),
        ("emotions", 72, 6, (391, 202), 1.868, 0),
        ("birds", 260 - 2 + 4, 19, (322, 323), 1.014, 294),
    ],
)
def test_the_papers_sets_are_as_they_are_described(
    name: str, features: int, labels: int, rows: tuple[int, int], cardinality: float, empty: int
) -> None:
    assert SHARED is not None
    folder = SHARED / "data" / "mulan"
    names = read_labels(folder / f"{name}.xml")
    parts = [read_arff(folder / f"{name}-{part}.arff", names) for part in ("train", "test")]
    y = torch.cat([part.y for part in parts])
    assert len(names) == labels
    assert tuple(len(part.x) for part in parts) == rows
    assert all(part.x.shape[1] >= features for part in parts)
    assert float(y.sum(-1).float().mean()) == pytest.approx(cardinality, abs=0.001)
    assert int((~y.any(-1)).sum()) == empty


def test_documents_have_the_labels_asked_for() -> None:
    sizes = np.random.default_rng(0).integers(1, 7, 300)
    x, y = documents(sizes, 50, labels=6, seed=0)
    assert y.sum(-1).tolist() == sizes.tolist()
    torch.testing.assert_close(x.sum(-1), torch.ones(300))
    torch.testing.assert_close((50 * x).round(), 50 * x)


def test_labels_are_drawn_uniformly_and_without_replacement() -> None:
    _, y = documents(np.full(6000, 2), 1, labels=4, seed=0)
    pairs = y.float().T @ y.float() / 6000
    off = pairs[~torch.eye(4, dtype=torch.bool)]
    torch.testing.assert_close(pairs.diagonal(), torch.full((4,), 0.5), atol=0.03, rtol=0)
    torch.testing.assert_close(off, torch.full((12,), 1 / 6), atol=0.03, rtol=0)


def test_long_documents_show_the_mixture_of_their_labels() -> None:
    x, y = documents(np.array([1, 2, 3, 1, 2, 3] * 20), 10**6, labels=5, seed=3)
    words = torch.linalg.lstsq(y.float() / y.sum(-1, keepdim=True), x).solution
    torch.testing.assert_close(words.sum(-1), torch.ones(5), atol=0.01, rtol=0)
    assert (words > 0).all()
    mixture = y.float() @ words / y.sum(-1, keepdim=True)
    torch.testing.assert_close(mixture, x, atol=0.004, rtol=0)


def test_the_three_settings_are_the_papers() -> None:
    source = Synthetic(documents=1000, means=[2, 9], ranges=[0, 4], lengths=[200, 1000])
    cases = list(source.cases(1))
    assert [(case.setting, case.value) for case in cases] == [
        *(("mean", 2), ("mean", 9), ("range", 0), ("range", 4)),
        *(("length", 200), ("length", 1000)),
    ]
    assert {tuple(len(part.x) for part in case[2:]) for case in cases} == {(500, 200, 300)}
    counts = [torch.cat([part.y for part in case[2:]]).sum(-1) for case in cases]
    assert [set(count.tolist()) for count in counts[:4]] == [
        *({1, 2, 3}, {8, 9, 10}, {5}, set(range(1, 10)))
    ]
    assert 1 <= counts[4].min() < counts[4].max() <= 10
    assert float(counts[4].float().mean()) == pytest.approx(5, abs=0.3)
    assert torch.equal(counts[4], counts[5])
    assert not torch.equal(next(source.cases(2)).test.x, cases[0].test.x)


def case(rows: int = 30) -> Case:
    draw = torch.Generator().manual_seed(0)
    parts = [
        Rows(
            3 + 2 * torch.randn(rows, 3, generator=draw), torch.rand(rows, 2, generator=draw) < 0.5
        )
        for _ in range(3)
    ]
    for part in parts:
        part.x[:, 2] = 7
    return Case("made", 0, *parts)


def test_features_are_standardized_by_the_training_rows() -> None:
    scaled = standardized(case())
    torch.testing.assert_close(scaled.train.x.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    deviation = scaled.train.x.std(0, correction=0)
    torch.testing.assert_close(deviation, torch.tensor([1.0, 1.0, 0.0]))
    assert (scaled.test.x.mean(0)[:2] != 0).all()
    assert torch.equal(scaled.test.y, case().test.y)


def test_batches_hold_every_row_once_and_are_shuffled() -> None:
    made = case()
    data = CaseData(made, batch_size=8, seed=0)
    batches = list(data.train_dataloader())
    assert [len(x) for x, _ in batches] == [8, 8, 8, 6]
    rows = torch.cat([x for x, _ in batches])
    assert not torch.equal(rows, made.train.x)
    assert torch.equal(rows[rows[:, 0].argsort()], made.train.x[made.train.x[:, 0].argsort()])
    ((x, y),) = data.val_dataloader()
    assert torch.equal(x, made.valid.x)
    assert torch.equal(y, made.valid.y)
