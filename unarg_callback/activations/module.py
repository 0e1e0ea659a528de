"""What the maps' modules have in common."""

from __future__ import annotations

from torch import nn


class Map(nn.Module):
    """A map along one dimension.

    Args:
        dim: the dimension of the classes.
    """

    def __init__(self, *, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"dim={self.dim}"
