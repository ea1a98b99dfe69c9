"""Consoles that the tests of a module share."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from selenium.common.exceptions import WebDriverException

from disque_console.model.passwords import hash_password
from packages.console.tests.support.browser import Browser, browser
from packages.console.tests.support.console import ConsoleProcess, Visitor, console
from tests.support.harness import LiveNode
from tests.support.live_helpers import session_node, shared_node, start_node
from tests.support.several import several
from tests.support.tls_front import certificates

__all__ = ["browser", "certificates", "session_node", "several", "shared_node"]

PASSWORD = "pass word ü"
ROLES = ("viewer", "operator", "admin")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the module's node and console."""
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="module")
def node(directory: Path) -> Iterator[LiveNode]:
    """A node shared by the tests of a module, which use different queue names."""
    node = start_node(directory)
    yield node
    node.close()


@pytest.fixture(scope="module")
def users(directory: Path) -> Path:
    """A file with a user for each role, named like the role, with ``PASSWORD``."""
    hash = hash_password(PASSWORD)
    path = directory / "users"
    path.write_text("".join(f"{role}:{role}:{hash}\n" for role in ROLES))
    return path


@pytest.fixture(scope="module")
def open_console(directory: Path, node: LiveNode) -> Iterator[ConsoleProcess]:
    """A console without login that has reached the node."""
    audit = directory / "open-audit.log"
    with console(directory, [node.port], "--audit-log", str(audit)) as found:
        found.wait_for("/", " up ")
        yield found


@pytest.fixture(scope="module")
def guarded(directory: Path, node: LiveNode, users: Path) -> Iterator[ConsoleProcess]:
    """A console with a login for ``users``, under a prefix."""
    options = ["--users", str(users), "--prefix", "/disque", "--trusted-proxy", "127.0.0.1"]
    options += ["--audit-log", str(directory / "audit.log")]
    options += ["--secret-file", str(directory / "secret")]
    with console(directory, [node.port], *options) as found:
        yield found


@pytest.fixture(scope="package")
def one_chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser shared by the tests of the package."""
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def chrome(one_chrome: Browser) -> Iterator[Browser]:
    """The shared browser, without the last test's page and complaints.

    Prints the browser's state after the test, which pytest shows if the test fails.
    """
    one_chrome.open("about:blank")
    one_chrome.complaints()
    yield one_chrome
    with suppress(WebDriverException):
        print(one_chrome.state())


def log_in(console: ConsoleProcess, user: str, address: str = "10.0.0.1") -> Visitor:
    """A visitor with a session."""
    visitor = console.visitor(**{"X-Forwarded-For": address})
    form = {"user": user, "password": PASSWORD, "next": "/disque/queues"}
    answer = visitor.post("/disque/login", form)
    assert (answer.status, answer.where) == (303, "/disque/queues"), answer.says
    return visitor
