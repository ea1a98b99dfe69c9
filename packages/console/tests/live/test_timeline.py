"""The history of a job on its page, from the event log of a real node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.console.tests.support.browser import Browser, faults
from packages.console.tests.support.console import ConsoleProcess, console, quoted
from tests.support.harness import LiveNode, wait_until
from tests.support.live_helpers import start_node


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveNode, Path]]:
    """A node with an event log, and the directory of the log."""
    directory = tmp_path_factory.mktemp("logged")
    events = directory / "events"
    node = start_node(directory, "--event-log", "yes", "--event-log-dir", str(events))
    wait_until(events.is_dir)  # its writer, a process of its own, makes it
    yield node, events
    node.close()


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, logged: tuple[LiveNode, Path]
) -> Iterator[ConsoleProcess]:
    """A console that reads the log."""
    node, events = logged
    options = ["--events", str(events)]
    with console(tmp_path_factory.mktemp("console"), [node.port], *options) as found:
        found.wait_for("/", " up ")
        yield found


def test_the_page_of_a_job_shows_its_history_even_when_it_is_gone(
    logged: tuple[LiveNode, Path], shown: ConsoleProcess, chrome: Browser
) -> None:
    node, _ = logged
    wire = node.wire()
    wire("CLIENT", "SETNAME", "<b>shop</b>")
    id = wire("ADDJOB", "q", "x", 0)
    assert isinstance(id, bytes)
    wire("GETJOB", "FROM", "q")
    wire("NACK", id)
    wire("GETJOB", "FROM", "q")
    page, visitor = f"/job?id={quoted(id)}", shown.visitor()

    def life() -> str:
        return visitor.get(page).says.partition("drawn shorter.")[2]  # the table

    wait_until(lambda: life().count("delivered") == 2)
    words = ("added", "delivered", "nacked", "delivered")
    at = [life().index(f" {word} ") for word in words[:3]]
    assert at == sorted(at)
    assert "<b>shop</b>" in life()
    picture = visitor.get(page).says.partition("History")[2].partition("drawn shorter.")[0]
    for words in ("delivered", "in hand for", "by <b>shop</b>", f"127.0.0.1:{node.port}"):
        assert words in picture
    assert "<b>shop" not in visitor.get(page).text
    assert faults(chrome, shown.base + page) == []
    wire("ACKJOB", id)
    wait_until(lambda: " acked " in life())
    assert "The job has ended: a worker acknowledged it" in visitor.get(page).says
    assert "newest first" in life()
