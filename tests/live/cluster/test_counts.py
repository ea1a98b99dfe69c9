"""The numbers of a queue on several real nodes: their sums are what clients did, and numbers of
jobs."""

from typing import Any

import pytest

from disque_trio.log_times import merge, quantile
from tests.support.harness import ClusterFactory, LiveNode, wait_until
from tests.support.live_helpers import pairs

EACH = 12  # jobs


@pytest.fixture
def nodes(cluster: ClusterFactory) -> list[LiveNode]:
    return cluster(3)


def total(nodes: list[LiveNode], name: str, queue: str = "q") -> int:
    """The sum of a field of QSTAT FULL."""
    replies: list[Any] = [node.ask("QSTAT", queue, "FULL") for node in nodes]
    return sum(int(pairs(reply)[name]) for reply in replies if reply)  # type: ignore[call-overload]


def test_the_sums_are_what_clients_did_wherever_they_were(nodes: list[LiveNode]) -> None:
    shop = nodes[0].wire()
    shop("CLIENT", "SETNAME", "shop")
    for _ in range(EACH):
        shop("ADDJOB", "q", "body", 0, "REPLICATE", 2, "GROUP", "g")
    for worker in (nodes[1], nodes[2]):
        wire = worker.wire()
        for _ in range(EACH // 2):
            [[_, id, _]] = wire("GETJOB", "FROM", "q")  # type: ignore[misc]
            assert wire("ACKJOB", id) == 1
    for name in ("jobs-added", "jobs-delivered", "jobs-acked"):
        assert total(nodes, name) == EACH
    moved = total(nodes, "jobs-exported")
    assert moved >= EACH
    assert total(nodes, "jobs-imported") <= moved
    for name in ("wait-recent", "processing-recent"):
        found: list[Any] = [pairs(node.ask("QSTAT", "q"))[name] for node in nodes]
        assert sum(merge(*found)) == EACH
        assert quantile(merge(*found), 0.99) is not None
    reply: Any = nodes[0].ask("QTOP", "q", "BY", "client")
    assert pairs(reply)["rows"] == [[b"shop", EACH, 0, 0, 0]]


def test_delayed_jobs_and_dead_letters_count_once(nodes: list[LiveNode]) -> None:
    for node in nodes:
        for _ in range(EACH):
            node.ask("ADDJOB", "later", "body", 0, "REPLICATE", 3, "DELAY", 1000)
    wait_until(lambda: total(nodes, "jobs-delayed", "later") == 3 * EACH)
    assert nodes[0].ask("QSET", "q", "ATTEMPTS", 1, "DEAD", "letters") == b"OK"
    for node in nodes:
        wait_until(lambda node=node: node.ask("QGET", "q"))  # type: ignore[misc]
    for _ in range(EACH):
        nodes[0].ask("ADDJOB", "q", "body", 0, "REPLICATE", 3)
    wire = nodes[1].wire()
    for _ in range(EACH):
        [[_, id, _]] = wire("GETJOB", "FROM", "q")  # type: ignore[misc]
        assert wire("NACK", id) == 1
    wait_until(lambda: total(nodes, "jobs-dead", "letters") == EACH)
    assert total(nodes, "jobs-added", "letters") == 0
