"""A Transformer encoder-decoder whose output layer is tied to the target embedding."""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl
import sacrebleu
import torch
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mt.data import BOS, EOS, PAD, Batch, TranslationData
from mt.output_layers import as_computed, constrain
from unarg_callback.heads import SparseAttention


class Translator(pl.LightningModule):
    """Pre-norm Transformer; ``generator`` maps the narrow output of the decoder to logits.

    The hidden layers have ``width`` features, but the target embedding and the output layer, which
    share one matrix, have only ``output_width``: a projection and a LayerNorm lie between. So the
    number of target tokens that no input of the output layer can make the argmax can be chosen
    apart from how well the model translates. Real systems have the same layer at a width of a
    few hundred, where such tokens are rare; a narrow one shows within minutes what the monitor is
    for.

    Args:
        source_size: pieces of the source vocabulary.
        target_size: pieces of the target vocabulary.
        width: features of the hidden layers.
        output_width: d, features of the output layer.
        heads: attention heads.
        layers: layers in the encoder, and as many in the decoder.
        feed_forward: features inside each feed-forward block.
        dropout: share of activations dropped in training.
        label_smoothing: probability mass spread over all tokens in the training loss.
        learning_rate: the highest, reached after ``warmup_steps``; then it falls as 1/sqrt(step).
        warmup_steps: optimizer steps of linear warm-up.
        attention: map of the decoder's attention to the source, one of ``MAP_NAMES`` such as
            ``sparsegen_lin``; None for PyTorch's own attention.
        attention_lambda: of sparsegen, below 1; the larger, the fewer source tokens are attended.
        attention_q: of sparsecone and sparsehourglass.
        attention_learnable: learn lambda or q, for each head its own.
        output_layer: one of ``OUTPUT_LAYERS``: "linear", or a layer all of whose classes can win.
        output_scale: its length, scale or radius; default sqrt(output_width), which is about how
            long its inputs are.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        width: int = 128,
        output_width: int = 16,
        heads: int = 4,
        layers: int = 2,
        feed_forward: int = 256,
        dropout: float = 0.1,
        label_smoothing: float = 0.1,
        learning_rate: float = 2e-3,
        warmup_steps: int = 100,
        attention: str | None = None,
        attention_lambda: float = 0.0,
        attention_q: float = 1.0,
        attention_learnable: bool = False,
        output_layer: str = "linear",
        output_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.label_smoothing = label_smoothing
        self.source_embedding = nn.Embedding(source_size, width, padding_idx=PAD)
        self.target_embedding = nn.Embedding(target_size, output_width)
        self.widen = nn.Linear(output_width, width)
        options = (width, heads, feed_forward, dropout)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*options, batch_first=True, norm_first=True),
            layers,
            nn.LayerNorm(width),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*options, batch_first=True, norm_first=True),
            layers,
        )
        self.narrow = nn.Sequential(nn.Linear(width, output_width), nn.LayerNorm(output_width))
        self.generator = nn.Linear(output_width, target_size)
        self.generator.weight = self.target_embedding.weight
        self.dropout = nn.Dropout(dropout)
        self._reset_embeddings()
        constrain(self.generator, output_layer, output_scale)
        if attention is not None:
            # Last, so that all other parameters start as they do without.
            for layer in self.decoder.layers:
                layer.multihead_attn = SparseAttention(
                    width,
                    heads,
                    map=attention,
                    lambda_=attention_lambda,
                    q=attention_q,
                    learnable=attention_learnable,
                    dropout=dropout,
                )
        self._outputs: list[list[int]] = []

    def _reset_embeddings(self) -> None:
        # Rows of about unit length, as both an embedding and an output layer want them.
        for table in (self.source_embedding, self.target_embedding):
            nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
        nn.init.zeros_(self.source_embedding.weight[PAD])
        nn.init.zeros_(self.generator.bias)

    def encode(self, source: Tensor) -> Tensor:
        """Encode (B, S) token ids to (B, S, width)."""
        embedded = self._positioned(self.source_embedding(source))
        memory: Tensor = self.encoder(embedded, src_key_padding_mask=source == PAD)
        return memory

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """Features of the output layer for each prefix of the targets.

        Args:
            target: (B, T) token ids, ``BOS`` first.
            memory: (B, S, width), from :meth:`encode`.
            source: (B, S) token ids, for their padding.

        Returns:
            (B, T, output_width).
        """
        length = target.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        hidden = self.decoder(
            self._positioned(self.widen(self.target_embedding(target))),
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        features: Tensor = self.narrow(hidden)
        return features

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, target_size) of each target's next token."""
        logits: Tensor = self.generator(self.decode(target, self.encode(source), source))
        return logits

    @torch.no_grad()
    def greedy(self, source: Tensor) -> list[list[int]]:
        """Translate (B, S) token ids, the likeliest token at each step; ``EOS`` and after cut off.

        A translation is cut at about twice the length of the longest source of the batch.
        ``PAD`` and ``BOS`` are masked, so they are excluded from the monitor's question too.
        """
        memory = self.encode(source)
        target = torch.full((len(source), 1), BOS, device=source.device)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        for _ in range(2 * source.shape[1] + 5):
            logits = self.generator(self.decode(target, memory, source)[:, -1])
            logits[:, [PAD, BOS]] = -math.inf
            token = logits.argmax(-1).masked_fill(ended, PAD)
            target = torch.cat([target, token[:, None]], dim=1)
            ended |= token == EOS
            if ended.all():
                break
        return [_until_end(row) for row in target[:, 1:].tolist()]

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Label-smoothed cross entropy a token."""
        loss = self._loss(batch, self.label_smoothing)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Loss and translations of a validation batch."""
        self._evaluate(batch, "valid")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Loss and translations of a test batch."""
        self._evaluate(batch, "test")

    def on_validation_epoch_end(self) -> None:
        """Score the translations of the validation split."""
        self._score("valid")

    def on_test_epoch_end(self) -> None:
        """Score the translations of the test split."""
        self._score("test")

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Adam with linear warm-up and inverse square root decay, a step at a time."""
        optimizer = torch.optim.Adam(self.parameters(), lr=self.learning_rate, betas=(0.9, 0.98))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the output layer as it computes, too, to be checked without the model."""
        checkpoint["state_dict"] |= as_computed(self.generator, "generator")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave out what :meth:`on_save_checkpoint` added."""
        own = self.state_dict().keys()
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: state[name] for name in state if name in own}

    def _rate(self, step: int) -> float:
        warm = max(self.warmup_steps, 1)
        return min((step + 1) / warm, math.sqrt(warm / (step + 1)))

    def _positioned(self, embedded: Tensor) -> Tensor:
        """Scale embeddings (B, L, width) and add sinusoidal positions."""
        length, width = embedded.shape[1:]
        at = torch.arange(length, device=embedded.device)[:, None]
        rate = torch.arange(0, width, 2, device=embedded.device) * (-math.log(1e4) / width)
        angle = at * rate.exp()
        positions = torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(length, -1)
        scaled: Tensor = self.dropout(embedded * math.sqrt(width) + positions[:, :width])
        return scaled

    def _loss(self, batch: Batch, smoothing: float = 0.0) -> Tensor:
        logits = self(batch.source, batch.target[:, :-1])
        return cross_entropy(
            logits.flatten(0, 1),
            batch.target[:, 1:].flatten(),
            ignore_index=PAD,
            label_smoothing=smoothing,
        )

    def _evaluate(self, batch: Batch, stage: str) -> None:
        self.log(f"{stage}/loss", self._loss(batch), batch_size=len(batch.source))
        self._outputs += self.greedy(batch.source)

    def _score(self, stage: str) -> None:
        """Log BLEU and chrF of what was collected; a sanity check's few sentences have no score."""
        outputs, self._outputs = self._outputs, []
        if self.trainer.sanity_checking:
            return
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, TranslationData)
        pairs = data.splits.valid if stage == "valid" else data.splits.test
        texts = [data.target.decode(ids) for ids in outputs]
        references = [[pair.target for pair in pairs[: len(texts)]]]
        self.log(f"{stage}/bleu", sacrebleu.corpus_bleu(texts, references).score)
        self.log(f"{stage}/chrf", sacrebleu.corpus_chrf(texts, references).score)


def _until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(EOS)] if EOS in tokens else tokens
