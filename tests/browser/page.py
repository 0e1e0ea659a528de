"""A real TensorBoard and a real headless Chromium that looks at it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 1600, 1000

_TEXT = """
const out = [];
const walk = (node) => {
  if (node.nodeType === Node.TEXT_NODE) { out.push(node.data); return; }
  if (node.nodeName === 'STYLE' || node.nodeName === 'SCRIPT') return;
  if (node.shadowRoot) walk(node.shadowRoot);
  node.childNodes.forEach(walk);
};
walk(document.documentElement);
return out.join(' ').replace(/\\s+/g, ' ');
"""
_FIND = """
const found = [];
const walk = (node) => {
  if (node.matches && node.matches(arguments[0])) found.push(node);
  if (node.shadowRoot) walk(node.shadowRoot);
  node.childNodes.forEach(walk);
};
walk(document.documentElement);
return found;
"""


def missing() -> str | None:
    """What a browser test lacks here, or None."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """The address of a TensorBoard that shows a folder, which it has read."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--logdir", str(folder), "--port", str(port), "--host", "127.0.0.1"]
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _runs(address), 120)
        yield address
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a screen, with WebGL in software."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--use-gl=angle",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        f"--window-size={WIDTH},{HEIGHT}",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False},
        )
        yield driver
    finally:
        driver.quit()


def text_of(driver: Any) -> str:
    """All text on the page, that in shadow roots included."""
    return str(driver.execute_script(_TEXT))


def find_all(driver: Any, selector: str) -> list[Any]:
    """All elements that a CSS selector matches, those in shadow roots included."""
    return list(driver.execute_script(_FIND, selector))


def wait_for(ready: Callable[[], Any], seconds: float = 60) -> Any:
    """What a function returns once it is true.

    Raises:
        TimeoutError: it never was.
    """
    end = time.monotonic() + seconds
    while True:
        answer = ready()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"nothing after {seconds} seconds")
        time.sleep(0.25)


def wait_for_text(driver: Any, *texts: str, seconds: float = 60) -> str:
    """The text of the page once it holds all of these.

    Raises:
        AssertionError: it never did.
    """
    try:
        wait_for(lambda: all(text in text_of(driver) for text in texts), seconds)
    except TimeoutError:
        page = text_of(driver)
        lacking = [text for text in texts if text not in page]
        raise AssertionError(f"the page lacks {lacking}; it has: {page[:4000]}") from None
    return text_of(driver)


def _runs(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/data/runs", timeout=5) as answer:
            return bool(answer.read().strip() not in (b"", b"[]"))
    except OSError:
        return False
