"""The pages in a real browser: wide and narrow, light and dark, live, and with hostile content."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.bananaq.tests.support.banana_daemons import Daemon, launch
from packages.console.tests.live.conftest import PASSWORD
from packages.console.tests.support.accessibility import barriers, barriers_here
from packages.console.tests.support.browser import WIDTHS, Browser, faults, faults_here
from packages.console.tests.support.console import HOSTILE, PAGES, ConsoleProcess, console, quoted
from packages.console.tests.support.hostile_world import hostile_node, store
from tests.support.harness import LiveNode, wait_until
from tests.support.live_helpers import add_job, start_node
from tests.support.scripted_server import scripted_server

SAME = {
    "bananaq, searched": "/bananaq?search={queue}",
    "clients, searched": "/clients?search={queue}",
    "schedules, searched": "/schedules?search={queue}",
    "settings, searched": "/settings?search={queue}&node={queue}",
    "wrong id": "/job?id={queue}",
    "nothing that can be sorted by": "/queues?sort={queue}&order={queue}&page={queue}",
}
"""Pages that look like other pages."""
MORE = {
    "bananaq": "/bananaq",
    "dead letter": "/job?id={letter}",
    "jobs in hand": "/workers?queue=in-hand&search={queue}",
    "setting that is not there": "/setting?name={queue}",
    "page that is not there": "/nothing/{queue}",
}
LOOKS = {name: page for name, page in (PAGES | MORE).items() if "searched" not in name}
ALL = PAGES | MORE | SAME
CONFIRMED = {
    "purge": ("/queue?name={queue}", "form[action$='/do/purge'] button"),
    "redrive of letters": ("/dead?queue={queue}", ".group form button"),
    "job": ("/job?id={letter}", "form[action$='/do/job-delete'] button"),
    "schedule": ("/schedule?name={queue}", "form[action$='/do/cron-delete'] button"),
    "worker": ("/workers", "form[action$='/do/worker-stop'] button"),
    "worker that hands back": ("/workers", "form[action$='/do/worker-hand-back'] button"),
    "client": ("/clients?search=script", "form[action$='/do/kill'] button"),
}
"""Pages with actions that need confirmation, and their buttons."""


@pytest.fixture(scope="module")
def node(directory: Path) -> Iterator[LiveNode]:
    """A node that writes an event log."""
    node = start_node(directory, "--event-log", "yes", "--event-log-dir", str(directory / "events"))
    yield node
    node.close()


@pytest.fixture(scope="module")
def bananaq(directory: Path) -> Iterator[Daemon]:
    """A bananaq with a password."""
    daemon = launch(directory / "bananaq")
    assert daemon.ask("CONFIG", "SET", "requirepass", PASSWORD) == b"OK"
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def open_console(directory: Path, node: LiveNode, bananaq: Daemon) -> Iterator[ConsoleProcess]:
    """A console with all its pages."""
    options = ["--events", str(directory / "events")]
    options += ["--bananaq", f"bananaq://:{quoted(PASSWORD)}@127.0.0.1:{bananaq.port}"]
    with console(directory, [node.port], *options) as found:
        found.wait_for("/", " up ")
        yield found


@pytest.fixture(scope="module")
def hostile(node: LiveNode, bananaq: Daemon, open_console: ConsoleProcess) -> dict[str, str]:
    """Store all hostile content; returns the values for addresses."""
    wire = bananaq.wire()
    assert wire("AUTH", PASSWORD) == b"OK"
    found = store(node, wire)
    open_console.wait_for(f"/queue?name={found['queue']}", "On the nodes")
    return found


@pytest.mark.parametrize("name", ALL)
def test_each_page_fits_without_errors_is_accessible_and_runs_nothing_hostile(
    chrome: Browser, open_console: ConsoleProcess, hostile: dict[str, str], name: str
) -> None:
    found: list[str] = []
    chrome.look(WIDTHS[0])
    chrome.open(open_console.base + ALL[name].format(**hostile))
    for width in WIDTHS:
        chrome.look(width)
        found += faults_here(chrome, width)
        if name in LOOKS:
            found += barriers_here(chrome, width)
    assert [line for line in found if " status of 404 " not in line] == []


@pytest.mark.parametrize("page", CONFIRMED)
def test_confirmation_pages_are_accessible_and_run_nothing_hostile(
    chrome: Browser, open_console: ConsoleProcess, hostile: dict[str, str], page: str
) -> None:
    path, button = CONFIRMED[page]
    chrome.look()
    chrome.open(open_console.base + path.format(**hostile))
    chrome.press(button)
    chrome.find(".confirm button")
    # Enter twice must not destroy anything.
    danger = chrome.run("return document.querySelector('.confirm button').matches('.danger')")
    focused = str(chrome.run("return document.activeElement.innerText"))
    assert (focused == "Cancel") == danger
    for width in WIDTHS:
        chrome.look(width)
        assert faults_here(chrome, width) == []
        assert barriers_here(chrome, width) == []


def test_hostile_updates_of_an_open_page_run_nothing(
    chrome: Browser, open_console: ConsoleProcess, hostile: dict[str, str], node: LiveNode
) -> None:
    chrome.look()
    chrome.open(f"{open_console.base}/queues?search=later&size=100")
    chrome.run("window.first = true")
    for name in HOSTILE:
        add_job(node.wire(), f"{name} later")
    wait_until(lambda: len(chrome.all("#live tbody tr")) == len(HOSTILE))
    assert chrome.run("return window.first && !window.ran")
    assert chrome.complaints() == []


def test_a_node_with_hostile_replies_runs_nothing(chrome: Browser, directory: Path) -> None:
    with scripted_server(lambda command: answer(command)) as server:
        answer = hostile_node(int(server.port))
        with console(directory, [int(server.port)]) as found:
            found.wait_for("/cluster", "<script>window.ran=1</script>")
            assert "<img/src=x" in found.visitor().get("/cluster").says
            for page in PAGES.values():
                path = page.format(queue="x", job="D-x")
                lines = faults(chrome, found.base + path, [1440])
                assert [line for line in lines if " status of 404 " not in line] == [], path


def test_figures_update_in_place_and_typed_text_stays(
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


def test_a_chart_shows_the_values_under_the_mouse(
    chrome: Browser, open_console: ConsoleProcess
) -> None:
    chrome.look()
    chrome.open(open_console.base + "/")
    chrome.find(".band")
    chrome.run(
        "document.querySelector('.band').dispatchEvent(new Event('pointerover', {bubbles: true}))"
    )
    wait_until(lambda: "ago: added" in chrome.text(".readout"))


def test_a_selected_job_is_cancelled(
    chrome: Browser, open_console: ConsoleProcess, node: LiveNode
) -> None:
    ticked, other = add_job(node.wire(), "tick"), add_job(node.wire(), "tick")
    chrome.look()
    chrome.open(f"{open_console.base}/jobs?queue=tick")
    chrome.press(f"input[aria-label='Select {ticked}']")
    chrome.press("button[formaction$='/do/job-cancel']")
    wait_until(lambda: "Cancel 1 job?" in chrome.text())
    chrome.press(".confirm button")
    wait_until(lambda: "1 job cancelled." in chrome.text())
    assert node.ask("SHOW", ticked) is None
    assert node.ask("SHOW", other) is not None
    assert chrome.complaints() == []


def ask_to_cancel_all(chrome: Browser, address: str, counted: str) -> None:
    """Start cancelling all matching jobs, up to the question."""
    chrome.look()
    chrome.open(address)
    chrome.press("#all summary")
    chrome.press("#all button[value='job-cancel']")
    wait_until(lambda: f"Cancel {counted}?" in chrome.text())


def test_the_pages_of_a_bulk_action_are_accessible(
    chrome: Browser, open_console: ConsoleProcess, node: LiveNode
) -> None:
    add_job(node.wire(), "asked about")
    ask_to_cancel_all(chrome, f"{open_console.base}/jobs?queue=asked+about", "1 job")
    assert not chrome.run("return document.activeElement.matches('button')")
    assert barriers(chrome, chrome.driver.current_url) == []


def test_all_matching_jobs_are_cancelled_without_a_click_for_each_round(
    chrome: Browser, open_console: ConsoleProcess, node: LiveNode
) -> None:
    wire = node.wire()
    for _ in range(120):
        add_job(wire, "rounds")
    ask_to_cancel_all(chrome, f"{open_console.base}/jobs?queue=rounds", "120 jobs")
    assert faults(chrome, chrome.driver.current_url) == []
    chrome.look()
    chrome.press("form[data-key=confirm] button")
    wait_until(lambda: "finished" in chrome.text(".facts"))
    assert "Done\n120" in chrome.text("#outcome")
    assert node.ask("QLEN", "rounds") == 0
    assert faults(chrome, chrome.driver.current_url) == []


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


def test_the_page_says_when_the_console_is_gone(
    chrome: Browser, node: LiveNode, directory: Path
) -> None:
    with console(directory, [node.port]) as found:
        chrome.look()
        chrome.open(found.base + "/")
        wait_until(lambda: f":{node.port}" in chrome.text("#live"))
        found.stop()
        wait_until(lambda: chrome.find("#stale").is_displayed())
    chrome.complaints()
