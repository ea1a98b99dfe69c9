"""The login page, pages that refuse something, and pages that are not kept up to date, in a real
browser: wide and narrow, light and dark."""

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from disque_console.model.sessions import STREAMS
from disque_console.web.security import COOKIE
from packages.console.tests.live.conftest import log_in
from packages.console.tests.support.accessibility import barriers_here
from packages.console.tests.support.browser import WIDTHS, Browser, faults_here
from packages.console.tests.support.console import HOST, ConsoleProcess, console
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until
from tests.support.live_helpers import add_job

_SUBMIT = """
const [path, fields, large] = arguments;
const form = document.createElement("form");
form.method = "post";
form.action = path;
form.hidden = true;  // nobody has to lay out what is large
for (const [name, value] of Object.entries({...fields, large: "x".repeat(large)})) {
  const field = document.createElement("textarea");
  field.name = name;
  field.value = value;
  form.append(field);
}
document.body.append(form);
form.submit();
"""
_STATUS = "return performance.getEntriesByType('navigation')[0].responseStatus"


@pytest.fixture(scope="module")
def unaudited(directory: Path, node: LiveNode) -> Iterator[ConsoleProcess]:
    """A console whose audit cannot be written."""
    with console(directory, [node.port], "--audit-log", "/dev/full") as found:
        found.wait_for("/", " up ")
        yield found


def submit(chrome: Browser, path: str, fields: dict[str, str], large: int = 0) -> None:
    """Submit a form with some fields, and one with this many bytes."""
    chrome.run(_SUBMIT, path, fields, large)


def check(chrome: Browser, status: int, says: str) -> None:
    """The open page has this status, says this, and has no faults of any kind."""
    wait_until(lambda: chrome.run(_STATUS) == status and says in chrome.text())
    for width in WIDTHS:
        chrome.look(width)
        found = faults_here(chrome, width)
        assert [line for line in found if f" status of {status} " not in line] == []
        assert barriers_here(chrome, width) == []


@pytest.mark.parametrize(
    ("status", "path", "fields", "large", "says"),
    [
        (403, "/do/purge", {"token": "0"}, 0, "The form is too old."),
        (404, "/do/nothing", {}, 0, "This action does not exist."),
        (413, "/do/add", {}, 17 << 20, "A form can be at most 16 MiB."),
        (500, "/do/purge", {"confirmed": "yes"}, 0, "the audit cannot be written"),
    ],
)
def test_pages_that_refuse_a_form_are_accessible(
    chrome: Browser,
    unaudited: ConsoleProcess,
    node: LiveNode,
    status: int,
    path: str,
    fields: dict[str, str],
    large: int,
    says: str,
) -> None:
    add_job(node.wire(), "refused")
    chrome.look()
    chrome.open(f"{unaudited.base}/jobs?queue=refused")
    token = chrome.find("input[name=token]").get_attribute("value") or ""
    submit(chrome, path, {"queue": "refused", "token": token, **fields}, large)
    check(chrome, status, says)
    assert node.ask("QLEN", "refused")


@pytest.mark.parametrize(
    ("status", "fields", "large", "says"),
    [
        (403, {"user": "ghost", "password": "wrong"}, 0, "Wrong user or password."),
        (413, {}, 100_000, "A form can be at most 64 KiB."),
    ],
)
def test_the_login_page_is_accessible_also_when_it_refuses(
    chrome: Browser,
    guarded: ConsoleProcess,
    status: int,
    fields: dict[str, str],
    large: int,
    says: str,
) -> None:
    chrome.look()
    chrome.open(f"{guarded.base}/disque/login")
    check(chrome, 200, "Password")
    submit(chrome, "/disque/login", fields, large)
    check(chrome, status, says)


def test_a_page_that_is_not_there_is_accessible_without_a_session(
    chrome: Browser, guarded: ConsoleProcess
) -> None:
    chrome.look()
    chrome.open(f"{guarded.base}/disque/static/nothing")
    check(chrome, 404, "Not Found")


def test_a_page_too_many_says_that_it_is_not_kept_up_to_date(
    chrome: Browser, guarded: ConsoleProcess
) -> None:
    cookie = log_in(guarded, "viewer").cookies[COOKIE]
    others = [HTTPConnection(HOST, guarded.port, timeout=HANG_SECONDS) for _ in range(STREAMS)]
    headers = {"Cookie": f"{COOKIE}={cookie}", "Accept": "text/event-stream"}
    for other in others:
        other.request("GET", "/disque/queues", headers=headers)
        assert b"retry" in other.getresponse().readline()
    chrome.look()
    chrome.open(f"{guarded.base}/disque/login")
    chrome.driver.add_cookie({"name": COOKIE, "value": cookie, "path": "/disque/"})
    try:
        chrome.open(f"{guarded.base}/disque/queues")
        wait_until(lambda: chrome.find("#full").is_displayed())
        assert not chrome.find("#stale").is_displayed()
        assert chrome.text("h1") == "Queues"
        check(chrome, 200, "Queues")
    finally:
        chrome.driver.delete_all_cookies()
        for other in others:
            other.close()


def test_a_page_whose_session_is_over_says_so_and_leads_to_the_login(
    chrome: Browser, guarded: ConsoleProcess
) -> None:
    visitor = log_in(guarded, "viewer")
    chrome.look()
    chrome.open(f"{guarded.base}/disque/login")
    cookie = {"name": COOKIE, "value": visitor.cookies[COOKIE], "path": "/disque/"}
    chrome.driver.add_cookie(cookie)
    try:
        chrome.open(f"{guarded.base}/disque/queues")
        visitor.post("/disque/logout", {"token": visitor.get("/disque/queues").token})
        wait_until(lambda: chrome.find("#over").is_displayed())
        assert not chrome.find("#stale").is_displayed()
        check(chrome, 200, "Queues")
        chrome.press("#over a")
        wait_until(lambda: "Password" in chrome.text("main"))
    finally:
        chrome.driver.delete_all_cookies()
