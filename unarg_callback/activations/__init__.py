"""Maps from scores to probabilities, most of them sparse, as functions and as modules.

All take ``dim`` and an explicit ``mask``, have gradients for scores and parameters, and work under
``torch.compile``, ``torch.func``, ``torch.export`` and autocast. Half precision is computed in
float32. ``docs/sparse_maps.md`` says which to use when.
"""

from unarg_callback.activations.parameters import ParameterError
from unarg_callback.activations.scores import ScoresError
from unarg_callback.activations.softmax import Softmax, softmax
from unarg_callback.activations.sparsecone import Sparsecone, sparsecone
from unarg_callback.activations.sparsegen import Sparsegen, sparsegen
from unarg_callback.activations.sparsehourglass import Sparsehourglass, sparsehourglass
from unarg_callback.activations.sparsemax import Sparsemax, sparsemax
from unarg_callback.activations.spherical_softmax import SphericalSoftmax, spherical_softmax
from unarg_callback.activations.sum_normalization import SumNormalization, sum_normalization
from unarg_callback.activations.sum_normalization_pp import SumNormalizationPP, sum_normalization_pp
from unarg_callback.activations.support import lambda_for_support

__all__ = [
    "ParameterError",
    "ScoresError",
    "Softmax",
    "Sparsecone",
    "Sparsegen",
    "Sparsehourglass",
    "Sparsemax",
    "SphericalSoftmax",
    "SumNormalization",
    "SumNormalizationPP",
    "lambda_for_support",
    "softmax",
    "sparsecone",
    "sparsegen",
    "sparsehourglass",
    "sparsemax",
    "spherical_softmax",
    "sum_normalization",
    "sum_normalization_pp",
]
