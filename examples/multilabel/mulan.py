"""Data sets of the Mulan project: ARFF files, with the labels' names in an XML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.io import arff

from multilabel.data import Case, DataError, Rows, Source

Floats = NDArray[np.float64]


class Mulan(Source):
    """``NAME-train.arff``, ``NAME-test.arff`` and ``NAME.xml`` of a folder.

    Rows without labels have no target distribution. In training they would be left out by the
    loss, and are left out at once; for validation and test they stay, and whatever is predicted
    there is wrong, unless ``drop_unlabelled``.

    Args:
        name: of the data set, such as "scene".
        folder: where the files are.
        valid: share of the training rows that are held out for validation, by seed.
        drop_unlabelled: leave rows without labels out everywhere.
    """

    def __init__(
        self, name: str, folder: str, valid: float = 0.2, drop_unlabelled: bool = False
    ) -> None:
        self.name = name
        self.folder = Path(folder)
        self.valid = valid
        self.drop_unlabelled = drop_unlabelled

    def cases(self, seed: int) -> Iterator[Case]:
        """Return the one data set, with another validation split for each seed.

        Raises:
            DataError: a file can't be read, or doesn't fit.
        """
        labels = read_labels(self.folder / f"{self.name}.xml")
        parts = [
            read_arff(self.folder / f"{self.name}-{part}.arff", labels)
            for part in ("train", "test")
        ]
        if self.drop_unlabelled:
            parts = [rows.take(rows.y.any(-1)) for rows in parts]
        rows, test = parts
        order = torch.randperm(len(rows.x), generator=torch.Generator().manual_seed(seed))
        held = round(self.valid * len(rows.x))
        train = rows.take(order[held:])
        yield Case(self.name, 0.0, train.take(train.y.any(-1)), rows.take(order[:held]), test)


def read_labels(path: Path) -> list[str]:
    """Names of the labels in Mulan's XML, those of a hierarchy too.

    Raises:
        DataError: the file can't be read, or names no label.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as cause:
        raise DataError(f"{path} can't be read ({cause}); expected Mulan's XML") from cause
    names = [node.get("name", "") for node in root.iter() if node.tag.endswith("}label")]
    if not names or not all(names):
        raise DataError(f"{path} has {len(names)} labels, expected some, each with a name")
    return names


def read_arff(path: Path, labels: list[str]) -> Rows:
    """Rows of a dense ARFF file; nominal features become 0/1, one a value, labels are {0, 1}.

    Args:
        path: the file.
        labels: names of the attributes that are labels.

    Raises:
        DataError: the file can't be read, lacks a label, or has missing values.
    """
    try:
        table, meta = arff.loadarff(str(path))
    except (OSError, ValueError, NotImplementedError, StopIteration, arff.ArffError) as cause:
        reason = str(cause) or "it ends too early"
        raise DataError(f"{path} can't be read ({reason}); expected dense ARFF") from cause
    fields = {_plain(name): name for name in meta.names()}
    lacking = [name for name in labels if name not in fields]
    if lacking:
        raise DataError(f"{path} has no attribute {lacking[0]!r}, which the XML names as a label")
    features = [name for plain, name in fields.items() if plain not in set(labels)]
    x = np.concatenate([_columns(table[name], meta[name]) for name in features], axis=1)
    if not np.isfinite(x).all():
        raise DataError(f"{path} has missing or infinite values, expected numbers: fill them in")
    y = np.stack([table[fields[name]] == b"1" for name in labels], axis=1)
    return Rows(torch.from_numpy(x).float(), torch.from_numpy(y))


def _columns(values: Any, kind: tuple[str, str | Sequence[str] | None]) -> Floats:
    name, choices = kind
    if name == "nominal" and choices is not None:
        return np.stack([values == choice.encode() for choice in choices], axis=1).astype(float)
    return np.asarray(values, dtype=float)[:, None]


def _plain(name: str) -> str:
    """An attribute's name without the quotes and escapes that scipy leaves in it."""
    return name.strip("'\"").replace("\\", "")
