"""What the decoder attends to: average support, and heat maps, in TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor, nn

from mt.data import BOS, EOS, PAD, Batch, Example, TranslationData, collate
from mt.heat_map import draw
from mt.model import Translator


class AttentionLog(pl.Callback):
    """Log, at each validation, how the decoder's layers attend to the source.

    ``attention/support/layer_N`` is the mean number of source tokens with a weight above 0, over
    target tokens and heads; ``attention/length`` is the mean number that there are. Heat maps have
    one panel a head, source tokens across, and down the target tokens that are to be predicted; the
    decoder's input are the references.

    Args:
        sentences: how many sentences are drawn.
        tokens: those whose sources and targets are nearest to this length.
    """

    def __init__(self, sentences: int = 2, tokens: int = 10) -> None:
        self.sentences = sentences
        self.tokens = tokens
        self._drawn: list[Example] = []

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget the sentences of the last validation."""
        self._drawn = []

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log a batch's support, and keep the sentences to draw."""
        if trainer.sanity_checking:
            return
        assert isinstance(pl_module, Translator)
        nonzero, lengths = support(cross_attention(pl_module, batch), batch)
        for number, mean in enumerate(nonzero.mean(1)):
            tag = f"attention/support/layer_{number}"
            pl_module.log(tag, mean, batch_size=len(lengths))
        pl_module.log("attention/length", lengths.mean(), batch_size=len(lengths))
        self._drawn = nearest([*self._drawn, *unpadded(batch)], self.tokens, self.sentences)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw."""
        assert isinstance(pl_module, Translator)
        data = trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, TranslationData)
        boards = [log.experiment for log in trainer.loggers if isinstance(log, TensorBoardLogger)]
        for place, sentence in enumerate(self._drawn):
            batch = collate([sentence]).to(pl_module.device)
            source = pieces(data.source, batch.source[0])
            target = pieces(data.target, batch.target[0, 1:])
            for number, layer in enumerate(cross_attention(pl_module, batch)):
                for board in boards:
                    tag = f"attention/sentence_{place}/layer_{number}"
                    draw(board, tag, layer[0].float().cpu(), source, target, trainer.global_step)


def cross_attention(model: Translator, batch: Batch) -> list[Tensor]:
    """Weights (B, heads, T, S) of each decoder layer, with the references as its input."""
    found: list[Tensor] = []
    modules = [layer.multihead_attn for layer in model.decoder.layers]
    with torch.no_grad(), _weights_kept(modules, found):
        model(batch.source, batch.target[:, :-1])
    return found


def support(weights: list[Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
    """How many source tokens are attended to at each of the batch's N target tokens.

    Args:
        weights: from :func:`cross_attention`.
        batch: the same batch.

    Returns:
        (layers, N) float32, the number of nonzero weights, a mean over heads, and (N,) float32, the
        number of source tokens that there are.
    """
    target = batch.target[:, 1:] != PAD
    nonzero = [(layer > 0).sum(-1).float().mean(1)[target] for layer in weights]
    lengths = (batch.source != PAD).sum(-1, keepdim=True).expand_as(target)[target]
    return torch.stack(nonzero), lengths.float()


def unpadded(batch: Batch) -> list[Example]:
    """Token ids of each of a batch's pairs."""
    rows = zip(batch.source.tolist(), batch.target.tolist(), strict=True)
    return [
        ([i for i in source if i != PAD], [i for i in target if i != PAD])
        for source, target in rows
    ]


def nearest(examples: Sequence[Example], tokens: int, number: int) -> list[Example]:
    """Return the ``number`` pairs whose heat maps are nearest to ``tokens`` high and wide."""

    def distance(example: Example) -> int:
        source, target = example
        # The first of the target is the start symbol, which is not predicted.
        return abs(len(source) - tokens) + abs(len(target) - 1 - tokens)

    return sorted(examples, key=distance)[:number]


def pieces(vocabulary: Any, ids: Tensor) -> list[str]:
    """Names of (L,) token ids, without padding."""
    named = {BOS: "<s>", EOS: "</s>"}
    return [named.get(i) or vocabulary.id_to_piece(i) for i in ids.tolist() if i != PAD]


@contextmanager
def _weights_kept(modules: list[Any], found: list[Tensor]) -> Iterator[None]:
    """Have attentions, PyTorch's or ours, return the weights that the decoder doesn't ask for."""

    def ask(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        more = {"need_weights": True}
        if isinstance(module, nn.MultiheadAttention):
            more["average_attn_weights"] = False
        return args, {**kwargs, **more}

    def keep(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> None:
        found.append(output[1])

    hooks = [module.register_forward_pre_hook(ask, with_kwargs=True) for module in modules]
    hooks += [module.register_forward_hook(keep) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
