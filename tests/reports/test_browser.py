"""A person opens the page: searches, sorts, and reads it without scripts, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.page import browser, missing
from tests.reports.layers import hostile_report
from unarg_callback.reports import report_data, to_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]

_SHOWN = """
return Array.from(document.querySelectorAll('#' + arguments[0] + ' tbody tr'))
  .filter(row => row.offsetParent !== null).map(row => row.cells[arguments[1]].textContent);
"""


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as driver:
        yield driver


@pytest.fixture
def page(driver: Any, tmp_path: Path) -> Any:
    path = tmp_path / "report.html"
    path.write_text(to_html(report_data(hostile_report(), "layer.npz")), encoding="utf-8")
    driver.get(path.as_uri())
    return driver


def shown(driver: Any, section: str, column: int = 0) -> list[str]:
    return list(driver.execute_script(_SHOWN, section, column))


def find(driver: Any, section: str, text: str) -> str:
    """Search, and what the page then says of how many it shows."""
    box = driver.find_element("css selector", f"#{section} input")
    box.clear()
    # Through the keyboard, which clear() doesn't tell the page of.
    box.send_keys(" ", "\ue003", text)
    return str(driver.find_element("css selector", f"#{section} output").text)


def test_search(page: Any) -> None:
    assert shown(page, "unargmaxable") == ["0", "4", "6", "7"]
    assert find(page, "unargmaxable", "QUOTED") == "1 of 4 classes"
    assert shown(page, "unargmaxable") == ["4"]
    assert find(page, "unargmaxable", "6") == "1 of 4 classes"
    assert shown(page, "unargmaxable") == ["6"]
    find(page, "unargmaxable", "<script>")
    assert set(shown(page, "unargmaxable")) >= {"0", "7"}  # One has the name, one equals it.
    assert find(page, "unargmaxable", "nobody") == "0 of 4 classes"
    assert shown(page, "nearest", 0) == shown(page, "nearest", 0) != []
    assert find(page, "unargmaxable", "") == "4 classes"


def test_sorting(page: Any) -> None:
    heads = page.find_elements("css selector", "#unargmaxable th button")
    assert [head.text for head in heads][:3] == ["class", "name", "lead at most"]
    heads[0].click()
    heads[0].click()
    assert shown(page, "unargmaxable") == ["7", "6", "4", "0"]
    heads[2].click()
    leads = [float(text.replace("−", "-")) for text in shown(page, "unargmaxable", 2)]
    assert leads == sorted(leads)
    marked = page.find_elements("css selector", "#unargmaxable th[aria-sort]")
    assert [head.get_attribute("aria-sort") for head in marked] == ["ascending"]
    find(page, "unargmaxable", "quoted")
    heads[1].click()
    assert shown(page, "unargmaxable") == ["4"]


def test_names_are_text_and_nothing_is_blocked_or_wrong(page: Any) -> None:
    assert page.find_elements("css selector", "img") == []
    assert "<script>alert(1)</scr..." in shown(page, "unargmaxable", 1)
    assert page.get_log("browser") == []


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_sticks_out(page: Any, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.refresh()
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_without_scripts(page: Any) -> None:
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.refresh()
        boxes = page.find_elements("css selector", ".find")
        assert boxes
        assert not any(box.is_displayed() for box in boxes)
        assert page.find_element("css selector", "#unargmaxable tbody tr").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
