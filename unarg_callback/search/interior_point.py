"""Batched primal-dual interior point for the best lead over a working set of rivals.

For a target t and a working set S, with u in [-1, 1]^d, x = centre + radius u:

    max m   subject to   a_i . u + beta_i >= m  (i in S),   -1 <= u_k <= 1

where ``a_i = radius (w_t - w_i)`` and ``beta_i = b_t - b_i + (w_t - w_i) . centre``. Its dual is
the bound of a certificate:

    min U(lambda) = beta . lambda + |A' lambda|_1   over the simplex.

Both have interior points that can be written down, and Mehrotra's predictor-corrector keeps them
feasible (Wright, *Primal-Dual Interior-Point Methods*, 1997, chapter 10). So at each iteration m is
a lead over S and U a bound on every lead: a class can leave as soon as either settles it.

Float32 will do for most classes: what a solution proves is decided elsewhere. It halves the time of
a step, which goes into forming and factoring the normal equations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_TO_BOUNDARY = 0.995
_RESTART = 1e-2
"""Complementarity below which an exchange of rivals begins afresh, as measured."""
_BACK = 0.5
"""How far an exchange goes back to the centre then: halfway took the fewest steps."""
_MARGIN, _LESS_MARGIN = 0.03, 0.01
"""Slack of the tightest rival at a start and at a new start, relative to the rows, as measured."""
_RIDGE = {torch.float64: 1e-14, torch.float32: 1e-7}
"""Added to the diagonal of the normal equations, scaled to 1, before they are factored."""


@dataclass(eq=False)
class InteriorPoint:
    """A batch of n problems over m rivals each, scaled to size 1; all float64, or all float32.

    Args:
        matrix: (n, m, d + 1): rows a_i, then -1.
        offset: (n, m): beta.
        primal: (n, d + 1): u, then the lead m.
        slack: (n, m) > 0, ``matrix @ primal + offset``.
        weight: (n, m) > 0, lambda.
        upper: (n, d) > 0, multipliers of u <= 1.
        lower: (n, d) > 0, multipliers of u >= -1.
        pull: (n, d + 1), ``matrix' weight``.
    """

    matrix: Tensor
    offset: Tensor
    primal: Tensor
    slack: Tensor
    weight: Tensor
    upper: Tensor
    lower: Tensor
    pull: Tensor

    @classmethod
    def start(cls, rows: Tensor, offset: Tensor) -> InteriorPoint:
        """Centre of the box, equal complementarity: strictly feasible on both sides.

        Args:
            rows: (n, m, d) a_i.
            offset: (n, m) beta.
        """
        count, _, dim = rows.shape
        matrix = torch.cat([rows, -torch.ones_like(offset)[..., None]], dim=2)
        lead = offset.amin(1) - _margin(matrix, offset, _MARGIN)
        weight = 1 / (offset - lead[:, None])
        weight = weight / weight.sum(1, keepdim=True)
        return cls._from(matrix, offset, rows.new_zeros(count, dim), lead, weight)

    @classmethod
    def _from(
        cls, matrix: Tensor, offset: Tensor, point: Tensor, lead: Tensor, weight: Tensor
    ) -> InteriorPoint:
        """Fill in slacks and the multipliers of the box, which keep the dual feasible."""
        primal = torch.cat([point, lead[:, None]], dim=1)
        slack = torch.linalg.vecdot(matrix, primal[:, None]) + offset
        pull = torch.bmm(weight[:, None], matrix).squeeze(1)
        level = (weight * slack).mean(1, keepdim=True) + 1e-3
        upper, lower = pull[:, :-1].clamp_min(0) + level, (-pull[:, :-1]).clamp_min(0) + level
        return cls(matrix, offset, primal, slack, weight, upper, lower, pull)

    @property
    def lead(self) -> Tensor:
        """(n,) m, a lead over the working set that ``point`` attains."""
        return self.primal[:, -1]

    @property
    def point(self) -> Tensor:
        """(n, d) u."""
        return self.primal[:, :-1]

    def bound(self) -> Tensor:
        """(n,) U(lambda) over the sum of the weights: no lead anywhere exceeds it."""
        return _bound(self.weight, self.offset, self.pull)

    def trimmed_bound(self, weight: Tensor, at: Tensor) -> Tensor:
        """(k,) the same bound for other weights (k, m) of the problems at (k,) positions."""
        pull = torch.bmm(weight[:, None], self.matrix[at]).squeeze(1)
        return _bound(weight, self.offset[at], pull)

    def keep(self, at: Tensor) -> InteriorPoint:
        """Return the problems at the given positions."""
        return InteriorPoint(*(value[at] for value in vars(self).values()))

    def joined(self, other: InteriorPoint) -> InteriorPoint:
        """Return these problems and then others of the same shape and dtype."""
        return InteriorPoint(
            *(torch.cat([value, getattr(other, name)]) for name, value in vars(self).items())
        )

    def exchange(
        self, at: Tensor, problem: Tensor, columns: Tensor, rows: Tensor, offset: Tensor
    ) -> None:
        """Put other rivals in place of some, in k problems, and stay strictly feasible.

        Each lead is lowered until every new rival has slack; their weights take the
        complementarity that the others of their problem have.

        Args:
            at: (k,) positions of the problems, each with at least one new rival.
            problem: (r,) for each new rival, which of the k problems it belongs to.
            columns: (r,) places in the working set to give up, no two alike in one problem.
            rows: (r, d) a_i of the new rivals.
            offset: (r,) beta of the new rivals.
        """
        place = at[problem]
        level = (self.slack[at] * self.weight[at]).mean(1)
        self.matrix[place, columns, :-1] = rows
        self.offset[place, columns] = offset
        short = self.lead[place] - ((rows * self.point[place]).sum(1) + offset)
        depth = torch.zeros_like(level).scatter_reduce(0, problem, short, "amax")
        self.primal[at, -1] -= 1.1 * depth + 1e-3 * (1 + depth) * self.slack[at].mean(1)
        matrix = self.matrix[at]
        slack = torch.linalg.vecdot(matrix, self.primal[at][:, None]) + self.offset[at]
        self.slack[at] = slack
        self.weight[place, columns] = level[problem] / slack[problem, columns]
        self.pull[at] = torch.bmm(self.weight[at][:, None], matrix).squeeze(1)
        spent = level * self.slack.shape[1] < _RESTART
        if bool(spent.any()):
            self._restart(at[spent])

    def _restart(self, at: Tensor) -> None:
        """Begin problems again, halfway back: near an optimum is no start for another problem."""
        matrix, offset = self.matrix[at], self.offset[at]
        fresh = InteriorPoint.start(matrix[:, :, :-1], offset)
        point = (1 - _BACK) * self.point[at]
        over = torch.linalg.vecdot(matrix[:, :, :-1], point[:, None]) + offset
        lead = over.amin(1) - _margin(matrix, offset, _LESS_MARGIN)
        weight = self.weight[at] / self.weight[at].sum(1, keepdim=True)
        weight = torch.lerp(weight, fresh.weight, _BACK)
        for name, value in vars(self._from(matrix, offset, point, lead, weight)).items():
            getattr(self, name)[at] = value

    def step(self) -> Tensor:
        """Take one predictor-corrector step.

        Returns:
            (n,) bool, False where the step could not be computed or went nowhere.
        """
        above, below = 1 - self.point, 1 + self.point
        terms = self.weight.shape[1] + 2 * self.point.shape[1]
        complementarity = (self.slack * self.weight).sum(1)
        complementarity += (above * self.upper).sum(1) + (below * self.lower).sum(1)
        newton = _Newton(self, above, below)
        predictor = newton(torch.zeros_like(complementarity), None)
        lengths = self._lengths(predictor, above, below)
        after = self._moved(predictor, lengths, above, below)
        centring = (after / complementarity).clamp(0, 1) ** 3
        corrector = newton(centring * complementarity / terms, predictor)
        primal, dual = self._lengths(corrector, above, below)
        finite = torch.isfinite(corrector.primal).all(1) & torch.isfinite(corrector.weight).all(1)
        good = newton.factored & finite
        self._move(corrector, good, _TO_BOUNDARY * primal, _TO_BOUNDARY * dual)
        return good & (torch.maximum(primal, dual) > 1e-6)

    def _move(self, step: _Step, good: Tensor, primal: Tensor, dual: Tensor) -> None:
        lengths = {"primal": primal, "slack": primal, "weight": dual, "upper": dual, "lower": dual}
        for name, length in lengths.items():
            length = torch.where(good, length.clamp_max(1.0), 0.0)[:, None]
            change = torch.where(good[:, None], getattr(step, name), 0.0)
            getattr(self, name).addcmul_(length, change)
        self.pull = torch.bmm(self.weight[:, None], self.matrix).squeeze(1)

    def _lengths(self, step: _Step, above: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
        move = step.primal[:, :-1]
        primal = [_longest(self.slack, step.slack), _longest(above, -move), _longest(below, move)]
        dual = [
            _longest(getattr(self, name), getattr(step, name))
            for name in ("weight", "upper", "lower")
        ]
        return torch.stack(primal).amin(0), torch.stack(dual).amin(0)

    def _moved(
        self, step: _Step, lengths: tuple[Tensor, Tensor], above: Tensor, below: Tensor
    ) -> Tensor:
        """(n,) complementarity after a step."""
        primal, dual = (length.clamp_max(1.0)[:, None] for length in lengths)
        move = primal * step.primal[:, :-1]
        products = (self.slack + primal * step.slack) * (self.weight + dual * step.weight)
        sides = (above - move) * (self.upper + dual * step.upper)
        sides += (below + move) * (self.lower + dual * step.lower)
        return products.sum(1) + sides.sum(1)


@dataclass(eq=False)
class _Step:
    primal: Tensor
    slack: Tensor
    weight: Tensor
    upper: Tensor
    lower: Tensor


class _Newton:
    """Newton directions from one factorisation of the normal equations."""

    def __init__(self, at: InteriorPoint, above: Tensor, below: Tensor) -> None:
        self.at, self.above, self.below = at, above, below
        dtype = at.matrix.dtype
        # (root D A)' (root D A) needs one scaled copy of the matrix, in cache for small batches.
        scaled = at.matrix * (at.weight / at.slack).sqrt()[..., None]
        normal = torch.bmm(scaled.transpose(1, 2), scaled)
        normal.diagonal(dim1=1, dim2=2)[:, :-1] += at.upper / above + at.lower / below
        tiny = torch.finfo(dtype).tiny
        self.scale = normal.diagonal(dim1=1, dim2=2).clamp_min(tiny).rsqrt()
        normal *= self.scale[:, :, None] * self.scale[:, None, :]
        normal.diagonal(dim1=1, dim2=2).add_(_RIDGE[dtype])
        self.factor, info = torch.linalg.cholesky_ex(normal)
        self.factored = info == 0
        """(n,) bool, where the equations could be factored."""
        self.residual = at.pull.clone()
        self.residual[:, :-1] += at.lower - at.upper
        self.residual[:, -1] += 1.0

    def __call__(self, target: Tensor, predictor: _Step | None) -> _Step:
        """Direction towards complementarity ``target``, with the predictor's second-order term."""
        at = self.at
        want = target[:, None] - at.slack * at.weight
        want_above = target[:, None] - self.above * at.upper
        want_below = target[:, None] - self.below * at.lower
        if predictor is None:
            right = self.residual - at.pull
        else:
            move = predictor.primal[:, :-1]
            want = want - predictor.slack * predictor.weight
            want_above = want_above + move * predictor.upper
            want_below = want_below - move * predictor.lower
            pulled = torch.bmm((want / at.slack)[:, None], at.matrix).squeeze(1)
            right = self.residual + pulled
        right[:, :-1] += want_below / self.below - want_above / self.above
        scaled = (right * self.scale)[..., None]
        primal = torch.cholesky_solve(scaled, self.factor).squeeze(2) * self.scale
        slack = torch.linalg.vecdot(at.matrix, primal[:, None])
        move = primal[:, :-1]
        return _Step(
            primal,
            slack,
            (want - at.weight * slack) / at.slack,
            (want_above + at.upper * move) / self.above,
            (want_below - at.lower * move) / self.below,
        )


def _margin(matrix: Tensor, offset: Tensor, share: float) -> Tensor:
    """(n,) so deep that no slack starts near zero where all offsets are equal."""
    spread = offset.amax(1) - offset.amin(1)
    return share * (matrix[:, :, :-1].abs().sum(2).amax(1) + spread) + 1e-3


def _bound(weight: Tensor, offset: Tensor, pull: Tensor) -> Tensor:
    upper = (weight * offset).sum(1) + pull[:, :-1].abs().sum(1)
    return upper / weight.sum(1)


def _longest(value: Tensor, change: Tensor) -> Tensor:
    """(n,) longest step that keeps ``value + step * change >= 0``, at most 1e3."""
    ratio = torch.where(change < 0, -value / change, 1e3)
    return ratio.amin(1)
