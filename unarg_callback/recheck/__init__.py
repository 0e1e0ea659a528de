"""Check saved proofs in exact arithmetic, with none of the code that made them.

Nothing here imports the package's layers, domains, searches or checker: only its errors. What is
believed is this: that Python's integers are exact, that NumPy converts floats to integers exactly,
and that a float64 sum is as near as IEEE 754 says.
"""

from unarg_callback.recheck.claims import (
    ARGMAXABLE,
    EXCLUDED,
    UNARGMAXABLE,
    UNDECIDED,
    Summary,
    check_proofs,
    examine,
)
from unarg_callback.recheck.errors import InexactError, RecheckError, WrongProofError
from unarg_callback.recheck.integers import integers, power
from unarg_callback.recheck.layer import ExactLayer
from unarg_callback.recheck.proof_file import read_proof_file

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
    "examine",
    "integers",
    "power",
    "read_proof_file",
]
