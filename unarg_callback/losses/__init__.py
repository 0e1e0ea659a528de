"""Losses of scores and labels for the sparse maps: convex, 0 where a map gives the target.

All take class indices, label sets or, but for sparsehourglass, distributions; and ``dim``,
``mask``, weights, ``ignore_index`` and ``reduction`` as ``torch.nn`` has them.
"""

from unarg_callback.losses.softmax_log import SoftmaxLogLoss, softmax_log_loss
from unarg_callback.losses.sparsegen_hinge import SparsegenHingeLoss, sparsegen_hinge_loss
from unarg_callback.losses.sparsegen_huber import SparsegenHuberLoss, sparsegen_huber_loss
from unarg_callback.losses.sparsehourglass_hinge import (
    SparsehourglassHingeLoss,
    sparsehourglass_hinge_loss,
)
from unarg_callback.losses.sparsemax_huber import SparsemaxHuberLoss, sparsemax_huber_loss
from unarg_callback.losses.targets import TargetError

__all__ = [
    "SoftmaxLogLoss",
    "SparsegenHingeLoss",
    "SparsegenHuberLoss",
    "SparsehourglassHingeLoss",
    "SparsemaxHuberLoss",
    "TargetError",
    "softmax_log_loss",
    "sparsegen_hinge_loss",
    "sparsegen_huber_loss",
    "sparsehourglass_hinge_loss",
    "sparsemax_huber_loss",
]
