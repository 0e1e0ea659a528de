"""Which label sets a multilabel head can output at all, with a proof of each verdict."""

from __future__ import annotations

from unarg_callback.absolute import AbsoluteReport, verify_absolute
from unarg_callback.label_sets.head import LabelHead, LabelSetError
from unarg_callback.label_sets.incremental import IncrementalLabelSets
from unarg_callback.label_sets.proof import Combination, SetCertificate, SetStatus, SetWitness
from unarg_callback.label_sets.report import LabelSetReport, SetReuse
from unarg_callback.label_sets.rules import (
    Rule,
    RuleError,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
    parse_rule,
)
from unarg_callback.label_sets.verification import check_label_set_proof, verify_label_sets

__all__ = [
    "AbsoluteReport",
    "Combination",
    "IncrementalLabelSets",
    "LabelHead",
    "LabelSetError",
    "LabelSetReport",
    "Rule",
    "RuleError",
    "SetCertificate",
    "SetReuse",
    "SetStatus",
    "SetWitness",
    "SparsegenRule",
    "SparsehourglassRule",
    "ThresholdRule",
    "TopRule",
    "check_label_set_proof",
    "parse_rule",
    "verify_absolute",
    "verify_label_sets",
]
