"""Find, and prove, the classes that an output layer can never predict.

Names are imported when first used, so that the command line starts quickly and the package can be
used without Lightning.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unarg_callback.callback import UnargmaxabilityMonitor
    from unarg_callback.dashboards.json_lines import JsonLines
    from unarg_callback.dashboards.summary_writer import TensorBoardDashboard
    from unarg_callback.errors import CheckpointError, DomainError, LayerError, UnargError
    from unarg_callback.geometry.checker import Verdict, check
    from unarg_callback.geometry.domain import Domain
    from unarg_callback.geometry.layer import OutputLayer
    from unarg_callback.geometry.proof import Certificate, Proofs, Status, Witness
    from unarg_callback.hf import UnargmaxabilityTrainerCallback
    from unarg_callback.incremental import IncrementalVerifier
    from unarg_callback.monitoring.monitor import Monitor
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
    "JsonLines": "dashboards.json_lines",
    "LayerError": "errors",
    "Monitor": "monitoring.monitor",
    "OutputLayer": "geometry.layer",
    "Proofs": "geometry.proof",
    "Report": "report",
    "Status": "geometry.proof",
    "TensorBoardDashboard": "dashboards.summary_writer",
    "UnargError": "errors",
    "UnargmaxabilityMonitor": "callback",
    "UnargmaxabilityTrainerCallback": "hf",
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
    "JsonLines",
    "LayerError",
    "Monitor",
    "OutputLayer",
    "Proofs",
    "Report",
    "Status",
    "TensorBoardDashboard",
    "UnargError",
    "UnargmaxabilityMonitor",
    "UnargmaxabilityTrainerCallback",
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
