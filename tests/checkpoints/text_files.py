"""A few lines of text, and vocabularies that the real libraries make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

LINES = [
    "the cat sat on the mat",
    "a dog ran over the hill",
    "кот сидел на ковре",
    "собака бежала через холм",
] * 5


def sentencepiece_model(prefix: Path, **options: Any) -> Path:
    """``PREFIX.model`` and ``PREFIX.vocab``, trained on the lines."""
    package = pytest.importorskip("sentencepiece")
    package.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_prefix=str(prefix),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return prefix.with_name(prefix.name + ".model")


def pieces(path: Path) -> list[str]:
    """The pieces as the package itself lists them."""
    package = pytest.importorskip("sentencepiece")
    model = package.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(index) for index in range(model.get_piece_size())]


def fast_tokenizer(kind: str) -> Any:
    """A trained ``tokenizers.Tokenizer`` of the kind BPE, Unigram, WordLevel or WordPiece."""
    package = pytest.importorskip("tokenizers")
    models, trainers = package.models, package.trainers
    specials = ["<unk>", "<pad>", "</s>"]
    unknown = {} if kind == "Unigram" else {"unk_token": "<unk>"}
    tokenizer = package.Tokenizer(getattr(models, kind)(**unknown))
    tokenizer.pre_tokenizer = package.pre_tokenizers.Whitespace()
    options = {"unk_token": "<unk>"} if kind == "Unigram" else {}
    trainer = getattr(trainers, f"{kind.replace('BPE', 'Bpe')}Trainer")(
        vocab_size=70, special_tokens=specials, show_progress=False, **options
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer
