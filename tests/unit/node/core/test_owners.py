"""The node that is best for a queue."""

from collections import Counter

from disque_trio.node.core.queues.owners import owner

NODES = [b"%040d" % number for number in range(10)]
QUEUES = [b"queue-%d" % number for number in range(1_000)]


def test_queues_spread_evenly_over_the_nodes() -> None:
    owned = Counter(owner(queue, NODES) for queue in QUEUES)
    assert len(owned) == 10
    assert 70 < min(owned.values()) <= max(owned.values()) < 130


def test_the_order_of_the_nodes_does_not_matter() -> None:
    assert owner(b"mail", NODES) == owner(b"mail", reversed(NODES))


def test_a_node_that_leaves_gives_up_only_its_own_queues() -> None:
    left = NODES[1:]
    moved = [queue for queue in QUEUES if owner(queue, NODES) != owner(queue, left)]
    assert moved == [queue for queue in QUEUES if owner(queue, NODES) == NODES[0]]
