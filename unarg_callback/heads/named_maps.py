"""Maps by name, as configuration files ask for them."""

from __future__ import annotations

from unarg_callback.activations import (
    ParameterError,
    Softmax,
    Sparsecone,
    Sparsegen,
    Sparsehourglass,
    Sparsemax,
    SphericalSoftmax,
    SumNormalization,
    SumNormalizationPP,
)
from unarg_callback.activations.module import Map
from unarg_callback.activations.parameters import Parameter

MAP_NAMES = (
    "softmax",
    "sparsemax",
    "spherical_softmax",
    "sum_normalization",
    "sum_normalization_pp",
    "sparsegen_lin",
    "sparsegen_exp",
    "sparsegen_sq",
    "sparsegen_log",
    "sparsecone",
    "sparsehourglass",
)
"""What :func:`named_map` knows."""


def named_map(
    name: str,
    *,
    lambda_: Parameter = 0.0,
    q: Parameter = 1.0,
    learnable: bool = False,
    dim: int = -1,
) -> Map:
    """Make a map's module.

    Args:
        name: one of ``MAP_NAMES``.
        lambda_: below 1; of sparsegen, ignored by others.
        q: at least 0; of sparsecone and sparsehourglass, ignored by others.
        learnable: learn lambda or q.
        dim: the dimension of the classes.

    Raises:
        ParameterError: there is no such map, it has nothing to learn, or a parameter is outside of
            its range.

    Examples:
        >>> import torch
        >>> named_map("sparsegen_lin", lambda_=0.75)(torch.tensor([1.0, 0.5, -1.0]))
        tensor([1., 0., 0.])
    """
    plain: dict[str, type[Map]] = {
        "softmax": Softmax,
        "sparsemax": Sparsemax,
        "spherical_softmax": SphericalSoftmax,
        "sum_normalization": SumNormalization,
        "sum_normalization_pp": SumNormalizationPP,
    }
    if name in plain:
        if learnable:
            raise ParameterError(
                f"{name} has no parameter to learn: choose a sparsegen, sparsecone or "
                "sparsehourglass"
            )
        return plain[name](dim=dim)
    if name == "sparsecone":
        return Sparsecone(q, dim=dim, learnable=learnable)
    if name == "sparsehourglass":
        return Sparsehourglass(q, dim=dim, learnable=learnable)
    if name in MAP_NAMES:
        g = name.removeprefix("sparsegen_")
        return Sparsegen(lambda_, g=g, dim=dim, learnable=learnable)  # type: ignore[arg-type]
    raise ParameterError(f"there is no map {name!r}; expected one of {', '.join(MAP_NAMES)}")
