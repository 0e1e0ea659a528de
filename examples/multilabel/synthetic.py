"""Synthetic documents with sets of labels, as in appendix A.6 of Laha et al. 2018."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from multilabel.data import Case, Rows, Source

_TRAIN, _VALID = 0.5, 0.2


class Synthetic(Source):
    """Bags of words, drawn from the mixture of the word distributions of a document's labels.

    Printed are: 5,000 documents, split 0.5, 0.2 and 0.3; as many words in the vocabulary as labels;
    labels without replacement; the number of labels N uniform on {m-1, m, m+1} ("mean"), uniform on
    {c-r, ..., c+r} ("range"), or Poisson ("length"), there with 200 to 2,000 words a document.

    The printed text has lost K, the values of m, c and r, the Poisson mean, and the length in the
    first two settings. The defaults are a choice: with K = 10 and c = 5, N spans 1 to K. A Poisson
    number is cut to 1, ..., K. Word distributions are scikit-learn's: uniform numbers, normalised.
    Features are word counts over the length.

    Args:
        labels: K, of labels and of words.
        documents: in all three parts together.
        length: words a document, where it doesn't vary.
        centre: c, and the Poisson mean.
        means: values of m; none leaves the setting out.
        ranges: values of r.
        lengths: words a document in the third setting.
    """

    def __init__(
        self,
        labels: int = 10,
        documents: int = 5000,
        length: int = 2000,
        centre: int = 5,
        means: Sequence[int] = (2, 3, 4, 5, 6, 7, 8, 9),
        ranges: Sequence[int] = (0, 1, 2, 3, 4),
        lengths: Sequence[int] = (200, 500, 1000, 1500, 2000),
    ) -> None:
        self.labels = labels
        self.documents = documents
        self.length = length
        self.centre = centre
        self.means = means
        self.ranges = ranges
        self.lengths = lengths

    def cases(self, seed: int) -> Iterator[Case]:
        """Return a data set for each value of each setting."""
        for mean in self.means:
            yield self._case("mean", mean, self._uniform(mean, 1, seed), self.length, seed)
        for spread in self.ranges:
            sizes = self._uniform(self.centre, spread, seed)
            yield self._case("range", spread, sizes, self.length, seed)
        for length in self.lengths:
            sizes = np.random.default_rng([seed, 1]).poisson(self.centre, self.documents)
            yield self._case("length", length, sizes, length, seed)

    def _uniform(self, centre: int, spread: int, seed: int) -> NDArray[np.int64]:
        draw = np.random.default_rng([seed, 0])
        return draw.integers(centre - spread, centre + spread + 1, self.documents)

    def _case(
        self, setting: str, value: float, sizes: NDArray[np.int64], length: int, seed: int
    ) -> Case:
        rows = documents(sizes.clip(1, self.labels), length, self.labels, seed)
        train, valid = round(_TRAIN * len(sizes)), round((_TRAIN + _VALID) * len(sizes))
        index = torch.arange(len(sizes))
        parts = (rows.take(index[a:b]) for a, b in ((0, train), (train, valid), (valid, None)))
        return Case(setting, value, *parts)


def documents(sizes: NDArray[np.int64], length: int, labels: int, seed: int) -> Rows:
    """Draw documents with given numbers of labels.

    Args:
        sizes: (N,) numbers of labels, from 1 to ``labels``.
        length: words a document.
        labels: K, also the number of words in the vocabulary.
        seed: of word distributions, labels and words.

    Returns:
        Word frequencies and label sets.
    """
    draw = np.random.default_rng([seed, 2])
    words = draw.random((labels, labels))
    words /= words.sum(-1, keepdims=True)
    # The first of a random order: labels without replacement.
    rank = draw.random((len(sizes), labels)).argsort(-1).argsort(-1)
    y = rank < sizes[:, None]
    mixture = y @ words / sizes[:, None]
    counts = draw.multinomial(length, mixture / mixture.sum(-1, keepdims=True))
    return Rows(torch.from_numpy(counts / length).float(), torch.from_numpy(y))
