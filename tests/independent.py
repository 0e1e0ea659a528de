"""The independent checker of proof files, as the tests use it: :mod:`unarg_callback.recheck`."""

from __future__ import annotations

from unarg_callback.recheck import (
    ARGMAXABLE,
    EXCLUDED,
    UNARGMAXABLE,
    UNDECIDED,
    ExactLayer,
    InexactError,
    RecheckError,
    Summary,
    WrongProofError,
    check_proofs,
    integers,
    power,
)

__all__ = [
    "ARGMAXABLE",
    "EXCLUDED",
    "UNARGMAXABLE",
    "UNDECIDED",
    "ExactLayer",
    "InexactError",
    "RecheckError",
    "Summary",
    "WrongProofError",
    "check_proofs",
    "integers",
    "power",
]
