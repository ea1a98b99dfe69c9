"""Dead letters and redriven jobs are with workers at once, though these ask at all nodes without
waiting. A job that no node had queued would come after its retry time, which is longer than the
tests may take."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.harness import ClusterFactory, LiveNode, wait_until

pytestmark = pytest.mark.live

JOBS = 60


@contextmanager
def pollers(nodes: list[LiveNode], queue: str) -> Iterator[set[bytes]]:
    """A client at each node that takes jobs with NOHANG, again and again; gives their ids."""
    taken: set[bytes] = set()
    stop = threading.Event()

    def poll(node: LiveNode) -> None:
        wire = node.wire()
        while not stop.wait(0.005):
            for _, id, _ in wire("GETJOB", "NOHANG", "FROM", queue) or ():  # type: ignore[misc]
                taken.add(id)
        wire.close()

    threads = [threading.Thread(target=poll, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        yield taken
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def nodes(cluster: ClusterFactory) -> list[LiveNode]:
    nodes = cluster(3)
    assert nodes[0].ask("QSET", "q", "ATTEMPTS", 1, "DEAD", "dead") == b"OK"
    wait_until(lambda: all(node.ask("QGET", "q") for node in nodes))
    return nodes


def die(nodes: list[LiveNode]) -> None:
    """Have jobs of the queue ``q`` die at the first node."""
    wire = nodes[0].wire()
    for n in range(JOBS):
        wire("ADDJOB", "q", n, 5000, "REPLICATE", 3)
        [[_, id, _]] = wire("GETJOB", "FROM", "q")  # type: ignore[misc]
        assert wire("NACK", id) == 1


def test_letters_are_found_by_who_looks_at_them(nodes: list[LiveNode]) -> None:
    with pollers(nodes, "dead") as taken:
        die(nodes)
        wait_until(lambda: len(taken) == JOBS)


@pytest.mark.parametrize("count", [1, JOBS])
def test_redriven_jobs_are_found_by_who_polls(nodes: list[LiveNode], count: int) -> None:
    die(nodes)
    with pollers(nodes, "q") as taken:
        wire = nodes[0].wire()
        for _ in range(JOBS // count):
            assert wire("REDRIVE", "dead", "COUNT", count) == count
        wait_until(lambda: len(taken) == JOBS)
