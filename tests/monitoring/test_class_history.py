from __future__ import annotations

import numpy as np

from unarg_callback import OutputLayer, Report, verify
from unarg_callback.monitoring.class_history import ClassHistory

CORNERS = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]


def report(*inner: tuple[float, float]) -> Report:
    """Of the corners of a square and of classes at points within or without."""
    return verify(OutputLayer(np.array([*CORNERS, *inner])), "box:10")


def history(*steps: tuple[int, Report]) -> ClassHistory:
    kept = ClassHistory()
    for step, one in steps:
        kept.update(one, step, "output")
    return kept


INSIDE, OUTSIDE = (0.1, 0.2), (3.0, 0.0)


def test_since_when_counts_only_without_a_break() -> None:
    kept = history((10, report(INSIDE, INSIDE)), (20, report(INSIDE, OUTSIDE)))
    assert kept.provable_since == {4: 10}
    kept.update(report(OUTSIDE, INSIDE), 30, "output")
    kept.update(report(INSIDE, INSIDE), 40, "output")
    assert kept.provable_since == {4: 40, 5: 30}


def test_changes_of_a_check() -> None:
    kept = history((10, report(INSIDE, OUTSIDE, (-3.0, 0.0))))
    changes = kept.update(report(OUTSIDE, INSIDE, INSIDE), 20, "output")
    assert (changes.appeared, changes.returned, changes.lost) == (2, 1, 2)
    # All who led were few enough to be listed as at risk.
    assert changes.forewarned == 2
    kinds = {event.kind: list(event.classes) for event in changes.events}
    assert kinds == {"unargmaxable": [5, 6], "returned": [4]}


def test_new_classes_grow_it_and_fewer_begin_anew() -> None:
    kept = history((10, report(INSIDE)))
    kept.update(report(INSIDE, INSIDE), 20, "output")
    assert kept.provable_since == {4: 10, 5: 20}
    kept.update(report(INSIDE), 30, "output")
    assert kept.provable_since == {4: 30}


def test_a_state_goes_on_where_it_was_but_not_in_another_domain() -> None:
    kept = history((10, report(INSIDE, OUTSIDE)), (20, report(INSIDE, OUTSIDE)))
    again = ClassHistory()
    again.load_state_dict(kept.state_dict(), same_domain=True)
    for one in (kept, again):
        one.update(report(INSIDE, INSIDE), 30, "output")
    assert again.provable_since == kept.provable_since == {4: 10, 5: 30}
    assert again.at_risk == kept.at_risk
    elsewhere = ClassHistory()
    elsewhere.load_state_dict(kept.state_dict(), same_domain=False)
    assert elsewhere.provable_since == {}
    elsewhere.update(report(INSIDE, INSIDE), 40, "output")
    assert elsewhere.provable_since == {4: 40, 5: 40}
