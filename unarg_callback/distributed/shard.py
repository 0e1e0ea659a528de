"""One rank's rows of a layer whose rows lie on several, and where they stand in the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import LayerError
from unarg_callback.geometry.layer import OutputLayer


class Shard:
    """The rows of this rank, between those of the ranks before and after it.

    Classes that take part are numbered 0 to A - 1 over all ranks, in the order of ranks; the rank
    that holds a row is its owner. A collective.

    Args:
        local: this rank's rows, names and excluded ids counted from 0; None where it has none.
        ranks: who have the others.

    Raises:
        LayerError: the parts don't make one layer, on every rank.
    """

    def __init__(self, local: OutputLayer | None, ranks: Ranks) -> None:
        self.ranks = ranks
        parts = ranks.gather(None if local is None else _described(local))
        present = [part for part in parts if part is not None]
        if not present:
            raise LayerError("no rank has rows of the layer; expected some on at least one")
        for what in ("features", "dtype", "names"):
            found = {str(part[what]) for part in present}
            if len(found) > 1:
                raise LayerError(
                    f"the parts of the layer differ in {what}: {', '.join(sorted(found))}; "
                    "expected the same on every rank that has rows"
                )
        dim = present[0]["features"]
        # A layer of no class is one whose only class takes no part.
        nobody = OutputLayer(torch.zeros(1, dim, device="cpu"), excluded=[0])
        self.layer: OutputLayer = nobody if local is None else local
        """This rank's rows."""
        sizes = [0 if part is None else int(part["classes"]) for part in parts]
        taking_part = [0 if part is None else len(part["active"]) for part in parts]
        rank = ranks.rank
        self.classes: int = sum(sizes)
        """C, excluded classes of all ranks included."""
        self.active: NDArray[np.int64] = np.concatenate(
            [part["active"] + sum(sizes[:at]) for at, part in enumerate(parts) if part is not None]
        )
        """(A,) ids of the classes that take part, over all ranks."""
        self.first: int = sum(taking_part[:rank])
        """Position of the first of this rank's classes."""
        self.count: int = taking_part[rank]
        """How many of them there are."""

    @property
    def total(self) -> int:
        """A, over all ranks."""
        return len(self.active)

    @property
    def dim(self) -> int:
        """d, the number of features."""
        return self.layer.dim

    def local(self, positions: Tensor) -> Tensor:
        """(n,) int64, positions among this rank's classes; -1 for those of others."""
        at = positions - self.first
        return torch.where((at >= 0) & (at < self.count), at, -1)

    def fetch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of any classes, exactly, from their owners. A collective.

        Args:
            positions: (n,) int64 on the CPU, the same on every rank.

        Returns:
            (n, d) rows and (n,) biases, float64 on the CPU.
        """
        own = torch.zeros(len(positions), self.dim + 1, dtype=torch.float64, device="cpu")
        at = self.local(positions)
        here = (at >= 0).nonzero().squeeze(1)
        ids = self.layer.active[at[here]]
        own[here, :-1] = self.layer.rows(ids).cpu()
        own[here, -1] = self.layer.biases(ids).cpu()
        # Of all but one of the ranks each row is 0, so that the sum is exact.
        table = self.ranks.total(own)
        return table[:, :-1], table[:, -1]

    def names(self) -> tuple[str, ...] | None:
        """The names of all C classes, or None. A collective."""
        parts = self.ranks.gather(self.layer.names)
        present = [part for part in parts if part is not None]
        return tuple(name for part in present for name in part) if present else None


def _described(layer: OutputLayer) -> dict[str, Any]:
    layer.require_plain_values()
    return {
        "classes": layer.classes,
        "features": layer.dim,
        "dtype": layer.weight.dtype,
        "names": "some" if layer.names is not None else "none",
        "active": layer.active.numpy(),
    }
