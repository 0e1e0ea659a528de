"""Options that say which layer of a file is meant, for every subcommand that reads one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from unarg_callback.errors import UnargError

if TYPE_CHECKING:
    from unarg_callback.checkpoints import LocatedLayer

_LARGEST = 10**18 - 1
FORMATS = (
    ".npz (also of Marian and Nematus), .pt, .pth, .bin or .ckpt (PyTorch, Lightning, fairseq, "
    "OpenNMT-py), .safetensors, .onnx, the .index.json of shards, or the folder of a transformers "
    "model; no pickle is ever executed"
)


def add_layer_options(parser: argparse.ArgumentParser) -> None:
    """Add what chooses a layer in a file; the file itself is the subcommand's own argument.

    Args:
        parser: of the subcommand.
    """
    group = parser.add_argument_group("which layer")
    group.add_argument("--weight", metavar="NAME", help="the weight, if more than one could be")
    group.add_argument("--bias", metavar="NAME", help='the bias, or "none" (default: by the name)')
    group.add_argument(
        "--orientation",
        choices=["classes-first", "features-first"],
        help="which dimension of the weight counts the classes, if the bias's length can't tell",
    )
    group.add_argument(
        "--labels",
        metavar="FILE",
        help="class names: .json (also a vocab.json or tokenizer.json), .txt, .vocab, a "
        "SentencePiece .model or a Marian .yml (default: those that the model's own files have)",
    )
    group.add_argument(
        "--exclude",
        metavar="IDS",
        type=id_ranges,
        help='classes that take no part, such as padding: 0,5,10-20, or "none" (default: those '
        "that the model's own files rule out)",
    )


def locate(file: str | Path, options: argparse.Namespace) -> LocatedLayer:
    """The layer that the options mean, with names and excluded classes, not loaded yet.

    Args:
        file: where it is.
        options: with what :func:`add_layer_options` added.

    Raises:
        UnargError: the file can't be read, or the options don't mean one layer in it.
    """
    from unarg_callback.checkpoints import locate_layer, read_labels

    located = locate_layer(file, options.weight, options.bias, options.orientation)
    if options.labels is not None:
        located = located.with_names(read_labels(options.labels, located.classes), options.labels)
    if options.exclude is None:
        return located
    outside = [span for span in options.exclude if span.stop > located.classes]
    if outside:
        raise UnargError(
            f"--exclude has id {outside[0].stop - 1}, but the layer has {located.classes} classes; "
            f"expected ids from 0 to {located.classes - 1}"
        )
    ids = {index for span in options.exclude for index in span}
    if len(ids) == located.classes:
        raise UnargError(
            f"--exclude leaves none of the {located.classes:,} classes; expected some that take "
            "part"
        )
    return located.with_excluded(sorted(ids))


def id_ranges(text: str) -> list[range]:
    """``0,5,10-20`` as ranges, which take no memory however long they are; ``none`` as none.

    Raises:
        argparse.ArgumentTypeError: a part is no id and no range of them.

    >>> id_ranges("0,10-12")
    [range(0, 1), range(10, 13)]
    """
    if text == "none":
        return []
    spans = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not _is_id(first) or (dash and not _is_id(last)):
            raise argparse.ArgumentTypeError(f"{part.strip()!r} is no id; expected 0,5,10-20")
        span = range(int(first), int(last or first) + 1)
        if not span:
            raise argparse.ArgumentTypeError(f"{part.strip()!r} ends before it starts")
        spans.append(span)
    return spans


def count(text: str) -> int:
    """A whole number from 0.

    Raises:
        argparse.ArgumentTypeError: it is none, or too large.
    """
    return whole(text, 0)


def whole(text: str, least: int) -> int:
    """A whole number from the least, with at most 18 digits.

    Args:
        text: of an option.
        least: from 0.

    Raises:
        argparse.ArgumentTypeError: it is none, or too large.
    """
    digits = text.isascii() and text.isdigit()
    if digits and not _is_id(text):
        raise argparse.ArgumentTypeError(
            f"{text[:30]!r} is too large; expected a whole number from {least} to {_LARGEST:,}"
        )
    if not digits or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text[:30]!r} is not a whole number from {least}")
    return int(text)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))
