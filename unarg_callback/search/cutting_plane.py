"""The second exact way: one LP a class by HiGHS, with rivals added as cuts.

The problem is that of ``interior_point.py``. The simplex method starts from a few rivals, and those
that beat the target at the optimum are added until none does, or until the multipliers certify.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unarg_callback.geometry.checker import Checker
from unarg_callback.search.certify import Certifier
from unarg_callback.search.exact import DEADLINE, LIMIT, NUMERICAL, Outcome, Window
from unarg_callback.search.limits import Limits
from unarg_callback.search.linear_program import LinearProgram, Solution

_ROUNDS = 200
_SEEDS = 64
_CUTS = 32


class CuttingPlane:
    """Settles classes one at a time.

    Args:
        checker: decides.
        window: where the LP looks.
        certifier: makes certificates of its multipliers.
    """

    def __init__(self, checker: Checker, window: Window, certifier: Certifier) -> None:
        self.checker = checker
        self.window = window
        self.certifier = certifier

    def settle(self, targets: Tensor, rivals: Tensor, limits: Limits) -> list[Outcome]:
        """See :class:`~unarg_callback.search.exact.ExactWay`."""
        outcomes: list[Outcome] = []
        for target, seeds in zip(targets.tolist(), rivals[:, :_SEEDS], strict=True):
            if limits.reached():
                outcomes.append(Outcome(target, reason=DEADLINE))
            else:
                outcomes.append(_Programme(self, target, limits).run(seeds))
                limits.advance(int(outcomes[-1].settled))
        return outcomes


class _Programme:
    """The growing LP of one class."""

    def __init__(self, way: CuttingPlane, target: int, limits: Limits) -> None:
        self.checker, self.window, self.limits = way.checker, way.window, limits
        self.certifier = way.certifier
        self.target = torch.tensor([target])
        dim = self.checker.layer.dim
        ones = np.ones(dim)
        cost = np.append(np.zeros(dim), -1.0)
        self.program = LinearProgram(cost, np.append(-ones, -np.inf), np.append(ones, np.inf))
        self.rivals = torch.zeros(0, dtype=torch.int64, device=self.checker.layer.device)
        self.scale = 1.0

    def run(self, seeds: Tensor) -> Outcome:
        """Add cuts until the class is settled, or nothing is left to add."""
        target = int(self.target[0])
        self._add(seeds.to(self.rivals.device))
        for _ in range(_ROUNDS):
            found = self.program.solve(self.limits.remaining())
            if found is None:
                return Outcome(target, reason=DEADLINE if self.limits.reached() else LIMIT)
            certificate = self._certificate(found)
            if certificate is not None:
                return certificate
            u = torch.from_numpy(found.value[:-1]).to(self.rivals.device).clamp(-1, 1)
            point = self.window.points(u[None])
            witness = self.checker.witnesses(self.target, point)
            if bool(witness.accepted[0]):
                return Outcome(target, point[0], float(witness.lead[0]))
            ids, above = self.checker.double.strongest(self.target, point, _CUTS)
            # Only rivals that cut this optimum off can change it.
            cut = above[0] > -float(found.value[-1]) * self.scale * self.checker.sweep.unit
            new = ids[0][cut & ~torch.isin(ids[0], self.rivals)]
            if not len(new):
                return Outcome(target, reason=NUMERICAL)
            self._add(new)
        return Outcome(target, reason=LIMIT)

    def _add(self, rivals: Tensor) -> None:
        device = self.rivals.device
        rows, offset = self.window.constraints(self.target.to(device), rivals[None])
        if not len(self.rivals) and len(rivals):
            self.scale = float(rows.abs().sum(2).mean() + offset.abs().mean()) or 1.0
        matrix = rows[0].cpu().numpy() / self.scale
        matrix = np.hstack([matrix, -np.ones((len(rivals), 1))])
        lower = -offset[0].cpu().numpy() / self.scale
        self.program.add_rows(matrix, lower, np.full(len(rivals), np.inf))
        self.rivals = torch.cat([self.rivals, rivals])

    def _certificate(self, found: Solution) -> Outcome | None:
        threshold = self.checker.min_lead / self.checker.sweep.unit / self.scale
        weight = torch.from_numpy(np.maximum(found.dual, 0.0)).to(self.rivals.device)
        total = float(weight.sum())
        if found.value[-1] > threshold + max(self.certifier.slack, 1e-9) or not total > 0:
            return None
        target = self.target.to(self.rivals.device)
        return self.certifier.offer(target, self.rivals[None], (weight / total)[None])[0]
