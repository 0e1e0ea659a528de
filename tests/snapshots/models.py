"""Small models with an output layer called decoder.generator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Decoder(nn.Module):
    def __init__(self, dim: int = 4, classes: int = 9) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, dim)
        self.hidden = nn.Linear(dim, dim)
        self.generator: Any = nn.Linear(dim, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.generator(self.hidden(inputs))
        return logits


class Model(nn.Module):
    def __init__(self, classes: int = 9) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.decoder = Decoder(classes=classes)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.encoder(inputs))
        return logits


def seeded(classes: int = 9) -> Model:
    """The same model on every rank."""
    torch.manual_seed(0)
    return Model(classes)
