"""The list of what needs attention, red rows, and what programs are told."""

from pathlib import Path

from packages.console.tests.support.console import PAGES, console
from tests.support.harness import LiveNode, NodeFactory
from tests.support.live_helpers import add_job


def rows(text: str) -> int:
    return text.count('class="bad"')


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
        shown.wait_for("/health", lambda text: text.split() == ["ok"])
        assert shown.visitor().get("/health/cluster").status == 200
        wire("CONFIG", "SET", "maxmemory", "5000")
        shown.wait_for(PAGES["overview"], "(maxmemory) are taken")
        page = shown.visitor().get(PAGES["overview"])
        assert "Attention" in page.says
        assert rows(page.text) == rows(shown.visitor().get(PAGES["cluster"]).text) == 1
        health = shown.visitor().get("/health")
        assert (health.status, health.text) == (200, "critical\ncritical memory-full 1\n")
        health = shown.visitor().get("/health/cluster")
        assert (health.status, health.text) == (503, "critical\ncritical memory-full 1\n")
        assert shown.visitor().get("/health/else").status == 404
        wire("CONFIG", "SET", "maxmemory", "0")
        shown.wait_for(PAGES["overview"], lambda text: "Attention" not in text)
