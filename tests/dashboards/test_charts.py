"""The layout matches the tags that are written, and no others; leads in powers of ten."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.dashboards.checks import findings
from unarg_callback.dashboards.charts import BANDS, LEAD_EDGES, layout, lead_exponents
from unarg_callback.monitoring.tags import scalars

HEADS = [
    "decoder.generator",
    "decoderXgenerator",
    "tags/out-2",
    "a+b(c)[d]",
    "имя",
    "a",
    "a/potential",
]


def tags_of(head: str) -> set[str]:
    return set(scalars(head, list(findings(head))[-1].record))


def charts(heads: list[str], kind: str) -> list[Any]:
    found = [chart for group in layout(heads).values() for chart in group.values()]
    return [tags for shape, tags in found if shape == kind]


@pytest.mark.parametrize("head", HEADS)
def test_every_pattern_matches_one_tag_of_its_own_head(head: str) -> None:
    written = set().union(*(tags_of(other) for other in HEADS))
    own = tags_of(head)
    for patterns in charts([head], "Multiline"):
        for pattern in patterns:
            # As TensorBoard's server matches them.
            matches = [tag for tag in written if re.match(pattern, tag)]
            assert len(matches) == 1
            assert matches[0] in own


@pytest.mark.parametrize("head", HEADS)
def test_a_band_has_three_tags_as_they_are_written(head: str) -> None:
    (band,) = charts([head], "Margin")
    assert len(band) == 3
    assert set(band) <= tags_of(head)


def test_the_band_holds_the_proven_and_ends_with_the_undecided() -> None:
    finding = list(findings())[-1]
    values = scalars("h", replace(finding.record, provable=3, undecided=2))
    value, lower, upper = (values[tag] for tag in charts(["h"], "Margin")[0])
    assert (value, lower, upper) == (3.0, 3.0, 5.0)


def test_all_heads_share_one_layout() -> None:
    found = layout(HEADS)
    assert list(found[BANDS]) == HEADS
    assert list(found) == [BANDS, *(f"unarg: {head}" for head in HEADS)]


class TestLeads:
    def test_powers_of_ten_of_the_argmaxable(self) -> None:
        report = list(findings())[-1].report
        assert report is not None
        expected = np.log10(report.lead[:3] / report.scale)
        assert lead_exponents(report) == pytest.approx(expected)
        assert ((expected > LEAD_EDGES[0]) & (expected < LEAD_EDGES[-1])).all()

    def test_there_are_none_in_the_free_domain(self) -> None:
        report = list(findings(domain="free"))[-1].report
        assert report is not None
        assert not len(lead_exponents(report))

    @pytest.mark.parametrize("lead", [0.0, 1e-300, np.nan, np.inf, -1.0, 1e300])
    def test_odd_leads_stay_in_range(self, lead: float) -> None:
        report = list(findings())[-1].report
        assert report is not None
        values = lead_exponents(replace(report, lead=np.full(4, lead)))
        assert len(values) == (3 if np.isfinite(lead) else 0)
        assert np.histogram(values, bins=LEAD_EDGES)[0].sum() == len(values)
