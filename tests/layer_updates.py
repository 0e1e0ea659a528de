"""Sequences of layers as training might make them, and worse: what an incremental check must bear.

A sequence is a function of a seed alone, so a failing one is named by its seed. Every layer is
stored in one of the dtypes that layers come in; :meth:`Step.exact` gives the values it really has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback import Domain, OutputLayer

Floats = NDArray[np.float64]
Rng = np.random.Generator

DOMAINS = ("box:100", "box of unequal sides", "nonnegative:50", "box:-1,3", "free")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class Step:
    """One layer of a sequence.

    Args:
        update: what made it of the layer before.
        weight: (C, d) in the dtype of the sequence.
        bias: (C,) or None.
        excluded: ids that take no part.
    """

    update: str
    weight: Tensor
    bias: Tensor | None
    excluded: tuple[int, ...]

    def layer(self) -> OutputLayer:
        """The layer; raises LayerError where the update was ``nan``."""
        return OutputLayer(self.weight, self.bias, excluded=self.excluded)

    def exact(self) -> tuple[Floats, Floats | None, tuple[int, ...]]:
        """Weight, bias and excluded ids, as the independent checker takes them."""
        bias = None if self.bias is None else self.bias.double().numpy()
        return self.weight.double().numpy(), bias, self.excluded


@dataclass(frozen=True, eq=False)
class Drift:
    """A start, the layers that follow it, and how they are to be checked.

    Args:
        seed: makes the same sequence again.
        domain: where the input lies.
        options: further arguments of ``verify`` and of the verifier.
        steps: the start and what follows.
    """

    seed: object
    domain: Domain | str
    options: dict[str, Any]
    steps: list[Step] = field(repr=False)

    def __str__(self) -> str:
        start = self.steps[0]
        updates = ", ".join(step.update for step in self.steps)
        return (
            f"seed {self.seed}, {tuple(start.weight.shape)} {start.weight.dtype}, {self.domain}, "
            f"{self.options}: {updates}"
        )


@dataclass(frozen=True)
class _Values:
    """A layer before it is rounded to the dtype of its sequence."""

    weight: Floats
    bias: Floats | None
    start: _Values | None = None


def _gaussian(rng: Rng, classes: int, dim: int) -> Floats:
    return rng.normal(size=(classes, dim))


def _heavy_tailed(rng: Rng, classes: int, dim: int) -> Floats:
    return np.clip(rng.standard_t(1.5, size=(classes, dim)), -1e3, 1e3)


def _clustered(rng: Rng, classes: int, dim: int) -> Floats:
    centres = rng.normal(size=(4, dim))
    return centres[rng.integers(0, 4, classes)] + 0.03 * rng.normal(size=(classes, dim))


def _crowded(rng: Rng, classes: int, dim: int) -> Floats:
    return rng.normal(size=(classes, dim)) * rng.random((classes, 1)) ** 2


def _ties(rng: Rng, classes: int, dim: int) -> Floats:
    return np.round(1.5 * rng.normal(size=(classes, dim)))


def _duplicated(rng: Rng, classes: int, dim: int) -> Floats:
    rows = rng.normal(size=(classes, dim))
    return rows[rng.integers(0, max(classes // 2, 1), classes)]


def _inside(rng: Rng, classes: int, dim: int) -> Floats:
    """A few corners, and means of them."""
    corners = rng.normal(size=(min(classes, dim + 3), dim))
    shares = rng.dirichlet(np.full(len(corners), 0.3), classes - len(corners))
    return np.concatenate([corners, shares @ corners])


def _flat(rng: Rng, classes: int, dim: int) -> Floats:
    """Rows on a line or in a plane, or one column that is zero: rank-deficient."""
    rank = int(rng.integers(1, max(dim, 2)))
    return np.round(8 * rng.normal(size=(classes, rank))) @ np.round(
        3 * rng.normal(size=(rank, dim))
    )


STARTS: dict[str, Callable[[Rng, int, int], Floats]] = {
    "gaussian": _gaussian,
    "heavy-tailed": _heavy_tailed,
    "clustered": _clustered,
    "crowded": _crowded,
    "ties": _ties,
    "duplicated": _duplicated,
    "inside": _inside,
    "flat": _flat,
}
"""Kinds of rows to start from."""


def _same(rng: Rng, now: _Values) -> _Values:
    return now


def _back(rng: Rng, now: _Values) -> _Values:
    assert now.start is not None
    return replace(now, weight=now.start.weight, bias=now.start.bias)


def _small_steps(rng: Rng, now: _Values) -> _Values:
    size = 10.0 ** rng.uniform(-7, -0.5)
    bias = now.bias
    if bias is not None:
        bias = bias + size * (np.abs(bias).mean() + 1e-3) * rng.normal(size=bias.shape)
    step = size * (np.abs(now.weight).mean() + 1e-6) * rng.normal(size=now.weight.shape)
    return replace(now, weight=now.weight + step, bias=bias)


def _one_far(rng: Rng, now: _Values) -> _Values:
    weight = now.weight.copy()
    length = 10.0 ** rng.uniform(0, 2) * (np.abs(weight).max() + 1e-3)
    weight[rng.integers(len(weight))] = length * rng.normal(size=weight.shape[1])
    return replace(now, weight=weight)


def _all_far(rng: Rng, now: _Values) -> _Values:
    kind = list(STARTS.values())[rng.integers(len(STARTS))]
    return replace(now, weight=kind(rng, *now.weight.shape), bias=_bias_like(rng, now.bias))


def _swapped(rng: Rng, now: _Values) -> _Values:
    order = np.arange(len(now.weight))
    chosen = rng.choice(len(order), rng.integers(2, min(len(order), 6) + 1), replace=False)
    order[chosen] = np.roll(chosen, 1)
    moved = None if now.bias is None or rng.random() < 0.5 else now.bias[order]
    return replace(now, weight=now.weight[order], bias=now.bias if moved is None else moved)


def _copied(rng: Rng, now: _Values) -> _Values:
    """A row like another, with the same, a lower or a higher bias."""
    weight, bias = now.weight.copy(), None if now.bias is None else now.bias.copy()
    source, target = rng.choice(len(weight), 2, replace=False)
    weight[target] = weight[source]
    if bias is not None:
        bias[target] = bias[source] + rng.choice([0.0, -1.0, 1.0]) * 10.0 ** rng.uniform(-3, 0)
    return replace(now, weight=weight, bias=bias)


def _bias_only(rng: Rng, now: _Values) -> _Values:
    return replace(now, bias=_bias_like(rng, now.bias))


def _scaled(rng: Rng, now: _Values) -> _Values:
    scale = 2.0 ** rng.integers(-9, 10) if rng.random() < 0.5 else 10.0 ** rng.uniform(-3, 3)
    bias = now.bias if now.bias is None or rng.random() < 0.3 else now.bias * scale
    return replace(now, weight=now.weight * scale, bias=bias)


def _shifted(rng: Rng, now: _Values) -> _Values:
    shift = 10.0 ** rng.uniform(-2, 2) * rng.normal(size=now.weight.shape[1])
    return replace(now, weight=now.weight + shift)


def _zero_row(rng: Rng, now: _Values) -> _Values:
    weight = now.weight.copy()
    weight[rng.integers(len(weight))] = 0.0
    return replace(now, weight=weight)


def _all_equal(rng: Rng, now: _Values) -> _Values:
    return replace(now, weight=np.repeat(now.weight[:1], len(now.weight), axis=0))


def _midpoint(rng: Rng, now: _Values) -> _Values:
    """A row halfway between two others: on the boundary of the hull where they share a face."""
    weight, bias = now.weight.copy(), None if now.bias is None else now.bias.copy()
    if len(weight) < 3:
        return now
    along = weight @ rng.normal(size=weight.shape[1])
    one = int(along.argmax())
    other = int(rng.choice(np.delete(np.arange(len(weight)), one)))
    target = int(rng.choice(np.delete(np.arange(len(weight)), [one, other])))
    weight[target] = (weight[one] + weight[other]) / 2
    if bias is not None:
        bias[target] = (bias[one] + bias[other]) / 2
    return replace(now, weight=weight, bias=bias)


def _nan(rng: Rng, now: _Values) -> _Values:
    weight = now.weight.copy()
    weight[rng.integers(len(weight)), rng.integers(weight.shape[1])] = np.nan
    return replace(now, weight=weight)


UPDATES: dict[str, Callable[[Rng, _Values], _Values]] = {
    "small steps": _small_steps,
    "one far": _one_far,
    "all far": _all_far,
    "swapped": _swapped,
    "copied": _copied,
    "bias only": _bias_only,
    "scaled": _scaled,
    "shifted": _shifted,
    "back": _back,
    "same": _same,
    "zero row": _zero_row,
    "all equal": _all_equal,
    "midpoint": _midpoint,
    "nan": _nan,
}
"""What may happen to a layer between two checks."""

_SHARES = np.array([5, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 0.5, 2, 0.5])


def _bias_like(rng: Rng, bias: Floats | None) -> Floats | None:
    return None if bias is None else 10.0 ** rng.uniform(-2, 1) * rng.normal(size=bias.shape)


def domain_of(name: str, dim: int) -> Domain | str:
    """A domain by its name in ``DOMAINS``."""
    if name != "box of unequal sides":
        return name
    sides = 4.0 ** np.arange(dim)
    return Domain.box(-sides, 30.0 / sides)


def drift(
    seed: object,
    domain: str,
    kind: str,
    updates: Sequence[str],
    *,
    classes: int,
    dim: int,
    dtype: torch.dtype = torch.float64,
    bias: bool = True,
    excluded: int = 0,
    options: dict[str, Any] | None = None,
    rng: Rng | None = None,
) -> Drift:
    """Make a sequence.

    Args:
        seed: of the numbers, unless ``rng`` is given; kept for the message of a failing test.
        domain: one of ``DOMAINS``.
        kind: one of ``STARTS``.
        updates: of ``UPDATES``, in order.
        classes: C.
        dim: d.
        dtype: of all layers.
        bias: whether the layers have one.
        excluded: how many classes take no part.
        options: of the check.
        rng: where the numbers come from.
    """
    rng = rng or np.random.default_rng(seed)  # type: ignore[arg-type]
    rows = STARTS[kind](rng, classes, dim)
    now = _Values(rows, _bias_like(rng, np.zeros(classes)) if bias else None)
    now = replace(now, start=now)
    out = tuple(sorted(rng.choice(classes, excluded, replace=False).tolist()))
    steps = [_stored("start", now, dtype, out)]
    for name in updates:
        then = UPDATES[name](rng, now)
        steps.append(_stored(name, then, dtype, out))
        now = now if name == "nan" else then
    return Drift(seed, domain_of(domain, dim), options or {}, steps)


def _stored(update: str, values: _Values, dtype: torch.dtype, excluded: tuple[int, ...]) -> Step:
    most = torch.finfo(dtype).max / 8
    weight = torch.from_numpy(values.weight).clamp(-most, most).to(dtype)
    bias = values.bias
    stored = None if bias is None else torch.from_numpy(bias).clamp(-most, most).to(dtype)
    if update == "nan":
        excluded = ()
    return Step(update, weight, stored, excluded)


def random_drift(seed: int, domain: str, *, updates: int = 8, largest: int = 60) -> Drift:
    """A sequence of any kind.

    Args:
        seed: names it, together with the other arguments.
        domain: one of ``DOMAINS``.
        updates: how many follow the start.
        largest: most classes.
    """
    rng = np.random.default_rng([seed, DOMAINS.index(domain)])
    kind = list(STARTS)[seed % len(STARTS)]
    classes = int(3 * (largest / 3) ** rng.random())
    dtype = DTYPES[rng.choice(len(DTYPES), p=[0.4, 0.3, 0.15, 0.15])]
    options: dict[str, Any] = {}
    chance = rng.random()
    if chance < 0.1:
        options["exact"] = "cutting_plane"
    elif chance < 0.2:
        options["patience"] = int(rng.integers(0, 3))
    elif chance < 0.3:
        options["sweep_dtype"] = torch.float64
    elif chance < 0.4 and domain != "free":
        options["min_lead"] = 10.0 ** rng.uniform(-8, 0)
    return drift(
        (seed, DOMAINS.index(domain)),
        domain,
        kind,
        rng.choice(list(UPDATES), updates, p=_SHARES / _SHARES.sum()).tolist(),
        classes=classes,
        dim=int(rng.integers(1, 9)),
        dtype=dtype,
        bias=bool(rng.random() < 0.7),
        excluded=int(rng.integers(1, classes // 2)) if classes > 3 and rng.random() < 0.25 else 0,
        options=options,
        rng=rng,
    )


@st.composite
def drifts(draw: st.DrawFn) -> Drift:
    """Short sequences whose updates shrink one by one."""
    classes = draw(st.integers(3, 30))
    return drift(
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from(DOMAINS)),
        draw(st.sampled_from(list(STARTS))),
        draw(st.lists(st.sampled_from(list(UPDATES)), min_size=1, max_size=8)),
        classes=classes,
        dim=draw(st.integers(1, 6)),
        dtype=draw(st.sampled_from(DTYPES)),
        bias=draw(st.booleans()),
        excluded=draw(st.integers(0, classes // 3)),
    )
