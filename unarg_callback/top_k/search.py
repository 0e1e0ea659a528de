"""Look for the proofs: linear programmes over all rivals but some."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.geometry.proof import Certificate
from unarg_callback.search.certify import certifier_of
from unarg_callback.search.exact import Window
from unarg_callback.search.frame import whitening_frame
from unarg_callback.search.limits import Limits
from unarg_callback.search.linear_program import LinearProgram
from unarg_callback.top_k.hitting import GivenUpError, hitting_set
from unarg_callback.top_k.proof import TopKCertificate, TopKWitness, unbeaten

_ROUNDS = 100
_CUTS = 32
_MOST_PARTS = 2_000
_LEAST_SHARE = 1e-12


class TopKSearch:
    """Settles one class after another.

    Args:
        checker: decides.
        k: K.
        limits: when to stop.
    """

    def __init__(self, checker: Checker, k: int, limits: Limits) -> None:
        self.checker = checker
        self.k = k
        self.limits = limits
        frame = whitening_frame(checker.sweep)
        self.window = Window.of(checker, frame)
        self.certifier = certifier_of(checker, frame)

    def settle(self, target: int) -> TopKWitness | TopKCertificate | None:
        """A proof about a class, by positions among the active ones; or None.

        The certificates so far say who may be above the class: at each input a hitting set of their
        supports. As long as there is one of K - 1 rivals, the class is tried against all others:
        either it beats them, or that makes one more certificate.
        """
        programme = _Programme(self, target)
        parts: list[Certificate] = []
        for _ in range(_MOST_PARTS):
            try:
                above = hitting_set([frozenset(p.support.tolist()) for p in parts], self.k - 1)
            except GivenUpError:
                return None
            if above is None:
                return TopKCertificate(target, tuple(parts))
            found = programme.solve(above)
            if isinstance(found, Tensor):
                return TopKWitness(target, found.cpu().numpy())
            if found is None:
                return None
            parts.append(found)
        return None


class _Programme:
    """The LPs of one class; rivals that mattered in one are in the next from the start."""

    def __init__(self, search: TopKSearch, target: int) -> None:
        self.checker, self.window = search.checker, search.window
        self.certifier, self.limits, self.k = search.certifier, search.limits, search.k
        self.target = target
        self.own = torch.tensor([target])
        self.pool = torch.zeros(0, dtype=torch.int64)
        self.rows = np.zeros((0, self.checker.layer.dim))
        self.offsets = np.zeros(0)

    def solve(self, without: frozenset[int]) -> Tensor | Certificate | None:
        """Maximise the lead over all rivals but some: ``max_u min_i a_i . u + beta_i``.

        Returns:
            A point where fewer than K rivals aren't beaten, a certificate over rivals that take
            part, or None where neither was found.
        """
        dim = self.checker.layer.dim
        cost, ones = np.append(np.zeros(dim), -1.0), np.ones(dim)
        programme = LinearProgram(cost, np.append(-ones, -np.inf), np.append(ones, np.inf))
        out = torch.tensor(sorted(without), dtype=torch.int64)
        at = (~torch.isin(self.pool, out)).nonzero().squeeze(1)
        if not len(at):
            at = self._grow(torch.zeros(dim, dtype=torch.float64), out, -np.inf)
        scale = float(np.abs(self.rows).sum(1).mean() + np.abs(self.offsets).mean()) or 1.0
        rivals = self.pool[:0]
        for _ in range(_ROUNDS):
            if not len(at) or self.limits.reached():
                return None
            places = at.numpy()
            matrix = np.hstack([self.rows[places] / scale, -np.ones((len(at), 1))])
            programme.add_rows(matrix, -self.offsets[places] / scale, np.full(len(at), np.inf))
            rivals = torch.cat([rivals, self.pool[at]])
            found = programme.solve(self.limits.remaining())
            if found is None:
                return None
            u = torch.from_numpy(found.value[:-1]).clamp(-1, 1)
            point = self.window.points(u[None].to(self.checker.low.device))[0]
            if unbeaten(self.checker, self.target, point) < self.k:
                return point
            certificate = self._certificate(rivals, torch.from_numpy(np.maximum(found.dual, 0.0)))
            if certificate is not None:
                return certificate
            # Only rivals that cut this optimum off can change it.
            best = -float(found.value[-1]) * scale * self.checker.sweep.unit
            at = self._grow(u, torch.cat([out, rivals]), best)
        return None

    def _grow(self, u: Tensor, known: Tensor, best: float) -> Tensor:
        """Add the strongest rivals at a point to the pool, those known left out; their places."""
        device = self.checker.low.device
        points = self.window.points(u[None].to(device))
        ids, above = self.checker.double.strongest(self.own, points, _CUTS + len(known))
        fresh = (above[0] > best) & ~torch.isin(ids[0], known.to(device))
        new = ids[0][fresh][:_CUTS]
        pooled = torch.isin(new.cpu(), self.pool)
        made = new[~pooled.to(device)]
        if len(made):
            rows, offset = self.window.constraints(self.own.to(device), made[None])
            self.rows = np.vstack([self.rows, rows[0].cpu().numpy()])
            self.offsets = np.append(self.offsets, offset[0].cpu().numpy())
            self.pool = torch.cat([self.pool, made.cpu()])
        return torch.isin(self.pool, new.cpu()).nonzero().squeeze(1)

    def _certificate(self, rivals: Tensor, weight: Tensor) -> Certificate | None:
        total = float(weight.sum())
        if not total > 0:
            return None
        device = self.checker.low.device
        used = weight > _LEAST_SHARE * total
        offered = rivals[used][None].to(device), (weight[used] / total)[None].to(device)
        outcome = self.certifier.offer(self.own.to(device), *offered)[0]
        if outcome is None or outcome.support is None or outcome.weight is None:
            return None
        return Certificate(self.target, outcome.support, outcome.weight)
