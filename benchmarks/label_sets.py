"""Which of many label sets a head can put out: cold, and again after a step of training.

Usage: ``OMP_NUM_THREADS=1 python -m benchmarks.label_sets [--labels 100] [--dim 8] [--sets 5000]``

Half of the sets are put out at random inputs, the other half are these with one label changed. Each
line has the time of a cold check, of a warm one after every weight moved by 1e-3 of their spread,
and, for comparison, of one complete LP a set and sign by HiGHS without a proof.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from benchmarks.timing import ratio
from unarg_callback import Domain
from unarg_callback.label_sets import (
    IncrementalLabelSets,
    LabelHead,
    Rule,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
)
from unarg_callback.label_sets.checker import SetChecker
from unarg_callback.label_sets.problem import Problem

_RULES: tuple[Rule, ...] = (
    ThresholdRule(),
    TopRule(),
    SparsegenRule(),
    SparsegenRule(-3.0),
    SparsehourglassRule(0.1),
)
_FULL = 50
"""Sets whose complete LPs are timed."""


def label_sets(head: LabelHead, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Sets that are put out at random inputs, and sets beside these."""
    points = rng.uniform(-3, 3, size=(count // 2, head.dim))
    value = SetChecker(Problem(head, Domain.box(3.0))).produced(points)
    if isinstance(head.rule, TopRule):
        value = value - np.sort(value, axis=1)[:, -4:-3]
    found = value > 0
    beside = found.copy()
    beside[np.arange(len(found)), rng.integers(head.labels, size=len(found))] ^= True
    return np.vstack([found, beside])


def full_programmes(head: LabelHead, sets: NDArray[np.bool_], domain: Domain) -> float:
    """Seconds a set of one complete LP for each sign."""
    problem = Problem(head, domain)
    problem_sets = sets[~np.any(problem.trivial(sets), axis=0)][:_FULL]
    everyone = np.arange(head.labels)[None]
    bound = (None, None) if domain.is_free else (-1.0, 1.0)
    limits = [*[bound] * problem.variables, (None, 1.0 if domain.is_free else None)]
    begin = time.perf_counter()
    for one in problem_sets:
        for sign in problem.signs:
            rows, offset = problem.constraints(one[None], sign, everyone, *problem.window)
            matrix = np.hstack([-rows[0], np.ones((head.labels, 1))])
            cost = np.append(np.zeros(problem.variables), -1.0)
            linprog(cost, matrix, offset[0], bounds=limits, method="highs")
    return (time.perf_counter() - begin) / max(1, len(problem_sets))


def main() -> None:
    """Print one line for each rule and domain."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--sets", type=int, default=5000)
    args = parser.parse_args()
    print(f"{args.labels} labels x {args.dim} features, {args.sets} label sets; seconds")
    print(
        f"{'rule':20}{'domain':>12}{'distinct':>10}{'out of reach':>14}{'undecided':>11}"
        f"{'cold':>8}{'warm':>8}{'full LPs':>10}"
    )
    for domain in (Domain.box(100.0), Domain.free()):
        for rule in _RULES:
            rng = np.random.default_rng(0)
            weight = rng.normal(size=(args.labels, args.dim))
            head = LabelHead(weight, rng.normal(size=args.labels) - 3, rule)
            sets = label_sets(head, args.sets, rng)
            checks = IncrementalLabelSets(domain)
            cold = checks.update(head, sets)
            moved = LabelHead(weight + 1e-3 * rng.normal(size=weight.shape), head.bias, rule)
            warm = checks.update(moved, sets)
            counts = cold.counts
            left = counts["distinct_undecided"] + warm.counts["distinct_undecided"]
            full = full_programmes(head, cold.evidence.sets, domain) * cold.distinct
            print(
                f"{rule!s:20}{domain!s:>12}{cold.distinct:>10,}"
                f"{counts['distinct_unattainable']:>14,}{left:>11}"
                f"{cold.seconds:>8.2f}{warm.seconds:>8.2f}{full:>10.1f}",
                flush=True,
            )
            ratio(f"full LPs / cold check, {rule}, {domain}", full / cold.seconds)


if __name__ == "__main__":
    main()
