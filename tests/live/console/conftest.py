"""Consoles that the tests of a module share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.console.model.passwords import hash_password
from tests.support.console import ConsoleProcess, Visitor, console
from tests.support.harness import LiveNode
from tests.support.live_helpers import start_node

PASSWORD = "pass word ü"
ROLES = ("viewer", "operator", "admin")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the node and the console of the module."""
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="module")
def node(directory: Path) -> Iterator[LiveNode]:
    """A node that the tests of a module share. Their queues have different names."""
    node = start_node(directory)
    yield node
    node.close()


@pytest.fixture(scope="module")
def users(directory: Path) -> Path:
    """A file with a user of each role, named as it, with ``PASSWORD``."""
    hash = hash_password(PASSWORD)
    path = directory / "users"
    path.write_text("".join(f"{role}:{role}:{hash}\n" for role in ROLES))
    return path


@pytest.fixture(scope="module")
def open_console(directory: Path, node: LiveNode) -> Iterator[ConsoleProcess]:
    """A console that all may use, and that has seen the node."""
    audit = directory / "open-audit.log"
    with console(directory, [node.port], "--audit-log", str(audit)) as found:
        found.wait_for("/", " here ")
        yield found


@pytest.fixture(scope="module")
def guarded(directory: Path, node: LiveNode, users: Path) -> Iterator[ConsoleProcess]:
    """A console for those in ``users``, under a prefix."""
    options = ["--users", str(users), "--prefix", "/disque", "--trusted-proxy", "127.0.0.1"]
    options += ["--audit-log", str(directory / "audit.log")]
    options += ["--secret-file", str(directory / "secret")]
    with console(directory, [node.port], *options) as found:
        yield found


def log_in(console: ConsoleProcess, user: str, address: str = "10.0.0.1") -> Visitor:
    """A visitor with a session."""
    visitor = console.visitor(**{"X-Forwarded-For": address})
    form = {"user": user, "password": PASSWORD, "next": "/disque/queues"}
    answer = visitor.post("/disque/login", form)
    assert (answer.status, answer.where) == (303, "/disque/queues"), answer.says
    return visitor
