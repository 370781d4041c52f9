"""A real browser for pages: Debian's Chromium with its driver, where they are installed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser that keeps what its console says."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if program is None or driver is None:
        pytest.skip("no browser is installed: Debian's packages are chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}", "--window-size=1280,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    started = webdriver.Chrome(options=options, service=service)
    started.set_page_load_timeout(60)
    try:
        yield started
    finally:
        started.quit()


def open_page(browser: Any, path: Path) -> list[str]:
    """Open a page from disk and wait until all is drawn; what its console said."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(path.as_uri())
    wait_for(browser, "return document.documentElement.dataset.ready === 'true'")
    return [entry["message"] for entry in browser.get_log("browser")]


def wait_for(browser: Any, script: str, seconds: float = 30) -> Any:
    """The first value of a script that is true."""
    end = time.monotonic() + seconds
    while not (value := browser.execute_script(script)):
        assert time.monotonic() < end, f"waited in vain for {script}"
        time.sleep(0.05)
    return value
