"""Which classes can be among the K best, with a proof of each verdict."""

from __future__ import annotations

from unarg_callback.top_k.proof import Reach, TopKCertificate, TopKWitness, check_top_k_proof
from unarg_callback.top_k.verification import TopKReport, verify_top_k

__all__ = [
    "Reach",
    "TopKCertificate",
    "TopKReport",
    "TopKWitness",
    "check_top_k_proof",
    "verify_top_k",
]
