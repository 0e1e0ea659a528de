"""How a multilabel head makes a label set of its logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unarg_callback.errors import UnargError


class RuleError(UnargError):
    """A parameter of a rule is out of range."""


@dataclass(frozen=True, eq=False)
class ThresholdRule:
    """Label i is on where ``z_i > threshold_i``; 0 is a sigmoid above one half.

    Args:
        thresholds: a number or (K,), in units of the logits. A sigmoid's own threshold p is
            ``log(p / (1 - p))`` here.

    Raises:
        RuleError: a threshold is NaN or infinite, or has more than one dimension.
    """

    thresholds: ArrayLike = 0.0

    def __post_init__(self) -> None:
        try:
            values = np.asarray(self.thresholds, dtype=np.float64)
        except (TypeError, ValueError, RuntimeError) as cause:
            raise RuleError(
                f"thresholds are {self.thresholds!r}; expected a number, or one a label"
            ) from cause
        if values.ndim > 1 or not np.isfinite(values).all():
            raise RuleError(
                f"thresholds have shape {values.shape}, or aren't finite; expected a finite number "
                "or one a label"
            )

    def vector(self, labels: int) -> NDArray[np.float64]:
        """(K,) thresholds.

        Raises:
            RuleError: there are thresholds for another number of labels.
        """
        values = np.asarray(self.thresholds, dtype=np.float64)
        if values.ndim and len(values) != labels:
            raise RuleError(f"{len(values)} thresholds for {labels} labels; expected one a label")
        return np.broadcast_to(values, labels).copy()

    def __str__(self) -> str:
        values = np.asarray(self.thresholds)
        return f"threshold {float(values):g}" if values.ndim == 0 else "thresholds"


@dataclass(frozen=True)
class TopRule:
    """The set holds the |S| largest logits, for any |S|.

    Every rule that keeps the order of the logits gives such a set, a softmax with a threshold among
    them: what is out of reach here is out of reach for it. The reverse does not hold.
    """

    def __str__(self) -> str:
        return "largest logits"


@dataclass(frozen=True)
class SparsegenRule:
    """The support of sparsegen-lin; ``lambda_=0`` is sparsemax.

    Args:
        lambda_: below 1.

    Raises:
        RuleError: lambda isn't finite and below 1.
    """

    lambda_: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lambda_", _number("lambda", self.lambda_))
        if not (math.isfinite(self.lambda_) and self.lambda_ < 1):
            raise RuleError(f"lambda is {self.lambda_}; expected a finite number below 1")

    def __str__(self) -> str:
        near = f"{self.lambda_:g}"
        return f"sparsegen-lin {near if float(near) < 1 else repr(self.lambda_)}"


@dataclass(frozen=True)
class SparsehourglassRule:
    """The support of sparsehourglass.

    Args:
        q: from 0; infinity, and any q so large that Kq is, is sparsemax.

    Raises:
        RuleError: q is negative or NaN.
    """

    q: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", _number("q", self.q))
        if not self.q >= 0:
            raise RuleError(f"q is {self.q}; expected a number from 0, or infinity")

    def __str__(self) -> str:
        return f"sparsehourglass {self.q:g}"


def _number(what: str, value: object) -> float:
    """A parameter as a float.

    Raises:
        RuleError: it is no single number.
    """
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError) as cause:
        raise RuleError(f"{what} is {value!r}; expected one number") from cause


Rule: TypeAlias = ThresholdRule | TopRule | SparsegenRule | SparsehourglassRule


def parse_rule(text: str) -> Rule:
    """The rule that a text names, as configuration files have it.

    Args:
        text: "threshold" or "threshold:T", "top", "sparsemax", "sparsegen:LAMBDA" or
            "sparsehourglass:Q".

    Raises:
        RuleError: it names none, or the parameter is out of range.

    >>> parse_rule("sparsegen:-3"), parse_rule("top")
    (SparsegenRule(lambda_=-3.0), TopRule())
    """
    if not isinstance(text, str):
        raise RuleError(f"rule is {text!r}; expected text such as 'threshold:0'")
    name, colon, parameter = (part.strip() for part in text.partition(":"))
    try:
        if name == "threshold":
            return ThresholdRule(float(parameter) if colon else 0.0)
        if name == "sparsegen" and colon:
            return SparsegenRule(float(parameter))
        if name == "sparsehourglass" and colon:
            return SparsehourglassRule(float(parameter))
    except ValueError as cause:
        if isinstance(cause, RuleError):
            raise
        raise RuleError(f"rule is {text!r}; expected a number after the colon") from cause
    if not colon and name == "top":
        return TopRule()
    if not colon and name == "sparsemax":
        return SparsegenRule(0.0)
    raise RuleError(
        f"rule is {text!r}; expected 'threshold:T', 'top', 'sparsemax', 'sparsegen:LAMBDA' or "
        "'sparsehourglass:Q'"
    )
