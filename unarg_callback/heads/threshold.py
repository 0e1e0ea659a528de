"""The probability above which a label is predicted, chosen on validation data."""

from __future__ import annotations

from torch import Tensor

from unarg_callback.losses.targets import TargetError


def best_threshold(probabilities: Tensor, target: Tensor) -> float:
    """The threshold with the highest micro-averaged F, over all thresholds of at least 0.

    Predictions change only at probabilities that occur, so each of those is tried, in one sort of
    all N K of them. What is returned lies in the middle of the best interval.

    Args:
        probabilities: (N, K) floating point.
        target: (N, K) bool or 0/1.

    Raises:
        TargetError: shapes differ, or there isn't a single label.

    Examples:
        >>> import torch
        >>> p = torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]])
        >>> round(best_threshold(p, torch.tensor([[1, 0, 0], [1, 1, 0]])), 3)
        0.3
    """
    if probabilities.shape != target.shape:
        raise TargetError(
            f"probabilities have shape {tuple(probabilities.shape)} and targets "
            f"{tuple(target.shape)}; expected the same"
        )
    p, order = probabilities.detach().flatten().double().sort(descending=True)
    hits = target.flatten().gather(0, order).bool().double().cumsum(0)
    if hits.numel() == 0 or hits[-1] == 0:
        raise TargetError("there is no label to tune a threshold on: expected at least one")
    below = p.new_zeros(p.shape)
    below[:-1] = p[1:]
    rank = p.new_ones(p.shape).cumsum(0)
    f = 2 * hits / (rank + hits[-1])
    # Equal probabilities are on one side, and none is below a threshold of 0.
    best = int(f.masked_fill(p <= below, -1.0).argmax())
    return float((p[best] + below[best]) / 2)
