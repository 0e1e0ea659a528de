"""Small sets that hit each of many sets: who could be above a class, given its certificates."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NODES = 200_000
"""Where a search is given up."""


class GivenUpError(Exception):
    """A search took too long to tell."""


def hitting_set(
    supports: Sequence[frozenset[int]], size: int, most_nodes: int = MOST_NODES
) -> frozenset[int] | None:
    """A set of at most ``size`` members that has one in common with each support, or None.

    Branches over the members of a support that isn't hit yet, and cuts where as many supports as
    are left to choose, and one more, have no member in common. Exact.

    Args:
        supports: the sets to hit.
        size: from 0.
        most_nodes: branches to look at.

    Raises:
        GivenUpError: these were not enough to tell.

    >>> hitting_set([frozenset({1, 2}), frozenset({2, 3}), frozenset({4})], 2)
    frozenset({2, 4})
    >>> hitting_set([frozenset({1, 2}), frozenset({2, 3}), frozenset({4})], 1) is None
    True
    """
    nodes = 0

    def search(open_: list[frozenset[int]], left: int, barred: frozenset[int]) -> list[int] | None:
        nonlocal nodes
        nodes += 1
        if nodes > most_nodes:
            raise GivenUpError
        if not open_:
            return []
        shortest = min(open_, key=len)
        if left == 0 or not shortest or _apart(open_, left + 1):
            return None
        often = {member: sum(member in other for other in open_) for member in shortest}
        for member in sorted(shortest, key=lambda one: (-often[one], one)):
            # Sets with a member that was tried before have been looked at.
            rest = [other - barred for other in open_ if member not in other]
            found = search(rest, left - 1, barred)
            if found is not None:
                return [member, *found]
            barred = barred | {member}
        return None

    found = search(list(supports), size, frozenset())
    return None if found is None else frozenset(found)


def _apart(supports: Sequence[frozenset[int]], count: int) -> bool:
    """Whether so many supports, found greedily, have no member in common."""
    taken: set[int] = set()
    for support in sorted(supports, key=len):
        if taken.isdisjoint(support):
            taken |= support
            count -= 1
            if count == 0:
                return True
    return False
