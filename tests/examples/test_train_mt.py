"""The translation example: its corpus, its model, a short real run, and (slow) the whole demo."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch

REASON = "the extra `examples` isn't installed"
pytest.importorskip("sentencepiece", reason=REASON)
pytest.importorskip("sacrebleu", reason=REASON)
pytest.importorskip("jsonargparse", reason=REASON)
pytest.importorskip("jupyterlab_language_pack_fr_FR", reason=REASON)
pytest.importorskip("jupyterlab_language_pack_ru_RU", reason=REASON)

import pytorch_lightning as pl

from mt.corpus import (
    CorpusError,
    Pair,
    Splits,
    clean,
    read_language_pack,
    read_mo,
    read_tsv,
    split,
)
from mt.data import BOS, EOS, PAD, Batch, SimilarLengths, TranslationData, collate
from mt.model import Translator

CONFIG = Path(__file__).parents[2] / "configs" / "mt_small.yaml"


def mo_file(pairs: list[tuple[str, str]], order: str = "<") -> bytes:
    """A compiled catalogue, written by the format's description."""
    strings = [text.encode() for column in zip(*pairs, strict=True) for text in column]
    at = 28 + 8 * len(strings)
    table = b""
    for text in strings:
        table += struct.pack(f"{order}2I", len(text), at)
        at += len(text) + 1
    header = struct.pack(
        f"{order}7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 28 + 8 * len(strings)
    )
    return header + table + b"".join(text + b"\0" for text in strings)


@pytest.mark.parametrize("order", ["<", ">"])
def test_mo_files_of_both_byte_orders_are_read(order: str) -> None:
    data = mo_file(
        [
            ("", "Content-Type: text/plain"),
            ("Open", "Ouvrir"),
            ("menu\x04File", "Fichier"),
            ("%1 cell\0%1 cells", "%1 cellule\0%1 cellules"),
        ],
        order,
    )
    assert read_mo(data) == [
        Pair("Open", "Ouvrir"),
        Pair("File", "Fichier"),
        Pair("%1 cell", "%1 cellule"),
    ]


@pytest.mark.parametrize("data", [b"", b"PK\3\4 no catalogue", mo_file([("Open", "Ouvrir")])[:-4]])
def test_a_broken_mo_file_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(CorpusError, match=r"x\.mo isn't a readable \.mo file"):
        read_mo(data, "x.mo")


@pytest.mark.parametrize(("locale", "at_least"), [("fr_FR", 2900), ("ru_RU", 2000)])
def test_language_packs_have_thousands_of_pairs(locale: str, at_least: int) -> None:
    pairs = clean(read_language_pack(locale))
    assert len(pairs) >= at_least
    assert all(pair.source != pair.target and pair.target.strip() for pair in pairs)


def test_a_missing_language_pack_says_what_to_install() -> None:
    with pytest.raises(CorpusError, match="pip install jupyterlab-language-pack-xx-XX"):
        read_language_pack("xx_XX")


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.gz"])
def test_tsv_is_read_plain_and_compressed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = "a cat\tкот\r\n\ntwo cats\tдва кота\n".encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert read_tsv(path) == [Pair("a cat", "кот"), Pair("two cats", "два кота")]


@pytest.mark.parametrize("line", ["no tab", "one\ttwo\tthree", "source\t", "\ttarget", " \t "])
def test_a_malformed_tsv_line_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a\tb\n{line}\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"pairs\.tsv, line 2: .*one TAB"):
        read_tsv(path)


@pytest.mark.parametrize(
    ("name", "data"), [("a.tsv", b"\xff\xfe\tb"), ("a.tsv.gz", b"not gzip"), ("a.tsv", None)]
)
def test_an_unreadable_corpus_is_one_clear_error(
    tmp_path: Path, name: str, data: bytes | None
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CorpusError, match="can't be read .*UTF-8 text"):
        read_tsv(tmp_path / name)


def test_a_cut_off_gzip_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\n" * 1000)[:-12])
    with pytest.raises(CorpusError, match="can't be read"):
        read_tsv(path)


def test_clean_drops_copies_and_repeated_sources() -> None:
    pairs = [Pair("Kernel  Usage\n", "A"), Pair("kernel usage", "B"), Pair("JSON", "JSON")]
    assert clean(pairs) == [Pair("Kernel Usage", "A")]


def test_splits_are_disjoint_and_depend_on_the_seed_alone() -> None:
    pairs = clean(read_language_pack("ru_RU"))
    first, again, other = (split(p, 100, s) for p, s in ((pairs, 1), (pairs[::-1], 1), (pairs, 2)))
    assert first == again
    assert first != other
    assert [len(part) for part in first] == [len(pairs) - 200, 100, 100]
    assert sorted(sum(first, [])) == sorted(pairs)


def test_too_small_a_corpus_is_refused() -> None:
    with pytest.raises(CorpusError, match="2 different pairs"):
        split([Pair("a", "b"), Pair("c", "d")], 1, 1)


def test_every_example_is_in_one_batch_with_its_like() -> None:
    lengths = [i % 40 for i in range(1000)]
    batches = SimilarLengths(lengths, 64, seed=1)
    first, second = list(batches), list(batches)
    assert len(batches) == len(first) == 16
    assert sorted(sum(first, [])) == list(range(1000))
    assert first != second
    assert first == list(SimilarLengths(lengths, 64, seed=1))
    spans = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in first]
    assert max(spans) <= 6


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TranslationData:
    folder = tmp_path_factory.mktemp("mt")
    return TranslationData(workdir=str(folder), vocabulary=400, held_out=20, max_tokens=12)


@pytest.fixture
def model(data: TranslationData) -> Translator:
    torch.manual_seed(0)
    model = Translator(
        data.source_size, data.target_size, width=16, output_width=6, heads=2, layers=1
    )
    return model.eval()


def test_labels_name_every_class_in_order(data: TranslationData) -> None:
    labels = data.labels_file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert len(labels) == data.target_size
    assert [labels[i] for i in (PAD, BOS, EOS)] == ["<pad>", "<s>", "</s>"]
    assert len(set(labels)) == len(labels)


def test_subwords_give_the_text_back(data: TranslationData) -> None:
    assert isinstance(data.splits, Splits)
    text = min((pair.target for pair in data.splits.train), key=len)
    assert data.target.decode(data.target.encode(text)) == text


def test_batches_are_padded_and_marked(data: TranslationData) -> None:
    batch = next(iter(data.train_dataloader()))
    assert isinstance(batch, Batch)
    assert (batch.target[:, 0] == BOS).all()
    for side in batch:
        assert ((side == EOS).sum(1) == 1).all()
        after = (side == EOS).cumsum(1) - (side == EOS).int()
        assert ((side == PAD) == after.bool()).all()


def test_output_layer_is_tied_to_the_target_embedding(model: Translator) -> None:
    assert model.generator.weight is model.target_embedding.weight
    assert model.generator.bias.shape == (model.generator.out_features,)
    names = [name for name, _ in model.named_parameters()]
    assert "target_embedding.weight" in names
    assert "generator.weight" not in names


def test_logits_have_a_row_a_position(model: Translator, data: TranslationData) -> None:
    batch = collate([data.encode(pair) for pair in data.splits.test[:5]])
    logits = model(batch.source, batch.target)
    assert logits.shape == (5, batch.target.shape[1], data.target_size)
    assert logits.isfinite().all()


def test_no_position_sees_the_future_or_padding(model: Translator, data: TranslationData) -> None:
    one, other = (data.encode(pair) for pair in (data.splits.test[0], data.splits.test[-1]))
    alone, together = collate([one]), collate([one, other])
    length = alone.target.shape[1]
    expected = model(alone.source, alone.target)[0]
    torch.testing.assert_close(model(together.source, together.target)[0, :length], expected)
    prefix = model(alone.source, alone.target[:, :2])[0]
    torch.testing.assert_close(prefix, expected[:2])


def test_greedy_takes_the_argmax_until_the_end(model: Translator, data: TranslationData) -> None:
    batch = collate([data.encode(pair) for pair in data.splits.test[:4]])
    for row, tokens in zip(batch.source, model.greedy(batch.source), strict=True):
        assert len(tokens) <= 2 * batch.source.shape[1] + 5
        assert not {PAD, BOS, EOS} & set(tokens)
        logits = model(row[None], torch.tensor([[BOS, *tokens]]))[0]
        logits[:, [PAD, BOS]] = -torch.inf
        assert logits.argmax(-1)[: len(tokens)].tolist() == tokens


def test_greedy_stops_at_the_end_symbol(model: Translator) -> None:
    with torch.no_grad():
        model.generator.bias[EOS] = 1e4
    assert model.greedy(torch.tensor([[5, EOS], [6, EOS]])) == [[], []]


def test_two_real_steps_train_and_the_file_loads_safely(
    model: Translator, data: TranslationData, tmp_path: Path
) -> None:
    before = model.generator.weight.detach().clone()
    trainer = pl.Trainer(
        max_steps=2,
        limit_val_batches=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)
    assert trainer.global_step == 2
    assert not torch.equal(model.generator.weight, before)
    scores = trainer.test(model, datamodule=data, verbose=False)[0]
    assert {"test/loss", "test/bleu", "test/chrf"} <= set(scores)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    saved = torch.load(tmp_path / "model.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(saved["generator.weight"], saved["target_embedding.weight"])


def test_a_bad_corpus_ends_the_script_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import train_mt

    corpus = tmp_path / "bad.tsv"
    corpus.write_text("no tab here\n", encoding="utf-8")
    arguments = ["--config", str(CONFIG), "--corpus", str(corpus), "--workdir", str(tmp_path)]
    assert train_mt.main(arguments) == 2
    assert capsys.readouterr().err.strip().startswith(f"train_mt: {corpus}, line 1:")


def test_a_short_run_ends_with_two_results_that_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import train_mt

    status = train_mt.main(
        ["--config", str(CONFIG), "--workdir", str(tmp_path), "--data.vocabulary", "300"]
        + ["--trainer.max_epochs", "1", "--trainer.max_steps", "3", "--data.held_out", "10"]
        + ["--model.width", "16", "--model.output_width", "4", "--model.layers", "1"]
        + ["--trainer.enable_progress_bar", "false"]
    )
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "The two agree, on every token." in printed
    assert (tmp_path / "model.ckpt").exists()
    assert list(tmp_path.rglob("events.out.tfevents.*"))


@pytest.mark.slow
def test_the_demo_shows_what_it_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    import train_mt

    assert train_mt.main(["--config", str(CONFIG), "--workdir", str(tmp_path)]) == 0
    assert "The two agree, on every token." in capsys.readouterr().out
    events = EventAccumulator(str(next(tmp_path.rglob("events.out.tfevents.*")).parent))
    events.Reload()
    provable = [event.value for event in events.Scalars("unarg/generator/provable")]
    assert max(provable) > 0
    assert len(set(provable)) > 1
    assert events.Scalars("unarg/generator/undecided")[-1].value == 0
    assert events.Scalars("test/bleu")[-1].value > 1
