"""Label sets and attention keys in tables, charts and JSON lines."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np

from tests.dashboards.checks import findings, skipped
from unarg_callback import Domain
from unarg_callback.dashboards.charts import KEYS, layout
from unarg_callback.dashboards.json_lines import json_line, json_record
from unarg_callback.dashboards.summary_writer import TensorBoardDashboard
from unarg_callback.dashboards.tables import sets_table, sets_tag, tables_of
from unarg_callback.label_sets import LabelHead, ThresholdRule, TopRule
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.label_set_monitor import AskedSets, LabelSetFinding, LabelSetMonitor
from unarg_callback.monitoring.tags import scalars

ROWS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
"""Neither {0, 1} nor {2} can be put out with threshold 0."""


def labels_found(
    sets: Any = ((0, 1), (0, 2), (2,)),
    times: Any = (2, 7, 5),
    *,
    names: list[str] | None = None,
    rows: Any = ROWS,
    exact: bool = True,
    left_out: int = 0,
    step: int = 10,
    monitor: LabelSetMonitor | None = None,
) -> LabelSetFinding:
    """A real check of some sets."""
    labels = len(rows)
    hot = np.zeros((len(sets), labels), dtype=np.bool_)
    for row, members in zip(hot, sets, strict=True):
        row[list(members)] = True
    rule = ThresholdRule()
    ids = np.arange(labels)
    asked = AskedSets(hot, np.array(times), left_out, rule, exact, ids, labels)
    head = LabelHead(rows, rule=rule, names=names)
    monitor = monitor or LabelSetMonitor()
    return monitor.check(head, asked, step, domain=Domain.box(10.0))


def with_sets(found: LabelSetFinding, **more: Any) -> Finding:
    finding = list(findings())[-1]
    record = replace(finding.record, label_sets=found.numbers(), **more)
    return replace(finding, record=record, label_sets=found)


class TestTable:
    def test_the_most_frequent_first(self) -> None:
        table = sets_table(10, labels_found())
        assert table.columns == ("rows", "labels", "since step")
        assert table.rows == (("5", "2", "10"), ("2", "0, 1", "10"))
        (told,) = table.caption
        assert "Step 10: of 3 different label sets" in told
        assert "2 are provably out of reach and 0 undecided" in told
        assert "50.0% of the rows" in told
        assert "box:-10,10 and the rule threshold 0." in told

    def test_names_are_shown_safely(self) -> None:
        found = labels_found(names=["a|b", "<b>", "c\nd"])
        text = sets_table(10, found).markdown()
        assert "<b>" not in text
        assert text.count("\n| ") + text.count("\n|") >= 3
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len(lines) == 4
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1

    def test_what_else_has_to_be_known(self) -> None:
        found = labels_found(exact=False, left_out=1234)
        caption = " ".join(sets_table(10, found).caption)
        assert "may be out of reach as well" in caption
        assert "1,234 rows are not counted" in caption
        assert len(sets_table(10, labels_found()).caption) == 1

    def test_limits(self) -> None:
        table = sets_table(10, labels_found(), limit=1)
        assert (len(table.rows), table.more) == (1, 1)
        assert table.rows[0][0] == "5"
        many = labels_found([range(20), ()], [1, 1], rows=np.eye(20, 1) - 0.5)
        cells = {row[1] for row in sets_table(1, many).rows}
        assert any(cell.endswith("and 8 more") for cell in cells)

    def test_the_empty_set(self) -> None:
        found = labels_found([()], [3], rows=[[0.0, 0.0], [1.0, 0.0]])
        assert sets_table(10, found).rows == (("3", "(none)", "10"),)

    def test_none_out_of_reach(self) -> None:
        table = sets_table(10, labels_found([(0, 2)], [1]))
        assert table.rows == ()
        assert "0 are provably out of reach" in table.markdown()

    def test_it_changes_when_a_set_does_and_not_with_the_counts(self) -> None:
        one = sets_table(10, labels_found())
        more = sets_table(20, labels_found(times=(9, 8, 6), step=20))
        fewer = sets_table(20, labels_found([(0, 1), (0, 2)], [1, 1]))
        assert one.rows != more.rows
        assert one.content == more.content
        assert one.content != fewer.content

    def test_among_the_tables_of_a_finding(self) -> None:
        plain = list(findings())[-1]
        assert sets_tag("generator") not in tables_of(plain)
        assert sets_tag("generator") in tables_of(with_sets(labels_found()))


class TestCharts:
    ATTENTION = {"a.b": {"keys": 4.0, "never_first": 1.0, "undecided": 0.0}}

    def test_patterns_match_what_is_written(self) -> None:
        finding = with_sets(labels_found(), attention=self.ATTENTION)
        written = set(scalars("generator", finding.record))
        written |= {tag.replace("a.b", "aXb") for tag in written}
        found = layout(["generator"], ["generator"], ["a.b"])
        charts: dict[str, Any] = {
            **found[KEYS],
            **{k: v for k, v in found["unarg: generator"].items() if "label" in k},
        }
        assert len(charts) == 2
        for _, patterns in charts.values():
            for pattern in patterns:
                assert len([tag for tag in written if re.match(pattern, tag)]) == 1, pattern

    def test_only_where_there_are_any(self) -> None:
        assert KEYS not in layout(["h"], ["h"])
        assert not any("label" in chart for chart in layout(["h"])["unarg: h"])

    def test_tags(self) -> None:
        found = labels_found()
        tags = scalars("h", with_sets(found, attention=self.ATTENTION).record)
        assert tags["unarg_labels/h/seen"] == 3.0
        assert tags["unarg_labels/h/out_of_reach"] == 2.0
        assert tags["unarg_labels/h/rows_out_of_reach"] == 0.5
        assert tags["unarg_cost/h/label_sets_seconds"] == found.report.seconds
        assert "unarg_labels/h/seconds" not in tags
        assert tags["unarg_attention/a.b/never_first"] == 1.0

    def test_the_layout_grows_when_there_is_more(self) -> None:
        class Writer:
            def __init__(self) -> None:
                self.layouts: list[Any] = []

            def add_custom_scalars(self, layout: Any) -> None:
                self.layouts.append(layout)

        writer = Writer()
        dashboard = TensorBoardDashboard(writer, ["generator"])
        plain = list(findings())[-1]
        full = with_sets(labels_found(), attention=self.ATTENTION)
        for finding in (plain, plain, full, full, plain):
            dashboard.show(finding)
        assert len(writer.layouts) == 2
        assert KEYS not in writer.layouts[0]
        assert list(writer.layouts[1][KEYS]) == ["a.b"]


class TestJson:
    def test_rows(self) -> None:
        record = json_record(with_sets(labels_found(names=["a", "b", "c" * 500])))
        assert record["label_sets"]["out_of_reach"] == 2.0
        first, second = record["out_of_reach"]
        assert second == {"labels": [0, 1], "names": ["a", "b"], "rows": 2, "since_step": 10}
        assert (first["labels"], first["rows"]) == ([2], 5)
        assert len(first["names"][0]) < 500
        assert json.loads(json_line(json_record(with_sets(labels_found()))))["out_of_reach"] == [
            {"labels": [2], "names": None, "rows": 5, "since_step": 10},
            {"labels": [0, 1], "names": None, "rows": 2, "since_step": 10},
        ]
        assert json_record(list(findings())[-1])["out_of_reach"] == []

    def test_ids_are_those_of_the_layer(self) -> None:
        found = labels_found()
        moved = replace(found, asked=replace(found.asked, ids=np.array([3, 5, 8]), labels=9))
        rows = json_record(with_sets(moved))["out_of_reach"]
        assert [row["labels"] for row in rows] == [[8], [3, 5]]
        assert [row[1] for row in sets_table(1, moved).rows] == ["8", "3, 5"]

    def test_bounded(self) -> None:
        sets = [(i,) for i in range(60)]
        rows = np.zeros((60, 2))
        record = json_record(with_sets(labels_found(sets, [1] * 60, rows=rows)))
        assert len(record["out_of_reach"]) == 50
        wide = labels_found([range(300)], [1], rows=-np.ones((300, 1)) * [[1]] + np.eye(300, 1) * 2)
        assert all(len(r["labels"]) <= 50 for r in json_record(with_sets(wide))["out_of_reach"])


def test_top_rule_is_named() -> None:
    head, hot = LabelHead(ROWS, rule=TopRule()), np.eye(3, dtype=np.bool_)
    asked = AskedSets(hot, np.ones(3, int), 0, TopRule(), False, np.arange(3), 3)
    found = LabelSetMonitor().check(head, asked, 1, domain=Domain.box(10.0))
    assert "the rule largest logits" in sets_table(1, found).caption[0]


def test_a_skipped_check_has_no_table() -> None:
    assert sets_tag("generator") not in tables_of(skipped())
    assert json_record(skipped())["out_of_reach"] == []
