"""The one checker: it turns candidate proofs into verdicts, and nothing else does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unarg_callback.errors import DomainError
from unarg_callback.geometry.barycentric import barycentric_bound
from unarg_callback.geometry.compact import Grid, fit_to_domain
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.leaders import Ends, LeadEvaluator
from unarg_callback.geometry.proof import Certificate, Status, Witness
from unarg_callback.geometry.rounding import (
    SMALLEST_NORMAL,
    float32_products_are_ieee,
    gamma,
    inward,
    plain_arithmetic,
)

RELATIVE_MIN_LEAD = 1e-9
"""Default ``min_lead`` as a share of the logit range over the domain."""

_LEAST_WEIGHT = 2.0**-500
_ELEMENTS = 2**19
"""Entries of the differences that are looked at together: what a cache holds takes a third."""


@dataclass(frozen=True, eq=False)
class WitnessCheck:
    """What the checker says of n candidate witnesses.

    Args:
        accepted: (n,) bool, the class is argmaxable.
        lead: (n,) float64, lower bound on the exact lead at the point.
        rival: (n,) int64, the strongest other class where the target does not lead, else -1.
        rival_accepted: (n,) bool, the point is a witness for ``rival``.
        rival_lead: (n,) float64, lower bound on the rival's exact lead there.
    """

    accepted: Tensor
    lead: Tensor
    rival: Tensor
    rival_accepted: Tensor
    rival_lead: Tensor


class Checker:
    """Decides candidate proofs for one layer and one domain.

    Classes are positions in ``layer.active`` here; :func:`check` takes class ids.

    Args:
        layer: the layer, on the device where products run.
        domain: where the input may lie.
        min_lead: what a lead must exceed; default ``RELATIVE_MIN_LEAD`` of the logit range over a
            box, 0 in the free domain (where logits have no range).
        sweep_dtype: float32 or float64, for :meth:`witnesses`. Float32 is used as a proof only by
            its own error bound; what that leaves in doubt is computed again in float64.

    Raises:
        DomainError: the domain has bounds for another number of dimensions, or min_lead is negative
            or not finite.
    """

    def __init__(
        self,
        layer: OutputLayer,
        domain: Domain,
        min_lead: float | None = None,
        sweep_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.layer = layer
        self.domain = domain
        low, high = domain.bounds(layer.dim)
        self.low = torch.from_numpy(low).to(layer.device)
        self.high = torch.from_numpy(high).to(layer.device)
        self.grid = Grid.of(self.low, self.high)
        """Where the search puts its points, so that they are small to keep; None in full."""
        usable = sweep_dtype == torch.float64 or (
            float32_products_are_ieee(layer.device) and self._holds_float32_points()
        )
        self._ends = self._within(Ends.of(layer), min_lead)
        self.sweep = LeadEvaluator(layer, sweep_dtype if usable else torch.float64, self._ends)
        self._double: LeadEvaluator | None = None
        self.min_lead = self._required(min_lead)

    @property
    def double(self) -> LeadEvaluator:
        """The float64 evaluator, built when first needed."""
        if self._double is None:
            same = self.sweep.dtype == torch.float64
            self._double = (
                self.sweep if same else LeadEvaluator(self.layer, torch.float64, self._ends)
            )
        return self._double

    def _within(self, ends: Ends, min_lead: float | None) -> Ends:
        """What rows are measured against, for a ``min_lead`` as given."""
        return ends if self.domain.is_free else ends.within(self.low, self.high, min_lead)

    def fit(self, points: Tensor) -> Tensor:
        """(n, d) points of the domain in the sweep's dtype, on the grid, near (n, d) float64."""
        fitted = fit_to_domain(points, self.low, self.high, self.sweep.dtype)
        return fitted if self.grid is None else self.grid.round(fitted)

    def witnesses(self, targets: Tensor, points: Tensor) -> WitnessCheck:
        """Check n candidate witnesses.

        Args:
            targets: (n,) int64 on the CPU.
            points: (n, d) in the sweep's dtype, or float64.
        """
        evaluator = self.sweep if points.dtype == self.sweep.dtype else self.double
        leads = evaluator.leads(targets, points)
        exact = points.double()
        inside = (torch.isfinite(exact) & (exact >= self.low) & (exact <= self.high)).all(1)
        lead = leads.lead - leads.error
        accepted = inside & (lead > self.min_lead)
        rival_lead = leads.rival_lead - leads.rival_error
        rival_accepted = inside & (rival_lead > self.min_lead)
        doubtful = inside & ~accepted & ~(leads.lead + leads.error <= self.min_lead)
        if evaluator.dtype != torch.float64 and bool(doubtful.any()):
            at = doubtful.nonzero().squeeze(1)
            again = self.witnesses(targets[at.cpu()], exact[at])
            accepted[at], lead[at] = again.accepted, again.lead
            leads.rival[at] = again.rival
            rival_accepted[at], rival_lead[at] = again.rival_accepted, again.rival_lead
        return WitnessCheck(accepted, lead, leads.rival, rival_accepted, rival_lead)

    def certificates(
        self, targets: Tensor, supports: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Check n candidate certificates over a box.

        Computes ``U / s`` with ``U = sum_k max(lo_k r_k, hi_k r_k) + sum_i lambda_i (b_t - b_i)``,
        ``r = sum_i lambda_i (w_t - w_i)`` and ``s = sum_i lambda_i``.

        **Error.** ``w_t - w_i`` has one rounding (the upcast is exact), the sums over m rivals and
        d dimensions, products and the last division add m + d + 6 more:
        ``gamma(m + d + 8) (sum_k max(|lo_k|, |hi_k|) sum_i lambda_i |w_t - w_i|_k
        + sum_i lambda_i |b_t - b_i|) / s``. Each operation may also underflow, which adds the
        smallest normal number, unless all terms are exactly 0 and the bound with them.
        Weights beyond ``2 ** +-500`` are refused, so that no sum of them over- or underflows.

        Args:
            targets: (n,) int64.
            supports: (n, m) int64, padded with any number at weight 0.
            weights: (n, m) float64.

        Returns:
            (n,) bool accepted, (n,) float64 upper bound on every lead.
        """
        at_once = max(1, _ELEMENTS // max(supports.shape[1] * self.layer.dim, 1))
        parts = zip(
            targets.split(at_once), supports.split(at_once), weights.split(at_once), strict=True
        )
        accepted, bounds = zip(*(self._certificates(*part) for part in parts), strict=True)
        return torch.cat(accepted), torch.cat(bounds)

    def _certificates(
        self, targets: Tensor, supports: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        unit = self.sweep.unit
        known = (supports >= 0) & (supports < self.sweep.count)
        supports = torch.where(known, supports, 0)
        own, flat = self.sweep.active[targets], self.sweep.active[supports.reshape(-1)]
        rivals = self.layer.rows(flat).reshape(*supports.shape, self.layer.dim)
        difference = self.layer.rows(own)[:, None] - rivals
        bias = self.layer.biases(own)[:, None] - self.layer.biases(flat).reshape(supports.shape)
        used = weights != 0
        reach = torch.maximum(self.low.abs(), self.high.abs())
        differs = used & (((difference != 0) & (reach > 0)).any(2) | (bias != 0))
        difference, bias = difference / unit, bias / unit
        total = weights.sum(1)
        direction = torch.einsum("nm,nmd->nd", weights, difference)
        upper = torch.maximum(self.low * direction, self.high * direction).sum(1)
        upper = upper + (weights * bias).sum(1)
        size = torch.einsum("nm,nmd->nd", weights, difference.abs()) @ reach
        size = size + (weights * bias.abs()).sum(1)
        error = gamma(supports.shape[1] + self.layer.dim + 12) * size
        operations = 8 * (supports.shape[1] + 1) * (self.layer.dim + 1)
        tiny = operations * SMALLEST_NORMAL[torch.float64] * (1 + reach.amax())
        error = error + torch.where(differs.any(1), tiny, 0.0)
        bound = (upper + error) / total * unit
        # Two more roundings; a bound of exactly 0 stays exact.
        bound = bound + bound.abs() * gamma(4)
        valid = (~used | ((weights >= _LEAST_WEIGHT) & (weights <= 1 / _LEAST_WEIGHT))).all(1)
        valid &= (known | ~used).all(1) & ~((supports == targets[:, None]) & used).any(1)
        valid &= torch.isfinite(bound) & (total > 0)
        return valid & (bound <= self.min_lead), bound

    def certificate(
        self, target: int, support: NDArray[np.int64], weight: NDArray[np.float64]
    ) -> tuple[bool, float]:
        """Check one candidate certificate, over a box or in the free domain.

        Returns:
            Whether it is accepted, and its upper bound on every lead.
        """
        if self.domain.is_free:
            bound = barycentric_bound(*self._exact_rows(support), *self._exact_rows([target]))
            valid = target not in support.tolist()
            return valid and bound is not None and bound <= self.min_lead, (
                float("inf") if bound is None else bound
            )
        ids = torch.from_numpy(np.ascontiguousarray(support))[None].to(self.layer.device)
        weights = torch.from_numpy(np.ascontiguousarray(weight))[None].to(self.layer.device)
        one = torch.tensor([target], device=self.layer.device)
        accepted, bound_tensor = self.certificates(one, ids, weights)
        return bool(accepted[0]), float(bound_tensor[0])

    def _holds_float32_points(self) -> bool:
        """Whether float32 has a number between the bounds of each dimension."""
        if self.domain.is_free:
            return True
        lowest = inward(self.low, torch.float32, up=True)
        return bool((lowest <= inward(self.high, torch.float32, up=False)).all())

    def _exact_rows(
        self, at: NDArray[np.int64] | list[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        ids = self.sweep.active[torch.as_tensor(at, device=self.layer.device)]
        return self.layer.rows(ids).cpu().numpy(), self.layer.biases(ids).cpu().numpy()

    @cached_property
    def logit_range(self) -> float:
        """``max_i max_x z_i - min_i min_x z_i``, logits of centred rows: the scale of the leads.

        Infinite in the free domain, and 0 for a layer without classes.
        """
        if not self.sweep.count or self.domain.is_free:
            return float("inf") if self.sweep.count else 0.0
        top, bottom = self._logit_ends()
        return (top - bottom) * self.sweep.unit

    def _logit_ends(self) -> tuple[float, float]:
        """The highest and the lowest logit of centred rows over the box, in the sweep's units.

        Infinite, the other way round, where the sweep has no rows.
        """
        centre = self.low / 2 + self.high / 2
        radius = self.high / 2 - self.low / 2
        top, bottom = -math.inf, math.inf
        for at in range(0, self.sweep.count, 4096):
            rows = self.sweep.rows(slice(at, at + 4096))
            # Elementwise, not as a product: the same sum for a row wherever it stands.
            middle = (rows * centre).sum(1) + self.sweep.biases(slice(at, at + 4096))
            reach = (rows.abs() * radius).sum(1)
            top = max(top, float((middle + reach).amax()))
            bottom = min(bottom, float((middle - reach).amin()))
        return top, bottom

    def _required(self, min_lead: float | None) -> float:
        """``min_lead`` as given, or its default."""
        default = 0.0 if self.domain.is_free else RELATIVE_MIN_LEAD * self.logit_range
        required = default if min_lead is None else float(min_lead)
        if not (math.isfinite(required) and required >= 0):
            given = "the box is so large that logits overflow" if min_lead is None else "given"
            raise DomainError(
                f"min_lead is {required} ({given}); expected a finite number of at least 0 "
                "(use a smaller box, or the free domain)"
            )
        return required


@dataclass(frozen=True, eq=False)
class Verdict:
    """What one proof shows.

    Args:
        status: the status it proves, or ``Status.UNDECIDED`` where the proof is refused.
        lead: lower bound on the best lead (witness) or upper bound on every lead (certificate).
    """

    status: Status
    lead: float


def check(
    layer: OutputLayer,
    domain: Domain,
    proof: Witness | Certificate,
    min_lead: float | None = None,
) -> Verdict:
    """Check one proof from the layer and the domain alone, in float64 with rounding bounds.

    Args:
        layer: the layer.
        domain: where the input may lie.
        proof: a witness or a certificate, by class ids.
        min_lead: what a lead must exceed; the default is that of :class:`Checker`.

    >>> layer = OutputLayer([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    >>> check(layer, Domain.box(1.0), Witness(0, np.array([1.0, 0.0]))).status.name
    'ARGMAXABLE'
    >>> half = Certificate(2, np.array([0, 1]), np.array([0.5, 0.5]))
    >>> check(layer, Domain.box(1.0), half).status.name
    'UNARGMAXABLE'
    """
    with plain_arithmetic(layer.device):
        return _check(layer, domain, proof, min_lead)


def _check(
    layer: OutputLayer, domain: Domain, proof: Witness | Certificate, min_lead: float | None
) -> Verdict:
    refused = Verdict(Status.UNDECIDED, float("nan"))
    layer.require_plain_values()
    checker = Checker(layer, domain, min_lead, torch.float64)
    position = {int(index): at for at, index in enumerate(layer.active.tolist())}
    if proof.index not in position:
        return refused
    target = position[proof.index]
    if isinstance(proof, Witness):
        point = torch.from_numpy(np.array(proof.point, dtype=np.float64))[None]
        if point.shape != (1, layer.dim):
            return refused
        found = checker.witnesses(torch.tensor([target]), point.to(layer.device))
        status = Status.ARGMAXABLE if bool(found.accepted[0]) else Status.UNDECIDED
        return Verdict(status, float(found.lead[0]))
    weight = np.array(proof.weight, dtype=np.float64)
    if weight.shape != (len(proof.support),) or any(int(i) not in position for i in proof.support):
        return refused
    support = np.array([position[int(i)] for i in proof.support], dtype=np.int64)
    accepted, bound = checker.certificate(target, support, weight)
    return Verdict(Status.UNARGMAXABLE if accepted else Status.UNDECIDED, bound)
