"""Debian's chromium, driven by selenium: the look of a page, and its errors."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.support.harness import HANG_SECONDS, wait_until

# The headless shell takes two thirds of the CPU time of the others. Its command is a script that
# waits for it, and all that a driver would end.
BROWSERS = (
    "/usr/lib/chromium/chromium-headless-shell",
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
)
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
    """A headless browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def look(self, width: int = 1440, scheme: str = "light", height: int = 900) -> None:
        """Set the width of the window and the preferred colour scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, address: str) -> None:
        """Load a page, and wait for it."""
        self.driver.get(address)
        # On a busy machine the driver may return earlier.
        wait_until(lambda: self.run("return document.readyState === 'complete'"))

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        """The first element that matches a selector; waits for it."""
        found: list[WebElement] = []

        def there() -> bool:
            found[:] = self.all(selector)
            return bool(found)

        wait_until(there)
        return found[0]

    def all(self, selector: str) -> list[WebElement]:
        """All elements that match a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "main") -> str:
        """The visible text of an element."""
        text = self.run(
            "const e = document.querySelector(arguments[0]); return e ? e.innerText : ''", selector
        )
        return str(text)

    def press(self, selector: str) -> None:
        """Click an element. The page may be replacing it."""

        def clicked() -> bool:
            try:
                element = self.find(selector)
                self.run("arguments[0].scrollIntoView({block: 'center'})", element)
                element.click()
            except StaleElementReferenceException:
                return False
            return True

        wait_until(clicked)

    def hover(self, selector: str) -> None:
        """Move the mouse over an element. The page may be replacing it."""

        def there() -> bool:
            try:
                element = self.find(selector)
                self.run("arguments[0].scrollIntoView({block: 'center'})", element)
                ActionChains(self.driver).move_to_element(element).perform()
            except StaleElementReferenceException:
                return False
            return True

        wait_until(there)

    def type(self, selector: str, text: str) -> None:
        """Fill in a field."""
        element = self.find(selector)
        element.clear()
        element.send_keys(text)

    def state(self) -> str:
        """The address, the focus and the text of the page."""
        script = """
            const at = document.activeElement;
            return [location.href, document.readyState, at && at.outerHTML.slice(0, 200),
                    document.body && document.body.innerText.slice(0, 2000)].join("\\n")
        """
        return str(self.run(script))

    def complaints(self) -> list[str]:
        """The messages on the browser's console since the last call."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]

    def overflow(self) -> int:
        """How many pixels the page is too wide."""
        script = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        return int(self.run(script))

    def picture(
        self, path: Path, width: int = 1440, scheme: str = "light", height: int | None = None
    ) -> None:
        """Take a picture of the whole page, or of its first ``height`` pixels."""
        whole = int(self.run("return document.documentElement.scrollHeight"))
        self.look(width, scheme, height or min(whole, 4000))
        assert self.driver.save_screenshot(str(path))
        self.look(width, scheme)


@contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """A browser, whose profile and other files are in ``directory``.

    Raises:
        pytest.skip.Exception: chromium or its driver is not installed.
    """
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip(
            "no browser is installed: apt-get install chromium-headless-shell chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The driver creates the profile: with another one, the headless shell opens no page.
    service = Service(driver, env={**os.environ, "TMPDIR": str(directory)})
    found = webdriver.Chrome(options=options, service=service)
    found.set_script_timeout(HANG_SECONDS)
    try:
        yield Browser(found)
    finally:
        found.quit()


def faults(browser: Browser, address: str, widths: Sequence[int] = WIDTHS) -> list[str]:
    """Problems with a page, on wide and narrow screens, light and dark: console messages, excess
    width, or executed hostile code."""
    browser.look(widths[0])
    browser.open(address)
    return [line for width in widths for line in faults_here(browser, width)]


def faults_here(browser: Browser, width: int) -> list[str]:
    """The same for the open page, at one width."""
    found = []
    for scheme in SCHEMES:
        browser.look(width, scheme)
        browser.run("return new Promise(resolve => setTimeout(resolve, 50))")
        found += [f"{width} {scheme}: {line}" for line in browser.complaints()]
        if over := browser.overflow():
            found.append(f"{width} {scheme}: {over} pixels too wide")
        if browser.run("return window.ran"):
            found.append(f"{width} {scheme}: something hostile ran")
    return found
