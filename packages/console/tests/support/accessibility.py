"""axe-core, which finds accessibility problems on pages."""

import sys
from pathlib import Path
from typing import Final

import pytest

from packages.console.tests.support.browser import SCHEMES, WIDTHS, Browser

AXE: Final = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
COLOURS: Final = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
_UNFOLD: Final = """
for (const part of document.querySelectorAll("details")) part.open = true;
const menu = document.getElementById("menu");
if (menu) menu.checked = true;
"""
_RUN: Final = """
const [source, options, done] = arguments;
if (source) (0, eval)(source);
axe.run(document, {resultTypes: ["violations"], preload: false, ...options}).then(
  (found) => done(found.violations.flatMap((rule) => rule.nodes.map((node) =>
    `${rule.impact} ${rule.id}: ${node.html.slice(0, 200)}: ${node.failureSummary}`))),
  (error) => done([`axe failed: ${error}`]));
"""


def barriers(browser: Browser, address: str) -> list[str]:
    """axe-core's violations on a page, on wide and narrow screens, light and dark.

    Raises:
        pytest.skip.Exception: axe-core is not installed.
    """
    browser.open(address)
    found: list[str] = []
    for width in WIDTHS:
        browser.look(width)
        found += barriers_here(browser, width)
    return found


def barriers_here(browser: Browser, width: int) -> list[str]:
    """The same for the open page, with all sections expanded."""
    source = _source()
    browser.run(_UNFOLD)
    found: list[str] = []
    for scheme in SCHEMES:
        browser.look(width, scheme)
        # The second colour scheme changes only colours.
        options = {} if scheme == SCHEMES[0] else COLOURS
        # Half a megabyte, which costs more than the checks of most pages.
        needed = "" if browser.run("return !!window.axe") else source
        said = browser.driver.execute_async_script(_RUN, needed, options)  # type: ignore[no-untyped-call]
        found += [f"{width} {scheme}: {line}" for line in said]
    return found


def _source() -> str:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: tools/setup.sh test does that where npm is")
    return AXE.read_text(encoding="utf-8")
