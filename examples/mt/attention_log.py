"""What the decoder attends to: average support, and heat maps, in TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor, nn

from mt.data import BOS, EOS, PAD, Batch, TranslationData
from mt.heat_map import draw
from mt.model import Translator


class AttentionLog(pl.Callback):
    """Log, at each validation, how the decoder's layers attend to the source.

    ``attention/support/layer_N`` is the mean number of source tokens with a weight above 0, over
    target tokens and heads; ``attention/length`` is the mean number that there are. Heat maps have
    one panel a head, source tokens across, and down the target tokens that are to be predicted; the
    decoder's input are the references.

    Args:
        sentences: how many sentences of the first batch are drawn: its longest.
    """

    def __init__(self, sentences: int = 2) -> None:
        self.sentences = sentences

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log a batch's support, and draw the first batch's longest sentences."""
        if trainer.sanity_checking:
            return
        assert isinstance(pl_module, Translator)
        weights = cross_attention(pl_module, batch)
        target = batch.target[:, 1:] != PAD
        rows = int(target.sum())
        for number, layer in enumerate(weights):
            support = (layer > 0).sum(-1).float().mean(1)[target].mean()
            pl_module.log(f"attention/support/layer_{number}", support, batch_size=rows)
        lengths = (batch.source != PAD).sum(-1, keepdim=True).expand_as(target)[target]
        pl_module.log("attention/length", lengths.float().mean(), batch_size=rows)
        if batch_idx == 0:
            self._draw(trainer, batch, weights)

    def _draw(self, trainer: pl.Trainer, batch: Batch, weights: list[Tensor]) -> None:
        data = trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, TranslationData)
        boards = [log.experiment for log in trainer.loggers if isinstance(log, TensorBoardLogger)]
        longest = (batch.source != PAD).sum(-1).argsort(descending=True, stable=True)
        for place, i in enumerate(longest[: self.sentences].tolist()):
            source = pieces(data.source, batch.source[i])
            target = pieces(data.target, batch.target[i, 1:])
            for number, layer in enumerate(weights):
                shown = layer[i, :, : len(target), : len(source)].float().cpu()
                for board in boards:
                    tag = f"attention/sentence_{place}/layer_{number}"
                    draw(board, tag, shown, source, target, trainer.global_step)


def cross_attention(model: Translator, batch: Batch) -> list[Tensor]:
    """Weights (B, heads, T, S) of each decoder layer, with the references as its input."""
    found: list[Tensor] = []
    modules = [layer.multihead_attn for layer in model.decoder.layers]
    with torch.no_grad(), _weights_kept(modules, found):
        model(batch.source, batch.target[:, :-1])
    return found


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
