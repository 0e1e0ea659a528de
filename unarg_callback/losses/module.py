"""What the losses' modules have in common."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from unarg_callback.losses.targets import Empty, Reduction, check_options


class Loss(nn.Module):
    """The options of a loss.

    Args:
        dim: the dimension of the classes.
        weight: (K,) weights of the classes.
        ignore_index: the class index of rows to ignore.
        empty: what to do with rows without labels.
        reduction: "mean", "sum" or "none".

    Raises:
        TargetError: an option is unknown.
    """

    weight: Tensor | None

    def __init__(
        self,
        *,
        dim: int = -1,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        empty: Empty = "ignore",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_options(empty, reduction)
        self.register_buffer("weight", weight)
        self.dim = dim
        self.ignore_index = ignore_index
        self.empty: Empty = empty
        self.reduction: Reduction = reduction

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments that all functions share."""
        return {
            "dim": self.dim,
            "weight": self.weight,
            "ignore_index": self.ignore_index,
            "empty": self.empty,
            "reduction": self.reduction,
        }

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"dim={self.dim}, reduction={self.reduction!r}"
