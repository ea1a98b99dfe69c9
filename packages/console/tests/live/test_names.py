"""Long names give way to figures, and addresses stay in one piece."""

from collections.abc import Iterator

import pytest

from packages.console.tests.support.browser import Browser
from packages.console.tests.support.console import ConsoleProcess
from tests.support.harness import LiveNode
from tests.support.live_helpers import add_job

LONG = "a-queue-with-a-name-that-is-much-too-long." * 5
TABLES = ["/", "/queues", f"/queue?name={LONG}&by=group", "/dead", "/clients"]
ADDRESSES = [
    *("/", "/cluster", "/clients", "/slow", "/settings", "/workers"),
    *("/jobs", "/jobs?state=running", f"/queue?name={LONG}", f"/workers?queue={LONG}"),
]

CUT_OFF = """
    return [...document.querySelectorAll('.scroll')]
        .filter(e => e.scrollWidth > e.clientWidth + 1)
        .map(e => e.innerText.slice(0, 80))
"""
"""The tables of which a part is out of sight."""

BROKEN = r"""
    const found = [], walker = document.createTreeWalker(document.querySelector('main'), 4);
    for (let node; node = walker.nextNode();) {
        for (const match of node.data.matchAll(/\d+\.\d+\.\d+\.\d+:\d+/g)) {
            const range = document.createRange();
            range.setStart(node, match.index);
            range.setEnd(node, match.index + match[0].length);
            if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) found.push(match[0]);
        }
    }
    return found
"""
"""The addresses that are on more than one line."""


@pytest.fixture(scope="module")
def busy(node: LiveNode, open_console: ConsoleProcess) -> Iterator[ConsoleProcess]:
    """A console of a node with long names everywhere."""
    wire = node.wire()
    wire("CLIENT", "SETNAME", "a-client-" * 12)
    node.ask("QSET", LONG, "ATTEMPTS", 1, "DEAD", f"{LONG}dead")
    for number in range(3):
        add_job(wire, LONG, "x", "GROUP", f"{LONG}{number}", "RETRY", 600)
    wire("GETJOB", "FROM", LONG)
    [job] = wire("GETJOB", "FROM", LONG)
    wire("NACK", job[1], "DEAD")
    open_console.wait_for(f"/queue?name={LONG}", "On the nodes")
    open_console.wait_for("/dead", f"{LONG}dead")
    yield open_console
    wire.close()


@pytest.mark.parametrize("width", [1440, 1280])
@pytest.mark.parametrize("path", TABLES)
def test_no_figure_is_cut_off_beside_a_long_name(
    chrome: Browser, busy: ConsoleProcess, path: str, width: int
) -> None:
    chrome.look(width)
    chrome.open(busy.base + path)
    assert "a-queue-with" in chrome.text() or "a-client" in chrome.text()
    assert chrome.run(CUT_OFF) == []
    assert chrome.overflow() == 0


@pytest.mark.parametrize("path", ADDRESSES)
def test_an_address_is_not_broken_on_a_narrow_screen(
    chrome: Browser, busy: ConsoleProcess, path: str
) -> None:
    chrome.look(390)
    chrome.open(busy.base + path)
    assert chrome.run(BROKEN) == []
    assert chrome.overflow() == 0
