"""What can be wrong with saved proofs."""

from __future__ import annotations

from unarg_callback.errors import UnargError


class RecheckError(UnargError):
    """The proofs can't be read, or are of another problem than the layer's."""


class WrongProofError(RecheckError):
    """A class has a proof that doesn't hold, none though it owes one, or more than one.

    Args:
        index: the class.
        reason: what is wrong with its proof.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"class {index}: {reason}")
        self.index = index
        self.reason = reason


class InexactError(ArithmeticError):
    """The support and weights of a free certificate show no exact combination."""
