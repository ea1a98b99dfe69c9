"""The numbers of a queue whose jobs are on several nodes."""

import re
from collections.abc import Iterator

import pytest

from packages.console.tests.support.accessibility import barriers_here
from packages.console.tests.support.browser import WIDTHS, Browser, faults_here
from packages.console.tests.support.console import ConsoleProcess, console
from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, live_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Three nodes."""
    with live_cluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, cluster: LiveCluster
) -> Iterator[ConsoleProcess]:
    """A console that knows all the nodes."""
    with console(tmp_path_factory.mktemp("console"), [cluster[0].port]) as found:
        found.wait_for("/", lambda text: text.count(" up ") == 3)
        yield found


def test_a_delayed_job_and_a_dead_letter_are_counted_once(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    wire = cluster[0].wire()
    wire("QSET", "once", "ATTEMPTS", 1, "DEAD", "once.dead")
    for _ in range(5):
        wire("ADDJOB", "once", "later", 0, "REPLICATE", 3, "DELAY", 500)
    for _ in range(3):
        wire("ADDJOB", "once", "x", 0, "REPLICATE", 3, "RETRY", 60)
        [job] = wire("GETJOB", "FROM", "once")
        wire("NACK", job[1], "DEAD")
    shown.wait_for("/queue?name=once", "Delayed 5 jobs")
    shown.wait_for("/queue?name=once.dead", "Dead letters 3 jobs")


def test_jobs_that_move_to_another_node_are_added_and_delivered_once(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    first, second = cluster[0].wire(), cluster[1].wire()
    for wire in (first, second):
        # The nodes know the queue, and the console has seen how much they have counted.
        wire("ADDJOB", "moves", "x", 0, "REPLICATE", 1, "RETRY", 0)
        wire("GETJOB", "FROM", "moves")
    visitor = shown.visitor()
    nodes = {f"127.0.0.1:{node.port}" for node in (cluster[0], cluster[1])}

    def seen() -> bool:
        says = visitor.get("/queue?name=moves").says
        return all(re.search(rf"On the nodes.*{node} 0 0 0 0", says) for node in nodes)

    wait_until(seen)
    for _ in range(20):
        first("ADDJOB", "moves", "x", 0, "REPLICATE", 1, "RETRY", 60)
    taken = 0
    while taken < 20:
        for job in second("GETJOB", "COUNT", 5, "FROM", "moves"):
            taken += 1
            assert second("ACKJOB", job[1]) == 1
    shown.wait_for("/queue?name=moves", "Waiting of the last hour: 20 jobs")
    shown.wait_for("/queue?name=moves", "Processing of the last hour: 20 jobs")
    moved = [node.ask("QSTAT", "moves") for node in (cluster[0], cluster[1])]
    assert all(isinstance(reply, list) and b"jobs-imported" in reply for reply in moved)


def test_a_noisy_tenant_is_seen(
    chrome: Browser, cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    for number, node in enumerate(cluster):
        wire = node.wire()
        wire("CLIENT", "SETNAME", f"shop-{number}")
        for _ in range(9):
            headers = ("HEADERS", 1, "task", "shop.noise")
            wire("ADDJOB", "tenants", "x", 0, "REPLICATE", 1, "GROUP", "noisy", *headers)
        wire("ADDJOB", "tenants", "x", 0, "REPLICATE", 1, "GROUP", "quiet", "DELAY", 600)
    path = "/queue?name=tenants"
    shown.wait_for(f"{path}&by=group", "noisy 90 % 27 27 0 0 quiet 10 % 3 0 0 3")
    shown.wait_for(f"{path}&by=task", "shop.noise 90 % 27 27 0 0 without a task 10 % 3 0 0 3")
    shown.wait_for(f"{path}&by=user", "default 100 % 30 27 0 3 100 % 30")
    shown.wait_for(f"{path}&by=client", "shop-0 33 % 10 9 0 1 33 % 10")
    chrome.open(f"{shown.base}{path}")
    chrome.press("#whose a[href*='by=group']")
    wait_until(lambda: "noisy" in chrome.text("#whose"))
    for width in WIDTHS:
        chrome.look(width)
        assert faults_here(chrome, width) == []
        assert barriers_here(chrome, width) == []
