"""Debian's chromium, driven by selenium: what a page looks like, and what it complains of."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.support.harness import wait_until

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
WIDTHS = (390, 1440)
SCHEMES = ("light", "dark")


class Browser:
    """A browser without a window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def look(self, width: int = 1440, scheme: str = "light", height: int = 900) -> None:
        """Be so wide, and prefer these colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, address: str) -> None:
        """Go to a page, and wait until it is there."""
        self.driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script."""
        return self.driver.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def find(self, selector: str) -> WebElement:
        """The first element of a selector; waits for it."""
        wait_until(lambda: self.all(selector))
        return self.all(selector)[0]

    def all(self, selector: str) -> list[WebElement]:
        """All elements of a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "main") -> str:
        """What is to be read in an element."""
        text = self.run(
            "const e = document.querySelector(arguments[0]); return e ? e.innerText : ''", selector
        )
        return str(text)

    def press(self, selector: str) -> None:
        """Click."""
        self.run("arguments[0].scrollIntoView({block: 'center'})", self.find(selector))
        self.find(selector).click()

    def type(self, selector: str, text: str) -> None:
        """Fill a field in."""
        element = self.find(selector)
        element.clear()
        element.send_keys(text)

    def complaints(self) -> list[str]:
        """What the console of the browser says since this was asked last."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]

    def overflow(self) -> int:
        """By how many pixels the page is too wide."""
        script = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        return int(self.run(script))

    def picture(self, path: Path, width: int = 1440, scheme: str = "light") -> None:
        """Take a picture of the whole page."""
        height = int(self.run("return document.documentElement.scrollHeight"))
        self.look(width, scheme, min(height, 4000))
        assert self.driver.save_screenshot(str(path))
        self.look(width, scheme)


@contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """A browser with an empty profile in ``directory``.

    Raises:
        pytest.skip.Exception: chromium or its driver is not installed.
    """
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no browser is installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in (*OPTIONS, f"--user-data-dir={directory}"):
        options.add_argument(option)  # type: ignore[no-untyped-call]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(found)
    finally:
        found.quit()


def faults(browser: Browser, address: str, widths: Sequence[int] = WIDTHS) -> list[str]:
    """What is wrong with a page, on wide and narrow screens, light and dark: it complains, is too
    wide, or ran what was hostile."""
    found = []
    for width in widths:
        for scheme in SCHEMES:
            browser.look(width, scheme)
            browser.open(address)
            browser.run("return new Promise(resolve => setTimeout(resolve, 50))")
            found += [f"{width} {scheme}: {line}" for line in browser.complaints()]
            if over := browser.overflow():
                found.append(f"{width} {scheme}: {over} pixels too wide")
            if browser.run("return window.ran"):
                found.append(f"{width} {scheme}: something hostile ran")
    return found
