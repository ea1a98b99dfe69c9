"""Queue limits on real nodes: they hold for all workers of all nodes together."""

import time

from tests.support.harness import ClusterFactory, LiveNode, Wire, notice_deaths, wait_until
from tests.support.live_helpers import pairs

EACH = 20  # jobs and workers per node


def fill(nodes: list[LiveNode], *limits: str | int) -> list[Wire]:
    """Give the queue limits and jobs; return workers that each wait for one job."""
    for node in nodes:  # a node that cannot ask the others takes the whole limit
        wait_until(lambda node=node: node.ask("QSET", "x", "ATTEMPTS", 1) == b"OK")  # type: ignore[misc]
    assert nodes[0].ask("QSET", "q", *limits) == b"OK"
    for node in nodes:
        wait_until(lambda node=node: node.ask("QGET", "q"))  # type: ignore[misc]
        for _ in range(EACH):
            node.ask("ADDJOB", "q", "b", 0, "REPLICATE", 1)
    workers = [node.wire() for node in nodes for _ in range(EACH)]
    for worker in workers:
        worker.send("GETJOB", "FROM", "q")
    return workers


def in_hand(nodes: list[LiveNode]) -> int:
    return sum(int(pairs(node.ask("QSTAT", "q"))["in-hand"]) for node in nodes)  # type: ignore[call-overload]


# How many partitions the nodes may seem to form on a loaded machine: a node that hears nothing of
# the others for some seconds goes on alone. The unit tests check the exact bounds.
PARTS = 3


def test_sixty_workers_of_three_nodes_get_fifty_jobs_a_second(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    start = time.monotonic()
    workers = fill(nodes, "RATE", "50/s")
    for worker in workers:
        worker.read()
    assert time.monotonic() - start >= (len(workers) - 8) / (50 * PARTS)


def test_jobs_in_hand_are_limited_until_a_node_dies(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    workers = fill(nodes, "ACTIVE", 10)
    wait_until(lambda: in_hand(nodes) >= 10)
    for node in nodes:
        queue = pairs(node.ask("QSTAT", "q"))
        assert queue["held-back-by"] in (b"active", b"asking")
    nodes[0].kill()
    notice_deaths(nodes[1:])
    # The remaining two do not know what its workers had in hand, and share the limit.
    wait_until(lambda: in_hand(nodes[1:]) >= 10)
    assert in_hand(nodes[1:]) <= 10 * PARTS
    for worker in workers:
        worker.close()


def test_jobs_in_hand_of_each_group_are_limited(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    workers = fill(nodes, "GROUPS", "fair", "GROUPACTIVE", 2)
    for node in nodes:
        for number in range(EACH):
            node.ask("ADDJOB", "q", "b", 0, "REPLICATE", 1, "GROUP", number % 2)

    def taken() -> int:
        found = [pairs(node.ask("QSTAT", "q", "FULL"))["jobs-in-hand"] for node in nodes]
        return sum(map(int, found))  # type: ignore[call-overload]

    wait_until(lambda: taken() >= 6)  # those without a group are one, too
    assert taken() <= 6 * PARTS
    for worker in workers:
        worker.close()
