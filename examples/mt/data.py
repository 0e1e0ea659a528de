"""Subword vocabularies and batches for the translation example."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytorch_lightning as pl
import sentencepiece as spm
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

from mt.corpus import CorpusError, Pair, Splits, clean, read_language_pack, read_tsv, split

PAD, UNK, BOS, EOS = range(4)

Example = tuple[list[int], list[int]]


class Batch(NamedTuple):
    """Token ids, padded with ``PAD``; sequences end in ``EOS``, targets start at ``BOS``.

    Args:
        source: (B, S) int64.
        target: (B, T) int64.
    """

    source: Tensor
    target: Tensor

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device."""
        return Batch(self.source.to(device), self.target.to(device))


def train_subwords(lines: list[str], size: int) -> spm.SentencePieceProcessor:
    """Train a unigram SentencePiece vocabulary of ``size`` pieces, or as many as the text has."""
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        max_sentence_length=1 << 16,
        num_threads=1,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        minloglevel=2,
    )
    return spm.SentencePieceProcessor(model_proto=model.getvalue())


def collate(examples: list[Example]) -> Batch:
    """Pad a list of (source ids, target ids)."""
    columns = zip(*examples, strict=True)
    return Batch(
        *(pad_sequence([torch.tensor(ids) for ids in column], True, PAD) for column in columns)
    )


class _Examples(Dataset[Example]):
    def __init__(self, examples: list[Example]) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:
        return self._examples[index]


class SimilarLengths(Sampler[list[int]]):
    """Batches of examples of about one length, so that little of a batch is padding.

    Each pass shuffles anew, by ``seed`` and the number of the pass, both the order of the batches
    and which examples of near length share one.

    Args:
        lengths: length of each example.
        batch_size: examples a batch; the last may have fewer.
        seed: of the shuffling.
    """

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        self._lengths = lengths
        self._batch_size = batch_size
        self._seed = seed
        self._passes = 0

    def __len__(self) -> int:
        return -(-len(self._lengths) // self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        draw = random.Random(f"{self._seed} {self._passes}")
        self._passes += 1
        # Up to two tokens of noise: otherwise the same neighbours would meet in every pass.
        keys = [length + 2 * draw.random() for length in self._lengths]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        batches = [order[i : i + self._batch_size] for i in range(0, len(order), self._batch_size)]
        draw.shuffle(batches)
        return iter(batches)


class TranslationData(pl.LightningDataModule):
    """Parallel text in subwords.

    The vocabularies are trained on the training split alone. The target's pieces, which name the
    classes of the output layer, are written to ``<workdir>/target_vocabulary.txt``, one a line.

    Args:
        corpus: a file with a source, a TAB and a target on each line (``.tsv`` or ``.tsv.gz``), or
            None for the gettext catalogues of JupyterLab's language pack.
        locale: which language pack.
        workdir: where the class names are written.
        vocabulary: most pieces in each language's vocabulary.
        max_tokens: longer sentences are left out of training, and cut elsewhere.
        held_out: pairs for validation, and as many again for the test.
        batch_size: pairs a batch.
        seed: of the split and of the batches' order.
    """

    def __init__(
        self,
        corpus: str | None = None,
        locale: str = "fr_FR",
        workdir: str = "runs/mt_small",
        vocabulary: int = 4000,
        max_tokens: int = 32,
        held_out: int = 200,
        batch_size: int = 64,
        seed: int = 1,
    ) -> None:
        super().__init__()
        self.workdir = Path(workdir)
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        self.seed = seed
        pairs = read_language_pack(locale) if corpus is None else read_tsv(corpus)
        if held_out < 1:
            raise CorpusError(f"held_out is {held_out}; expected at least 1 pair to test on")
        train, *held = split(clean(pairs), held_out, seed)
        # By length, or one long sentence would pad every batch of short ones.
        valid, test = (sorted(part, key=lambda pair: len(pair.source)) for part in held)
        self.splits = Splits(train, valid, test)
        self.source = train_subwords([pair.source for pair in self.splits.train], vocabulary)
        self.target = train_subwords([pair.target for pair in self.splits.train], vocabulary)
        self._training = self._whole()
        if not self._training:
            raise CorpusError(
                f"all {len(train)} sentences are longer than max_tokens ({max_tokens}); expected "
                "shorter ones, or a larger --data.max_tokens"
            )
        self.workdir.mkdir(parents=True, exist_ok=True)
        pieces = [self.target.id_to_piece(i) for i in range(self.target_size)]
        self.labels_file.write_text("\n".join(pieces) + "\n", encoding="utf-8")

    @property
    def labels_file(self) -> Path:
        """Names of the target's pieces, one a line."""
        return self.workdir / "target_vocabulary.txt"

    @property
    def source_size(self) -> int:
        """Pieces in the source vocabulary."""
        return int(self.source.vocab_size())

    @property
    def target_size(self) -> int:
        """Pieces in the target vocabulary: classes of the output layer."""
        return int(self.target.vocab_size())

    def encode(self, pair: Pair) -> Example:
        """Token ids of a pair, cut to ``max_tokens`` each."""
        source = self.source.encode(pair.source)[: self.max_tokens]
        target = self.target.encode(pair.target)[: self.max_tokens]
        return [*source, EOS], [BOS, *target, EOS]

    def _whole(self) -> list[Example]:
        """The examples to train on: those that ``max_tokens`` leaves whole."""
        examples = [self.encode(pair) for pair in self.splits.train]
        # BOS and EOS come on top of the tokens; a sentence at the limit may have been cut.
        return [e for e in examples if max(len(e[0]) - 1, len(e[1]) - 2) < self.max_tokens]

    def train_dataloader(self) -> DataLoader[Example]:
        """Batches of the training split, in an order that depends on ``seed`` and the epoch."""
        lengths = [len(target) for _, target in self._training]
        batches = SimilarLengths(lengths, self.batch_size, self.seed)
        return DataLoader(_Examples(self._training), batch_sampler=batches, collate_fn=collate)

    def val_dataloader(self) -> DataLoader[Example]:
        """Batches of the validation split, in its order."""
        return self._in_order(self.splits.valid)

    def test_dataloader(self) -> DataLoader[Example]:
        """Batches of the test split, in its order."""
        return self._in_order(self.splits.test)

    def _in_order(self, pairs: list[Pair]) -> DataLoader[Example]:
        examples = _Examples([self.encode(pair) for pair in pairs])
        return DataLoader(examples, batch_size=self.batch_size, collate_fn=collate)
