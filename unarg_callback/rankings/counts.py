"""How many rankings of C classes a layer of d features can produce: exact integers of any size.

An input ranks the classes by their logits; there are C! rankings. With too few features most are
out of reach, and how many aren't depends on C and d alone, as long as W and b are in general
position (no more coincidences among rows and biases than their number forces, as holds with
probability 1 for random ones). Equal rows, parallel differences and the like make it fewer.

With ``c_k = |s(C, C - k)|``, the unsigned Stirling numbers of the first kind:

* with a bias, ``c_0 + c_1 + ... + c_d``;
* without, ``2 (c_{d-1} + c_{d-3} + ...)`` for d < C, and C! from there on.

Sources: T. M. Cover, *The number of linearly inducible orderings of points in d-space*, SIAM J.
Appl. Math. 15, 1967; I. J. Good and T. N. Tideman, *Stirling numbers and a geometric structure from
voting theory*, J. Comb. Theory A 23, 1977; Grivas et al. (2022), Tables 2 and 3 (OEIS A071223).
"""

from __future__ import annotations

import math

from unarg_callback.errors import UnargError

_MANY = 300
"""Power sums are faster where d^2 log2(C) is below this many times C, as measured."""


def feasible_rankings(classes: int, features: int, *, bias: bool = False) -> int:
    """Rankings without ties that some input of a layer in general position produces.

    Args:
        classes: C, at least 1.
        features: d, from 0.
        bias: whether the layer has one.

    Returns:
        The number, exactly. It takes some d^2 operations on integers of its length, or C d if d is
        not much less than C.

    Raises:
        UnargError: classes or features isn't a whole number in range.

    >>> feasible_rankings(4, 2), feasible_rankings(4, 2, bias=True), feasible_rankings(4, 3)
    (12, 18, 24)
    """
    classes, features = _whole(classes, "classes", 1), _whole(features, "features", 0)
    if features >= classes - 1:
        return math.factorial(classes)
    if bias:
        return sum(_stirling(classes, features))
    # Without bias and features all logits are 0: ties alone.
    return 2 * sum(_stirling(classes, features - 1)[::-2]) if features else 0


def table_of_rankings(classes: int, features: int, *, bias: bool = False) -> list[list[int]]:
    """Numbers of feasible rankings for 2 to C classes (rows) and 1 to d features (columns).

    With C = d = 10 these are the paper's Tables 2 (no bias) and 3.

    Args:
        classes: C, the last row.
        features: d, the last column.
        bias: whether the layers have one.

    >>> table_of_rankings(4, 3)
    [[2, 2, 2], [2, 6, 6], [2, 12, 24]]
    """
    _whole(classes, "classes", 1)
    _whole(features, "features", 0)
    terms, rows = [1] + [0] * features, []
    for factor in range(1, classes):
        for k in range(min(features, factor), 0, -1):
            terms[k] += factor * terms[k - 1]
        # Sums up to each k; without bias of every second one, until all rankings are in reach.
        sums, step = list(terms), 1 if bias else 2
        for k in range(step, len(sums)):
            sums[k] += sums[k - step]
        rows.append(sums[1:] if bias else [2 * one for one in sums[:-1]])
    return rows


def _stirling(classes: int, most: int) -> list[int]:
    """``|s(C, C - k)|`` for k from 0 to ``most``: the coefficients of (1 + x) ... (1 + (C-1) x)."""
    if most * most * classes.bit_length() < _MANY * classes:
        return _from_power_sums(classes, most)
    terms = [1] + [0] * most
    for factor in range(1, classes):
        for k in range(min(most, factor), 0, -1):
            terms[k] += factor * terms[k - 1]
    return terms


def _from_power_sums(classes: int, most: int) -> list[int]:
    """The same in ``most^2`` operations, on longer integers: Newton's identities."""
    power = _power_sums(classes, most)
    terms = [1]
    for k in range(1, most + 1):
        signed = (terms[k - i] * power[i] * (-1) ** (i - 1) for i in range(1, k + 1))
        terms.append(sum(signed) // k)
    return terms


def _power_sums(classes: int, most: int) -> list[int]:
    """``1^k + 2^k + ... + (C-1)^k`` for k from 0 to ``most``, from C^(k+1) telescoped."""
    sums: list[int] = []
    binomial = [1]  # Row k + 1 of Pascal's triangle.
    for k in range(most + 1):
        binomial = [1, *(a + b for a, b in zip(binomial, binomial[1:], strict=False)), 1]
        known = sum(binomial[j] * sums[j] for j in range(k))
        sums.append((classes ** (k + 1) - known) // (k + 1))
    return [classes - 1, *sums[1:]]


def _whole(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UnargError(f"{name} is {value!r}; expected a whole number from {least}")
    return value
