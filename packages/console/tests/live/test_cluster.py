"""A cluster with failing nodes, and ten thousand queues."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.console.tests.support.browser import Browser
from packages.console.tests.support.console import PAGES, ConsoleProcess, console, quoted
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until
from tests.support.live_cluster import LiveCluster, live_cluster
from tests.support.live_helpers import add_job, packed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Four nodes."""
    with live_cluster(tmp_path_factory.mktemp("cluster"), 4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, cluster: LiveCluster
) -> Iterator[ConsoleProcess]:
    """A console that was given one node, and has found the others."""
    with console(tmp_path_factory.mktemp("console"), [cluster[0].port]) as found:
        found.wait_for("/", lambda text: text.count(" up ") == 4)
        yield found


def test_half_of_the_cluster_fails_and_the_rest_stays_usable(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    for number, node in enumerate(cluster):
        wire = node.wire()
        for _ in range(number + 1):
            add_job(wire, "spread", "x", "REPLICATE", 1)
    shown.wait_for("/queue?name=spread", "Queued 10 oldest")
    cluster[2].kill()
    cluster[3].pause()
    try:
        shown.wait_for("/", "2 of 4 nodes are not responding")
        page = shown.visitor().get("/").says
        for node in (cluster[2], cluster[3]):
            assert f"127.0.0.1:{node.port} since" in page
        id = cluster[0].ask("ADDJOB", "away", "x", 0, "REPLICATE", 1)
        assert isinstance(id, bytes)
        for path in PAGES.values():
            answer = shown.visitor().get(path.format(queue="spread", job=quoted(id)))
            assert answer.status == 200, path
            assert "2 of 4 nodes are not responding" in answer.says, path
        shown.wait_for("/queue?name=spread", "Queued 3 oldest")
        visitor = shown.visitor()
        assert "spread is paused." in visitor.do("/queue?name=spread", "pause", direction="in").says
        for node in (cluster[0], cluster[1]):
            assert node.ask("PAUSE", "spread", "state") == b"in"
    finally:
        cluster[3].resume()
        cluster[2].start()
    shown.wait_for("/", lambda text: text.count(" up ") == 4)
    shown.wait_for("/queue?name=spread", lambda text: "Queued 7 oldest" in text)
    for node in (cluster[2], cluster[3]):  # they learn of it
        wait_until(lambda node=node: node.ask("PAUSE", "spread", "state") == b"in")  # type: ignore[misc]
    shown.visitor().do("/queue?name=spread", "resume")


def test_an_open_page_says_when_its_queue_is_gone(
    cluster: LiveCluster, shown: ConsoleProcess, chrome: Browser
) -> None:
    add_job(cluster[1].wire(), "vanishes")
    shown.wait_for("/queue?name=vanishes", "On the nodes")
    chrome.look()
    chrome.open(f"{shown.base}/queue?name=vanishes")
    assert "On the nodes" in chrome.text("#live")
    for node in cluster:
        node.ask("DEBUG", "FLUSHALL")
    wait_until(lambda: "No responding node knows this queue" in chrome.text("#live"))
    assert chrome.text("h1") == "vanishes"
    assert chrome.complaints() == []


def test_a_hanging_node_does_not_delay_a_page(cluster: LiveCluster, shown: ConsoleProcess) -> None:
    cluster[1].pause()
    try:
        for path in ("/", "/queues", "/queue?name=spread"):
            assert shown.visitor().get(path).status == 200
        shown.wait_for("/", "1 of 4 nodes is not responding")
    finally:
        cluster[1].resume()
    shown.wait_for("/", lambda text: text.count(" up ") == 4)


def test_a_forgotten_node_disappears(
    tmp_path: Path,
) -> None:
    with live_cluster(tmp_path, 3) as cluster, console(tmp_path, [cluster[0].port]) as found:
        id = cluster[2].id
        found.wait_for("/", lambda text: text.count(" up ") == 3)
        cluster[2].kill()
        found.wait_for("/", "1 of 3 nodes is not responding")
        for node in cluster.nodes[:2]:
            assert node.ask("CLUSTER", "FORGET", id) == b"OK"
        found.wait_for("/", lambda text: "nodes is not responding" not in text)
        assert f"127.0.0.1:{cluster[2].port}" not in found.visitor().get("/").says


def test_ten_thousand_queues_are_found_and_a_page_costs_little(
    shared_node: LiveNode, tmp_path: Path
) -> None:
    wire = shared_node.wire()
    for begin in range(0, 10_000, 500):
        names = [f"queue.{number:05}" for number in range(begin, begin + 500)]
        wire.raw(b"".join(packed("ADDJOB", name, "x", 0, "RETRY", 0) for name in names))
        for _ in names:
            wire.read()
    with console(tmp_path, [shared_node.port]) as found:
        found.wait_for("/queues", "of 10,000")
        visitor = found.visitor()
        assert "queue.09999" in visitor.get("/queues?sort=name&order=down").text
        pages = [
            "/",
            "/queues?sort=oldest",
            "/queues?search=99&sort=name",
            "/queue?name=queue.00042",
        ]
        before = found.cpu
        for _ in range(5):
            for page in pages:
                assert visitor.get(page).status == 200
        # CPU time, which does not depend on what else runs here; a page is about 20 ms.
        assert (found.cpu - before) / (5 * len(pages)) < 0.3


def test_it_stops_cleanly_while_a_page_is_open(shared_node: LiveNode, tmp_path: Path) -> None:
    import http.client

    with console(tmp_path, [shared_node.port]) as found:
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANG_SECONDS)
        connection.request("GET", "/", headers={"Accept": "text/event-stream"})
        reply = connection.getresponse()
        assert reply.readline().startswith(b"retry")
        assert found.stop() == 0
        connection.close()


def test_a_console_without_a_node_says_so(tmp_path: Path) -> None:
    from tests.support.harness import free_port

    port = free_port()
    with console(tmp_path, [port]) as found:
        found.wait_for("/", "1 of 1 nodes is not responding")
        assert "Connection refused" in found.visitor().get("/").says
        answer = found.visitor().do("/queue?name=q", "add", body="x")
        assert "Not done: no node answers." in answer.says


def test_a_closed_browser_ends_its_stream(shared_node: LiveNode, tmp_path: Path) -> None:
    import http.client

    with console(tmp_path, [shared_node.port]) as found:

        def streams() -> int:
            return len(list(Path(f"/proc/{found.process.pid}/fd").iterdir()))

        found.wait_for("/", " up ")
        idle = streams()
        connections = []
        for _ in range(20):
            connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANG_SECONDS)
            connection.request("GET", "/queues", headers={"Accept": "text/event-stream"})
            assert connection.getresponse().readline().startswith(b"retry")
            connections.append(connection)
        assert streams() >= idle + 15  # some may belong to an earlier page
        for connection in connections:
            connection.sock.close()
            connection.close()
        wait_until(lambda: streams() <= idle + 2)
