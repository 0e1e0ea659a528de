"""What the figure of a study of attention shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mt.attention_log import cross_attention, pieces
from mt.data import TranslationData, collate
from mt.heat_map import Sentence
from mt.model import Translator
from mt.study import Grid, Result, folder, quiet
from mt.training import set_up


class DrawingError(ValueError):
    """The study has nothing like what is to be drawn; the message says what it has."""


@dataclass(frozen=True)
class Drawing:
    """Test sentences down, models across.

    Attributes:
        models: labels of results, such as ``softmax`` and ``sparsegen_lin, lambda = -4``; of the
            study's first seed.
        sentences: places in the test set, which is in order of the sources' lengths.
        layer: of the decoder.
        head: one head, or None for the mean over heads.
    """

    models: list[str]
    sentences: list[int]
    layer: int = -1
    head: int | None = None

    def check(self, attentions: Sequence[Grid]) -> None:
        """See that the models will be there.

        Raises:
            DrawingError: one won't.
        """
        known = [label for grid in attentions for label in grid.labels]
        for model in self.models:
            if model not in known:
                raise DrawingError(
                    f"no model {model!r} to draw; expected one of: {'; '.join(known)}"
                )


def panels(
    results: Sequence[Result], drawing: Drawing, training: Sequence[str], workdir: Path
) -> list[Sentence]:
    """Read the models from their folders, and let them attend.

    The references are the decoder's input, so that all models have the same target tokens.

    Args:
        results: of the study.
        drawing: what to draw.
        training: arguments for ``train_mt.py`` that all trainings share.
        workdir: of the models' folders.

    Raises:
        DrawingError: there is no such sentence, layer or head.
    """
    first = {result.label: result for result in reversed(results)}
    folders = [folder(workdir, first[label]) for label in drawing.models]
    with quiet():
        data = set_up([*training, "--workdir", str(folders[0])]).datamodule
    models = [
        Translator.load_from_checkpoint(place / "model.ckpt", map_location="cpu").eval()
        for place in folders
    ]
    try:
        return [_sentence(data, models, drawing, place) for place in drawing.sentences]
    except IndexError as cause:
        raise DrawingError(
            f"{drawing} has a sentence, layer or head that there isn't; expected sentences from 0 "
            f"to {len(data.splits.test) - 1}, and layers and heads as in the configuration"
        ) from cause


def _sentence(
    data: TranslationData, models: Sequence[Translator], drawing: Drawing, place: int
) -> Sentence:
    batch = collate([data.encode(data.splits.test[place])])
    shown = []
    for model in models:
        heads = cross_attention(model, batch)[drawing.layer][0]
        shown.append(heads.mean(0) if drawing.head is None else heads[drawing.head])
    source, target = batch.source[0], batch.target[0, 1:]
    return Sentence(pieces(data.source, source), pieces(data.target, target), shown)
