"""Screen: which witnesses still lead after the layer has moved, without evaluating them.

Let t lead by at least l at x in the old layer, and let ``d_i = (w'_i - w_i) - c`` and
``e_i = (b'_i - b_i) - c_0`` be the changes, whatever c and c_0 are (a change that all rows share
changes no lead). In the new layer its lead at x is at least

    l + (d_t . x + e_t) - max_{i != t} (d_i . x + e_i).

Rows are sorted by how fast they moved. Over the k fastest the maximum is computed; every other is
bounded in a frame A, with any y (here A^-1 x, as computed):

    |d_i . x| = |(A' d_i) . y + d_i . (x - A y)| <= |A' d_i| |y| + |d_i| |x - A y|.

Each witness gets the smallest k of a few that can settle it, so the work is a staircase: most
witnesses need some ten rows of many thousands.

**Frame.** Any A is right. The bound is least loose where changes and points look alike in it:
``A A' = G`` with ``G S_d G = S_x`` for the second moments of both, that is
``G = S_d^-1/2 (S_d^1/2 S_x S_d^1/2)^1/2 S_d^-1/2``.

**Rounding.** Changes are taken in float32 where the weights are no wider, else in float64, and kept
in float32, scaled by powers of two; products are float32. An entry of d_i has two roundings, each
relative to a number that is no larger than ``|d_i| + |c|``, and one for float32. An inner product
of d + 1 terms errs by at most ``gamma(d + 1) (|d||x| + |e|)``, and rounding its entries adds three
more; underflow adds the smallest normal number for each operation. The bounds themselves are
inflated by more than their own roundings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.rounding import SMALLEST_NORMAL, float32_products_are_ieee, gamma

_STEPS = (16, 64, 128, 256, 512, 1024, 2048, 4096)
"""Numbers of fastest rows to choose from."""
_AT_MOST = 4
"""Compare at most one row in so many: beyond that, evaluating costs little more and tells more."""
_FOR_MORE = 32
"""Likewise where the witness is settled already, and it is only for a better bound."""
_WANTED = 0.4
"""Share of a lead to keep if comparing more rows can: what is left has to last for some updates."""
_CHUNK = 8192
_SAMPLE = 1024
_RIDGE = 1e-4
_DTYPE = torch.float32


@dataclass(frozen=True, eq=False)
class _Changes:
    """How the A active rows have moved, the fastest first.

    Rows are measured in ``unit / stretch`` and points in ``stretch``, powers of two, so that
    ``row . point`` is in ``unit``.

    Args:
        row: (A, d) float32.
        bias: (A,) float32.
        rank: (A,) int64, place of each class in this order.
        frame: (d, d) float32, A.
        inverse: (d, d) float32, about A^-1.
        residual: at least ``|x - A y| / |x|`` for y as computed.
        speed: (A,) float64, at least ``|A' d_i|`` of this row and of all after it.
        length: (A,) float64, the same for ``|d_i|``.
        jump: (A,) float64, the same for ``|e_i|``.
        slip: at least the distance of ``d_i`` and of ``e_i`` from these.
        stretch: (d,) float64.
        unit: of the logits.
    """

    row: Tensor
    bias: Tensor
    rank: Tensor
    frame: Tensor
    inverse: Tensor
    residual: float
    speed: Tensor
    length: Tensor
    jump: Tensor
    slip: float
    stretch: Tensor
    unit: float


def screen(
    old: OutputLayer, new: OutputLayer, targets: Tensor, points: Tensor, leads: Tensor, above: float
) -> Tensor:
    """Lower bounds on the leads that n witnesses have in the new layer.

    Args:
        old: the layer for which the leads are known.
        new: a layer with the same classes, features and excluded classes.
        targets: (n,) int64 on the CPU, positions in ``active``.
        points: (n, d) float32 or float64, on the layers' device.
        leads: (n,) float64 on the CPU, lower bounds on the exact leads in ``old``.
        above: the lead at which a witness is settled.

    Returns:
        (n,) float64 on the CPU, lower bounds on the exact leads in ``new``; -inf where there is
        none. Whom they leave at or below ``above`` may still lead by more.
    """
    lower = torch.full((len(targets),), -torch.inf, dtype=torch.float64)
    if not len(targets) or not float32_products_are_ieee(new.device):
        return lower
    changes = _changes(old, new, points)
    for at in range(0, len(targets), _CHUNK):
        span = slice(at, at + _CHUNK)
        own = changes.rank[targets[span].to(new.device)]
        base = leads[span].to(new.device) / changes.unit
        found = _lower(changes, own, points[span], base, above / changes.unit)
        lower[span] = (found * changes.unit).cpu()
    # What over- or underflowed says nothing.
    return torch.where(torch.isfinite(lower), lower, -torch.inf)


def _changes(old: OutputLayer, new: OutputLayer, points: Tensor) -> _Changes:
    row, bias = _differences(old, new)
    narrow, safety = row.dtype, _safety(new.dim)
    middle, bias_middle = row.mean(0), bias.mean()
    row -= middle
    bias -= bias_middle
    unit, stretch = _scales(row, bias, points)
    # Powers of two: exact.
    row *= (stretch / unit).to(row.dtype)
    bias, middle = bias / unit, middle * (stretch / unit)
    longest = float(row.norm(dim=1).amax() + middle.norm())
    widest = float(bias.abs().amax() + (bias_middle / unit).abs())
    underflow = new.dim * SMALLEST_NORMAL[narrow] * (1 + float(stretch.amax())) / unit
    slip = gamma(4, narrow) * (longest + widest) * safety + 4 * underflow
    row, bias = row.to(_DTYPE), bias.to(_DTYPE)
    frame, inverse = _balancing_frame(row, points, stretch)
    length = row.norm(dim=1).double() * safety
    # One rounding of each entry, then d products and sums; in norm, by Cauchy-Schwarz.
    error = gamma(new.dim + 3, _DTYPE) * float(frame.double().norm())
    speed = (row @ frame).norm(dim=1).double() + error * length
    order = speed.argsort(descending=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    return _Changes(
        row=row[order],
        bias=bias[order],
        rank=rank,
        frame=frame,
        inverse=inverse,
        residual=_residual(frame, inverse),
        speed=speed[order] * safety,
        length=_from_here_on(length[order]),
        jump=_from_here_on(bias[order].abs().double() * safety),
        slip=slip,
        stretch=stretch,
        unit=unit,
    )


def _differences(old: OutputLayer, new: OutputLayer) -> tuple[Tensor, Tensor]:
    """(A, d) changes of the active rows and (A,) of their biases, float32 if that is exact enough.

    A difference has one rounding in either dtype.
    """
    tensors = [new.weight, old.weight, *(b for b in (new.bias, old.bias) if b is not None)]
    wide = any(tensor.dtype.itemsize > 4 for tensor in tensors)
    dtype = torch.float64 if wide else torch.float32
    everyone = len(new.active) == new.classes
    at = slice(None) if everyone else new.active.to(new.device)
    row = new.weight[at].to(dtype) - old.weight[at].to(dtype)
    zero = row.new_zeros(1)
    biases = [zero if b is None else b[at].to(dtype) for b in (new.bias, old.bias)]
    return row, (biases[0] - biases[1]).expand(len(row)).clone()


def _lower(changes: _Changes, own: Tensor, points: Tensor, leads: Tensor, above: float) -> Tensor:
    """(n,) lower bounds for n witnesses, in the changes' unit.

    Args:
        changes: of all rows.
        own: (n,) int64, the witness's class by its rank.
        points: (n, d).
        leads: (n,) float64 in the changes' unit.
        above: in the changes' unit.
    """
    dim = points.shape[1]
    safety = _safety(dim)
    # A power of two: exact, but for what underflows.
    x = points.to(_DTYPE) / changes.stretch.to(_DTYPE)
    reach = x.norm(dim=1).double() * safety
    mine = (changes.row[own] * x).sum(1).double() + changes.bias[own].double()
    image = (x @ changes.inverse).norm(dim=1).double() * safety
    residual = changes.residual * reach
    tiny = 8 * (dim + 4) * SMALLEST_NORMAL[_DTYPE] * (2 + reach)
    size = changes.length[0] * reach + changes.jump[0]
    # Both sides of the comparison err by this; twice the float64 slip is far below it.
    error = gamma(dim + 6, _DTYPE) * size + changes.slip * (1 + reach) + tiny
    base = leads + mine - 2 * error - gamma(8) * (leads.abs() + mine.abs())

    def rest(k: int) -> Tensor:
        """At least ``d_i . x + e_i`` for all rows but the k fastest."""
        if k >= len(changes.speed):
            return torch.full_like(base, -torch.inf)
        beyond = changes.speed[k] * image + changes.length[k] * residual + changes.jump[k]
        return beyond * (1 + 1e-12)

    lower = base - rest(0)
    cheap, most = (len(changes.speed) // share for share in (_FOR_MORE, _AT_MOST))
    target = above + _WANTED * (base - above).clamp_min(0)
    for k in (k for k in _STEPS if k == _STEPS[0] or k <= most):
        # Worth the product where what it leaves open won't decide.
        reachable = base - rest(k)
        wanted = ~(lower > above) & (reachable > (target if 2 * k <= cheap else above))
        if k <= cheap:
            wanted |= ~(lower > target) & (reachable > target)
        wanted = wanted.nonzero().squeeze(1)
        if not len(wanted):
            continue
        moved = torch.addmm(changes.bias[:k], x[wanted], changes.row[:k].T)
        among = (own[wanted] < k).nonzero().squeeze(1)
        moved[among, own[wanted][among]] = -torch.inf
        fastest = moved.amax(1).double()
        found = base[wanted] - torch.maximum(fastest, rest(k)[wanted])
        lower[wanted] = torch.maximum(lower[wanted], found - gamma(8) * fastest.abs())
    return lower - 1e-15 * lower.abs()


def _safety(dim: int) -> float:
    """More than 1 by what the float32 norm of ``dim`` numbers, and a few operations, can lack."""
    return 1 + gamma(dim + 16, _DTYPE)


def _scales(row: Tensor, bias: Tensor, points: Tensor) -> tuple[float, Tensor]:
    """A unit for the logits and one for each feature that makes changes and points alike."""
    changed = row[:: max(1, len(row) // _SAMPLE)].double().square().mean(0).sqrt()
    reached = points[:: max(1, len(points) // _SAMPLE)].double().square().mean(0).sqrt()
    both = (changed > 0) & (reached > 0)
    ratio = torch.where(both, (reached / changed.clamp_min(1e-300)).sqrt(), 1.0)
    exponent = ratio.log2().round().clamp(-60, 60).cpu().numpy().astype(np.int64)
    stretch = torch.from_numpy(np.ldexp(1.0, exponent)).to(row.device)
    largest = float((changed * stretch).amax()) + float(bias.abs().amax())
    usable = math.isfinite(largest) and 1e-30 < largest < 1e30
    return (2.0 ** round(math.log2(largest)) if usable else 1.0), stretch


def _balancing_frame(row: Tensor, points: Tensor, stretch: Tensor) -> tuple[Tensor, Tensor]:
    """A and about its inverse, from samples: it decides how tight a bound is, not whether."""
    x = points[:: max(1, len(points) // _SAMPLE)].double() / stretch
    d = row[:: max(1, len(row) // _SAMPLE)].double()
    try:
        root, root_inverse = _roots(_second_moment(d))
        balanced, _ = _roots(root @ _second_moment(x) @ root)
        a, a_inverse = _roots(root_inverse @ balanced @ root_inverse)
    except RuntimeError:
        # Numbers too large or too close to singular: the bound can do without.
        a = a_inverse = torch.eye(d.shape[1], dtype=d.dtype, device=d.device)
    return a.to(_DTYPE), a_inverse.to(_DTYPE)


def _second_moment(values: Tensor) -> Tensor:
    moment = values.T @ values / max(len(values), 1)
    size = float(moment.diagonal().mean())
    eye = torch.eye(len(moment), dtype=moment.dtype, device=moment.device)
    return moment + _RIDGE * size * eye if math.isfinite(size) and size > 0 else eye


def _residual(frame: Tensor, inverse: Tensor) -> float:
    """At least ``|x - A y| / |x|``, for float32 ``y = fl(x inverse)``.

    ``x - A y = (I - A inverse') x - A (y - inverse' x)``; each factor by its Frobenius norm, and
    the error of y by ``gamma(d)``. The norms are float64, of float32 matrices.
    """
    a, b = frame.double(), inverse.double()
    eye = torch.eye(len(a), dtype=a.dtype, device=a.device)
    error = gamma(len(a) + 2, _DTYPE) * float(a.norm()) * float(b.norm())
    return (float((eye - a @ b.T).norm()) + error) * _safety(len(a))


def _roots(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Square root of a positive matrix and its inverse."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    root = values.clamp_min(values[-1] * 1e-14 + 1e-300).sqrt()
    return (vectors * root) @ vectors.T, (vectors / root) @ vectors.T


def _from_here_on(values: Tensor) -> Tensor:
    """Largest of each value and all after it."""
    return values.flip(0).cummax(0).values.flip(0)
