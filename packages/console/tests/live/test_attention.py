"""The list of what needs attention, red rows, and what programs are told."""

import re
from pathlib import Path

from packages.console.tests.support.accessibility import barriers
from packages.console.tests.support.browser import Browser, faults
from packages.console.tests.support.console import PAGES, console
from tests.support.harness import LiveNode, NodeFactory
from tests.support.live_helpers import add_job


def rows(text: str) -> int:
    return text.count('class="bad"')


def pills(text: str) -> list[str]:
    """The classes of the pills that say how nodes are."""
    return re.findall(r'<span class="status (\w+)">', text)


def test_what_is_wrong_with_a_node_is_on_the_first_page(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node: LiveNode = disque_server()
    wire = node.wire()
    add_job(wire, "q", "x" * 10_000)
    with console(tmp_path, [node.port]) as shown:
        shown.wait_for(PAGES["overview"], f"127.0.0.1:{node.port}")
        page = shown.visitor().get(PAGES["overview"])
        assert "Attention" not in page.says
        assert rows(page.text) == 0
        assert pills(page.text) == ["here"]
        shown.wait_for("/health", lambda text: text.split() == ["ok"])
        assert shown.visitor().get("/health/cluster").status == 200
        wire("CONFIG", "SET", "maxmemory", "5000")
        shown.wait_for(PAGES["overview"], "(maxmemory) are taken")
        page = shown.visitor().get(PAGES["overview"])
        assert "Attention" in page.says
        other = shown.visitor().get(PAGES["cluster"])
        assert rows(page.text) == rows(other.text) == 1
        assert pills(page.text) == pills(other.text) == ["down"]
        health = shown.visitor().get("/health")
        assert (health.status, health.text) == (200, "critical\ncritical memory-full 1\n")
        health = shown.visitor().get("/health/cluster")
        assert (health.status, health.text) == (503, "critical\ncritical memory-full 1\n")
        assert shown.visitor().get("/health/else").status == 404
        wire("CONFIG", "SET", "maxmemory", "0")
        shown.wait_for(PAGES["overview"], lambda text: "Attention" not in text)


def test_pages_with_alarms_have_no_barriers(
    disque_server: NodeFactory, tmp_path: Path, chrome: Browser
) -> None:
    full, well = disque_server(), disque_server()
    add_job(full.wire(), "q", "x" * 10_000)
    full.ask("CONFIG", "SET", "maxmemory", "5000")
    full.ask("CLUSTER", "MEET", "127.0.0.1", well.port)
    with console(tmp_path, [full.port]) as shown:
        for page in "overview", "cluster":
            shown.wait_for(PAGES[page], "(maxmemory) are taken")
            address = shown.base + PAGES[page]
            assert barriers(chrome, address) == []
            assert faults(chrome, address) == []
