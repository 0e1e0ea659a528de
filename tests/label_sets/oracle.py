"""Exact answers about label sets, which share no code with the package but its rules' names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

from tests.label_sets.exact_simplex import Vector, maximum, rational
from unarg_callback import Domain
from unarg_callback.label_sets import (
    Combination,
    LabelHead,
    SetCertificate,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
)

CAP = 1
"""Largest margin that is looked for in the free domain."""


@dataclass(frozen=True)
class Form:
    """``slope . x + constant``."""

    slope: Vector
    constant: fmpq

    def plus(self, other: Form, factor: fmpq) -> Form:
        slope = [a + factor * b for a, b in zip(self.slope, other.slope, strict=True)]
        return Form(slope, self.constant + factor * other.constant)

    def times(self, factor: fmpq) -> Form:
        return Form([factor * a for a in self.slope], factor * self.constant)

    def at(self, point: Vector) -> fmpq:
        return sum((a * b for a, b in zip(self.slope, point, strict=True)), self.constant)


def logits(head: LabelHead) -> list[Form]:
    return [
        Form([rational(v) for v in row], rational(b))
        for row, b in zip(head.weight.tolist(), head.bias.tolist(), strict=True)
    ]


def total(forms: list[Form]) -> Form:
    whole = Form([fmpq(0)] * len(forms[0].slope), fmpq(0))
    for form in forms:
        whole = whole.plus(form, fmpq(1))
    return whole


def signs_of(head: LabelHead) -> tuple[int, ...]:
    rule = head.rule
    return (1, -1) if isinstance(rule, SparsehourglassRule) and np.isfinite(rule.q) else (1,)


def inequalities(head: LabelHead, members: list[int], sign: int) -> list[Form]:
    """``r_i`` of every label; for the largest logits ``z_i - z_j`` of every pair, halved."""
    z, rule = logits(head), head.rule
    out = [i for i in range(head.labels) if i not in members]
    if isinstance(rule, TopRule):
        return [z[i].plus(z[j], fmpq(-1)).times(fmpq(1, 2)) for i in members for j in out]
    if isinstance(rule, ThresholdRule):
        levels = np.broadcast_to(np.asarray(rule.thresholds, dtype=float), head.labels)
        excess = [Form(f.slope, f.constant - rational(t)) for f, t in zip(z, levels, strict=True)]
    else:
        gap = _gap(head, z, sign)
        tau = total([z[i] for i in members]).plus(gap, fmpq(-1)).times(fmpq(1, len(members)))
        excess = [form.plus(tau, fmpq(-1)) for form in z]
    return [f if i in members else f.times(fmpq(-1)) for i, f in enumerate(excess)]


def _gap(head: LabelHead, z: list[Form], sign: int) -> Form:
    rule, none = head.rule, [fmpq(0)] * head.dim
    if isinstance(rule, SparsegenRule):
        return Form(none, 1 - rational(rule.lambda_))
    assert isinstance(rule, SparsehourglassRule)
    if np.isinf(rule.q):
        return Form(none, fmpq(1))
    reach = head.labels * rational(rule.q)
    whole = total(z).times(fmpq(sign))
    return Form(whole.slope, whole.constant + reach).times(1 / (1 + reach))


def is_attainable(
    head: LabelHead, labels: NDArray[np.bool_], domain: Domain, min_margin: float
) -> bool:
    """Whether some x of the domain gives the set a margin above ``min_margin``; exact."""
    members = np.flatnonzero(labels).tolist()
    if isinstance(head.rule, TopRule) and len(members) in (0, head.labels):
        return True
    if not members and not isinstance(head.rule, ThresholdRule):
        return False
    threshold = rational(min_margin)
    for sign in signs_of(head):
        rows = inequalities(head, members, sign)
        several = len(signs_of(head)) > 1
        condition = total(logits(head)).times(fmpq(sign)) if several else None
        best = (
            best_free(rows, condition) if domain.is_free else best_in_box(rows, condition, domain)
        )
        if best is not None and best > threshold:
            return True
    return False


def best_in_box(rows: list[Form], condition: Form | None, domain: Domain) -> fmpq | None:
    """From the corner of the box that meets the condition best: ``x = corner + step * y``."""
    dim = len(rows[0].slope)
    low, high = ([rational(v) for v in side.tolist()] for side in domain.bounds(dim))
    upward = [condition is not None and value > 0 for value in (condition or rows[0]).slope]
    corner = [h if up else lo for lo, h, up in zip(low, high, upward, strict=True)]
    step = [fmpq(-1) if up else fmpq(1) for up in upward]
    if condition is not None and condition.at(corner) < 0:
        return None
    start = min(row.at(corner) for row in rows)
    table = [[*(-a * s for a, s in zip(f.slope, step, strict=True)), fmpq(1)] for f in rows]
    right = [row.at(corner) - start for row in rows]
    if condition is not None:
        table.append([*(-a * s for a, s in zip(condition.slope, step, strict=True)), fmpq(0)])
        right.append(condition.at(corner))
    for k in range(dim):
        table.append([fmpq(int(j == k)) for j in range(dim + 1)])
        right.append(high[k] - low[k])
    return start + maximum([*([fmpq(0)] * dim), fmpq(1)], table, right)


def best_free(rows: list[Form], condition: Form | None) -> fmpq | None:
    """At most CAP: ``x = start + y - y'``, with a start that meets the condition."""
    dim = len(rows[0].slope)
    point = [fmpq(0)] * dim
    if condition is not None and condition.constant < 0:
        square = sum((a * a for a in condition.slope), fmpq(0))
        if square == 0:
            return None
        point = [-condition.constant / square * a for a in condition.slope]
    start = min([*(row.at(point) for row in rows), fmpq(CAP)])
    table = [[*(-a for a in f.slope), *f.slope, fmpq(1)] for f in rows]
    right = [row.at(point) - start for row in rows]
    if condition is not None:
        table.append([*(-a for a in condition.slope), *condition.slope, fmpq(0)])
        right.append(condition.at(point))
    table.append([*([fmpq(0)] * (2 * dim)), fmpq(1)])
    right.append(fmpq(CAP) - start)
    return start + maximum([*([fmpq(0)] * (2 * dim)), fmpq(1)], table, right)


def exact_margin(head: LabelHead, labels: NDArray[np.bool_], point: NDArray[np.float64]) -> fmpq:
    """The margin of a set at a point."""
    members, at = np.flatnonzero(labels).tolist(), [rational(v) for v in point.tolist()]
    sign = 1 if total(logits(head)).at(at) >= 0 else -1
    return min(f.at(at) for f in inequalities(head, members, sign))


def bounds_every_margin(
    head: LabelHead, proof: SetCertificate, domain: Domain, min_margin: float
) -> bool:
    """Whether a certificate over a box proves what it claims; in rational arithmetic."""
    members = np.flatnonzero(proof.labels).tolist()
    if not members and not isinstance(head.rule, ThresholdRule):
        return not isinstance(head.rule, TopRule)
    signs = signs_of(head)
    if len(signs) != len(proof.combinations):
        return False
    for sign, part in zip(signs, proof.combinations, strict=True):
        if (part.weight < 0).any() or part.sign_weight < 0:
            return False
        if not part.weight.any():
            form = total(logits(head)).times(sign * rational(part.sign_weight))
            if not _largest(form, domain) < 0:
                return False
            continue
        most = exact_upper_bound(head, proof.labels, part, sign, domain)
        if most > rational(min_margin):
            return False
    return True


def exact_upper_bound(
    head: LabelHead, labels: NDArray[np.bool_], part: Combination, sign: int, domain: Domain
) -> fmpq:
    """The bound on every margin that a combination gives over a box."""
    members = np.flatnonzero(labels).tolist()
    weights = {int(i): rational(w) for i, w in zip(part.support, part.weight, strict=True)}
    if isinstance(head.rule, TopRule):
        return _largest(_pairs(head, members, weights), domain)
    form = total(logits(head)).times(sign * rational(part.sign_weight))
    rows = inequalities(head, members, sign)
    for i, w in weights.items():
        form = form.plus(rows[i], w)
    return _largest(form, domain) / sum(weights.values(), fmpq(0))


def _largest(form: Form, domain: Domain) -> fmpq:
    most = form.constant
    for a, low, high in zip(form.slope, *domain.bounds(len(form.slope)), strict=True):
        most += max(a * rational(low), a * rational(high))
    return most


def excludes_every_input(head: LabelHead, proof: SetCertificate, min_margin: float) -> bool:
    """Whether the inequalities that a certificate over the free domain names are too many.

    By an exact linear programme over these alone, whatever the weights are.
    """
    members = np.flatnonzero(proof.labels).tolist()
    if not members and not isinstance(head.rule, ThresholdRule):
        return not isinstance(head.rule, TopRule)
    signs = signs_of(head)
    if len(signs) != len(proof.combinations):
        return False
    for sign, part in zip(signs, proof.combinations, strict=True):
        named = [int(i) for i in part.support]
        if isinstance(head.rule, TopRule):
            z = logits(head)
            inner = [z[i] for i in named if i in members]
            outer = [z[i] for i in named if i not in members]
            rows = [a.plus(b, fmpq(-1)).times(fmpq(1, 2)) for a in inner for b in outer]
        else:
            every = inequalities(head, members, sign)
            rows = [every[i] for i in named]
        condition = total(logits(head)).times(fmpq(sign)) if part.sign_weight else None
        if not rows:
            impossible = condition is not None and not any(condition.slope)
            if not (impossible and condition is not None and condition.constant < 0):
                return False
            continue
        best = best_free(rows, condition)
        if best is not None and best > rational(min_margin):
            return False
    return True


def _pairs(head: LabelHead, members: list[int], weights: dict[int, fmpq]) -> Form:
    """The weights of both sides brought to a sum of 1 each, on halved differences."""
    z, form = logits(head), Form([fmpq(0)] * head.dim, fmpq(0))
    inner = sum((w for i, w in weights.items() if i in members), fmpq(0))
    outer = sum((w for i, w in weights.items() if i not in members), fmpq(0))
    for i, w in weights.items():
        factor = w / inner / 2 if i in members else -w / outer / 2
        form = form.plus(z[i], factor)
    return form
