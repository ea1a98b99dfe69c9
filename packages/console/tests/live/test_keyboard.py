"""The pages with the keyboard alone: everything is reachable in order, visible, and works."""

from collections.abc import Sequence

import pytest

from packages.console.tests.live.conftest import PASSWORD
from packages.console.tests.support.browser import WIDTHS, Browser
from packages.console.tests.support.console import PAGES, ConsoleProcess, quoted
from packages.console.tests.support.keyboard import Keyboard
from tests.support.harness import LiveNode, wait_until
from tests.support.live_helpers import add_job


@pytest.fixture(scope="module")
def world(node: LiveNode, open_console: ConsoleProcess) -> dict[str, str]:
    """Create something to act on for each test; returns the values for addresses."""
    wire = node.wire()
    names = ("keys", "purged", "paused", "ticked", "walked", "shown")
    ids = {name: quoted(add_job(wire, name)) for name in names}
    add_job(wire, "failing")
    [[_, id, _]] = wire("GETJOB", "FROM", "failing")  # type: ignore[misc]
    wire("QSET", "failing", "ATTEMPTS", 1, "DEAD", "letters")
    wire("NACK", id, "DEAD", "REASON", "it broke")
    wire("CRON", "SET", "walked", "@daily", "walked", "x")
    wire("CLIENT", "SETNAME", "somebody")
    open_console.wait_for("/queues?search=shown", "shown")
    open_console.wait_for("/dead?queue=letters", "it broke")
    return {"queue": "walked", "job": ids["walked"], "shown": ids["shown"]}


@pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))
def test_tab_reaches_everything_in_order_with_a_visible_focus(
    chrome: Browser, open_console: ConsoleProcess, world: dict[str, str], page: str
) -> None:
    for width in WIDTHS:
        chrome.look(width)
        chrome.open(open_console.base + page.format(**world))
        assert Keyboard(chrome).walk() == [], width


def test_the_first_key_offers_to_skip_the_menu(
    chrome: Browser, open_console: ConsoleProcess, world: dict[str, str]
) -> None:
    chrome.look()
    chrome.open(open_console.base + "/queues")
    keyboard = Keyboard(chrome)
    keyboard.press("Tab")
    assert keyboard.is_at(".skip")
    assert chrome.find(".skip").is_displayed()
    keyboard.press("Enter")
    wait_until(lambda: keyboard.is_at("main"))
    keyboard.press("Tab")
    assert keyboard.is_at("input[type=search]")


def test_the_focus_stays_on_a_row_that_moves(
    chrome: Browser, open_console: ConsoleProcess, node: LiveNode
) -> None:
    wire = node.wire()
    for name in ("moves.a", "moves.a", "moves.b"):
        add_job(wire, name)
    open_console.wait_for("/queues?search=moves.", "moves.b")
    chrome.look()
    chrome.open(f"{open_console.base}/queues?search=moves.&sort=length&order=down")

    def rows() -> list[str]:
        found: list[str] = chrome.run(
            "return [...document.querySelectorAll('#live tbody tr')].map(row => row.dataset.key)"
        )
        return found

    wait_until(lambda: rows() == ["moves.a", "moves.b"])
    keyboard = Keyboard(chrome)
    keyboard.to("a[href*='name=moves.b']")
    for _ in range(3):
        add_job(wire, "moves.b")
    wait_until(lambda: rows() == ["moves.b", "moves.a"])
    assert keyboard.is_at("a[href*='name=moves.b']")


ACTIONS: dict[str, tuple[str, Sequence[str], str]] = {
    "overview": ("/", ("main a[href*='name=']", "Enter"), "On the nodes"),
    "queues": ("/queues", ("input[type=search]", '"shown', "Enter"), "1 of 1 that match"),
    "queues, sorted": ("/queues?search=shown", ("th a[href*='sort=name']", "Enter"), "Queue ▴"),
    "queue": (
        "/queue?name=purged",
        ("form[action$='/do/purge'] button", "Enter", "yes"),
        "Cancelled 1 job in purged.",
    ),
    "queue, paused": (
        "/queue?name=paused",
        ("select[name=direction]", "ArrowDown", "form[action$='/do/pause'] button", "Space"),
        "paused is paused.",
    ),
    "job that is added": (
        "/queue?name=keys",
        ("#add summary", "Space", "textarea[name=body]", '"by hand', "#add button", "Enter"),
        "Added D-",
    ),
    "jobs": (
        "/jobs?queue=ticked",
        ("input[name=job]", "Space", "button[formaction$='job-cancel']", "Enter", "yes"),
        "1 job cancelled.",
    ),
    "job": (
        "/job?id={shown}",
        ("#edit summary", "Enter", "#edit input[name=ttl]", '"600', "#edit button", "Enter"),
        "changed",
    ),
    "dead letters": (
        "/dead?queue=letters",
        (".group button:not(.danger)", "Enter", "yes"),
        "1 job",
    ),
    "schedules": (
        "/schedules",
        ("#new summary", "Enter", "#new input[name=name]", '"by-key', "input[name=times]",
         '"@hourly', "input[name=queue]", '"hours', "#new button", "Enter"),
        "The schedule by-key has been saved.",
    ),
    "schedule": (
        "/schedule?name=walked",
        ("form[action$='/do/cron-run'] button", "Enter"),
        "walked added D-",
    ),
    "workers": ("/workers", ("input[name=queue]", '"shown', "Enter"), "Jobs in hand of shown"),
    "cluster": (
        "/cluster",
        ("#meet summary", "Enter", "input[name=host]", '"127.0.0.1', "input[name=port]",
         '"1', "#meet button", "Enter"),
        "127.0.0.1:1",
    ),
    "clients": (
        "/clients?search=somebody",
        ("form[action$='/do/kill'] button", "Enter", "yes"),
        "disconnected",
    ),
    "slow log": ("/slow", ("main a[href*='slower-than']", "Enter"), "slowlog-log-slower-than"),
    "settings": ("/settings", ("input[type=search]", '"maxclients', "Enter"), "maxclients"),
    "setting": (
        "/setting?name=maxclients",
        ("input[name=value]", '"9', "form[action$='/do/setting'] button", "Enter"),
        "maxclients",
    ),
}  # fmt: skip
"""The first page, the steps, and the text at the end."""


@pytest.mark.parametrize("page", ACTIONS)
def test_the_purpose_of_each_page_is_served_by_keyboard_alone(
    chrome: Browser, open_console: ConsoleProcess, world: dict[str, str], page: str
) -> None:
    path, steps, says = ACTIONS[page]
    chrome.look()
    chrome.open(open_console.base + path.format(**world))
    begin = chrome.driver.current_url
    Keyboard(chrome).do(steps)

    def done() -> bool:
        there = chrome.driver.current_url != begin or bool(chrome.all(".note"))
        return there and says in chrome.text()

    wait_until(done)


def test_logging_in_choosing_colours_and_logging_out(
    chrome: Browser, guarded: ConsoleProcess
) -> None:
    keyboard = Keyboard(chrome)
    chrome.look(390)
    chrome.open(f"{guarded.base}/disque/queues")
    wait_until(lambda: keyboard.is_at("input[name=user]"))
    keyboard.do(['"operator', "input[name=password]", f'"{PASSWORD}', "Enter"])
    wait_until(lambda: chrome.text("h1") == "Queues")
    keyboard.do(["#menu", "Space", ".themes a[href*='to=dark']", "Enter"])
    wait_until(lambda: bool(chrome.all("html[data-theme=dark]")))
    keyboard.do(["#menu", "Space", ".who button", "Enter"])
    wait_until(lambda: "Log in" in chrome.driver.title)
