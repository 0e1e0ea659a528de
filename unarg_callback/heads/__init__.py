"""Heads with sparse maps: sets of labels, and attention.

Their metrics are in :mod:`unarg_callback.heads.metrics`, apart because torchmetrics is slow to
import.
"""

from unarg_callback.heads.attention import AttentionError, SparseAttention
from unarg_callback.heads.multilabel import MultilabelHead
from unarg_callback.heads.named_maps import named_map
from unarg_callback.heads.threshold import best_threshold

__all__ = [
    "AttentionError",
    "MultilabelHead",
    "SparseAttention",
    "best_threshold",
    "named_map",
]
