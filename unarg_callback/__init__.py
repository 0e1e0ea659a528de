"""Find, and prove, the classes that an output layer can never predict.

Names are imported when first used, so that the command line starts quickly and the package can be
used without Lightning.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unarg_callback.callback import UnargmaxabilityMonitor
    from unarg_callback.errors import CheckpointError, DomainError, LayerError, UnargError
    from unarg_callback.geometry.checker import Verdict, check
    from unarg_callback.geometry.domain import Domain
    from unarg_callback.geometry.layer import OutputLayer
    from unarg_callback.geometry.proof import Certificate, Proofs, Status, Witness
    from unarg_callback.incremental import IncrementalVerifier
    from unarg_callback.report import Report
    from unarg_callback.search.chebyshev import ChebyshevCentre, chebyshev_centre
    from unarg_callback.verification import verify

__version__ = "0.1.0"

_HOME = {
    "Certificate": "geometry.proof",
    "ChebyshevCentre": "search.chebyshev",
    "CheckpointError": "errors",
    "Domain": "geometry.domain",
    "DomainError": "errors",
    "IncrementalVerifier": "incremental",
    "LayerError": "errors",
    "OutputLayer": "geometry.layer",
    "Proofs": "geometry.proof",
    "Report": "report",
    "Status": "geometry.proof",
    "UnargError": "errors",
    "UnargmaxabilityMonitor": "callback",
    "Verdict": "geometry.checker",
    "Witness": "geometry.proof",
    "chebyshev_centre": "search.chebyshev",
    "check": "geometry.checker",
    "verify": "verification",
}

__all__ = [
    "Certificate",
    "ChebyshevCentre",
    "CheckpointError",
    "Domain",
    "DomainError",
    "IncrementalVerifier",
    "LayerError",
    "OutputLayer",
    "Proofs",
    "Report",
    "Status",
    "UnargError",
    "UnargmaxabilityMonitor",
    "Verdict",
    "Witness",
    "chebyshev_centre",
    "check",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
