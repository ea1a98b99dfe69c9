"""The pages in a real browser: wide and narrow, light and dark, by keyboard, live."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.support.browser import Browser, browser, faults
from tests.support.console import HOSTILE, PAGES, ConsoleProcess, quoted
from tests.support.harness import LiveNode, wait_until
from tests.support.live_helpers import add_job


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the tests of the module."""
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def hostile(node: LiveNode, open_console: ConsoleProcess) -> dict[str, str]:
    """Everything that is hostile is stored; returns the name of a queue that has it all, and the id
    of a job, as they stand in addresses."""
    wire = node.wire()
    job = wire("ADDJOB", HOSTILE[0], "\n".join(HOSTILE), 0, "HEADERS", 1, HOSTILE[0], HOSTILE[1])
    assert isinstance(job, bytes)
    for name in HOSTILE:
        headers = ("HEADERS", 1, name, name) if len(name) < 1000 else ()
        wire("ADDJOB", name, name, 0, *headers)
        wire("ADDJOB", HOSTILE[0], name, 0, *headers)
        wire("CLIENT", "SETNAME", name)
    wire("QSET", HOSTILE[1], "DEAD", HOSTILE[0], "ATTEMPTS", 3)
    [[_, id, _]] = wire("GETJOB", "FROM", HOSTILE[1])  # type: ignore[misc]
    wire("NACK", id, "DEAD", "REASON", HOSTILE[2])
    open_console.wait_for(f"/queue?name={quoted(HOSTILE[0])}", "On the nodes")
    return {"queue": quoted(HOSTILE[0]), "job": quoted(job)}


@pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))
def test_each_page_fits_and_nothing_complains_or_runs(
    chrome: Browser, open_console: ConsoleProcess, hostile: dict[str, str], page: str
) -> None:
    address = open_console.base + page.format(**hostile)
    assert faults(chrome, address) == []


def test_figures_change_in_place_and_what_is_typed_stays(
    chrome: Browser, open_console: ConsoleProcess, node: LiveNode
) -> None:
    wire = node.wire()
    add_job(wire, "moving")
    open_console.wait_for("/queue?name=moving", "On the nodes")
    chrome.look()
    chrome.open(f"{open_console.base}/queue?name=moving")
    chrome.press("#add summary")
    chrome.type("#add textarea[name=body]", "half a sentence")
    chrome.run("window.same = document.querySelector('#live .tiles')")
    add_job(wire, "moving")
    wait_until(lambda: "Queued\n2" in chrome.text("#live .tiles"))
    assert chrome.run("return window.same === document.querySelector('#live .tiles')")
    assert chrome.find("#add textarea[name=body]").get_attribute("value") == "half a sentence"
    assert chrome.run("return document.querySelector('#add').open")
    assert chrome.complaints() == []


def test_a_chart_tells_what_is_under_the_mouse(
    chrome: Browser, open_console: ConsoleProcess
) -> None:
    chrome.look()
    chrome.open(open_console.base + "/")
    chrome.find(".band")
    chrome.run(
        "document.querySelector('.band').dispatchEvent(new Event('pointerover', {bubbles: true}))"
    )
    wait_until(lambda: "ago: added" in chrome.text(".readout"))


def test_a_purge_with_the_keyboard_alone(
    chrome: Browser, open_console: ConsoleProcess, node: LiveNode
) -> None:
    add_job(node.wire(), "by-key")
    open_console.wait_for("/queue?name=by-key", "On the nodes")
    chrome.look()
    chrome.open(f"{open_console.base}/queue?name=by-key")
    for _ in range(40):
        chrome.driver.switch_to.active_element.send_keys(Keys.TAB)
        if chrome.driver.switch_to.active_element.text.startswith("Purge"):
            break
    chrome.driver.switch_to.active_element.send_keys(Keys.ENTER)
    wait_until(lambda: "Cancel all jobs" in chrome.text())
    wait_until(lambda: chrome.driver.switch_to.active_element.text == "Purge")
    chrome.driver.switch_to.active_element.send_keys(Keys.ENTER)
    wait_until(lambda: "1 job of by-key cancelled." in chrome.text())
    assert node.ask("QLEN", "by-key") == 0


def test_a_job_is_ticked_and_cancelled(
    chrome: Browser, open_console: ConsoleProcess, node: LiveNode
) -> None:
    ticked, other = add_job(node.wire(), "tick"), add_job(node.wire(), "tick")
    chrome.look()
    chrome.open(f"{open_console.base}/jobs?queue=tick")
    chrome.press(f"input[aria-label='Tick {ticked}']")
    chrome.press("button[formaction$='/do/job-cancel']")
    wait_until(lambda: "Cancel 1 job?" in chrome.text())
    chrome.press(".confirm button")
    wait_until(lambda: "1 job cancelled." in chrome.text())
    assert node.ask("SHOW", ticked) is None
    assert node.ask("SHOW", other) is not None
    assert chrome.complaints() == []


def test_the_menu_of_a_narrow_screen_opens(chrome: Browser, open_console: ConsoleProcess) -> None:
    chrome.look(390)
    chrome.open(open_console.base + "/")
    assert not chrome.find("nav").is_displayed()
    chrome.press(".menu-button")
    wait_until(lambda: chrome.find("nav").is_displayed())
    chrome.press("nav a[href='/queues']")
    wait_until(lambda: chrome.text("h1") == "Queues")


def test_colours_can_be_chosen(chrome: Browser, open_console: ConsoleProcess) -> None:
    def ground() -> str:
        return str(chrome.run("return getComputedStyle(document.body).backgroundColor"))

    chrome.look(scheme="light")
    chrome.open(open_console.base + "/queues")
    light = ground()
    chrome.press(".themes a[href*='to=dark']")
    wait_until(lambda: ground() != light)
    assert chrome.text("h1") == "Queues"
    chrome.look(scheme="dark")
    chrome.press(".themes a[href*='to=light']")
    wait_until(lambda: ground() == light)
    chrome.press(".themes a[href*='to=system']")


def test_a_console_that_is_gone_is_told_on_the_page(
    chrome: Browser, node: LiveNode, directory: Path
) -> None:
    from tests.support.console import console

    with console(directory, [node.port]) as found:
        chrome.look()
        chrome.open(found.base + "/")
        wait_until(lambda: "here" in chrome.text("#live"))
        found.stop()
        wait_until(lambda: chrome.find("#stale").is_displayed())
    chrome.complaints()
