"""Keys of ADDJOB UNIQUE on real nodes: nobody fills the memory with them for long, and an operator
can free them."""

from pathlib import Path
from typing import Any

from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import add_job, info_value, packed

YEAR = 31_536_000
PIPELINE = 500


def flood(wire: Wire, start: int) -> None:
    """Add jobs that end by themselves, with keys that stay for a year."""
    options = ("TTL", 1, "RETRY", 0, "REPLICATE", 1, "UNIQUE")
    requests = [
        packed("ADDJOB", "my.q", "x", 0, *options, f"k{number}" + "y" * 200, "FOR", YEAR)
        for number in range(start, start + PIPELINE)
    ]
    wire.raw(b"".join(requests))
    for _ in requests:
        wire.read()  # an id, or that memory is short


def add(node: LiveNode, *options: str | int) -> str:
    wire = node.wire()
    try:
        return add_job(wire, "my.q", "body", *options)
    finally:
        wire.close()


def again(server: NodeFactory, *options: str) -> LiveNode:
    """Start the node again, and wait until it has loaded everything."""
    node = server(*options)
    wait_until(lambda: node.ask("PING") == b"PONG")
    return node


def count(node: LiveNode) -> int:
    """The number of keys of the queue."""
    found: Any = node.ask("QKEYS")
    return dict(found).get(b"my.q", 0)


def free_all(node: LiveNode) -> int:
    """Free all keys of the queue, as the documentation says; return how many there were."""
    freed = 0
    while True:
        cursor: Any = 0
        stay: list[bytes] = []
        while True:
            cursor, _, keys = node.ask("QKEYS", "my.q", cursor, "COUNT", 1000)  # type: ignore[misc]
            for at in range(0, len(keys), 500):
                some = [key for key, _, _, stays in keys[at : at + 500] if stays]
                stay += some
                if some:
                    reply = node.ask("QDELKEY", "my.q", *some)
                    assert isinstance(reply, int), reply
                    freed += reply
            if cursor == b"0":
                break
        if not stay:
            return freed


def test_a_producer_does_not_fill_the_memory_with_keys(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    options = ("--dir", str(tmp_path), "--maxmemory", "4mb", "--appendonly", "yes")
    node = disque_server(*options)
    node.ask("ACL", "SETUSER", "eve", "on", ">p", "%W~my.*", "-@all", "+addjob")
    wire = node.wire()
    assert wire("AUTH", "eve", "p") == b"OK"
    start = 0
    while not info_value(node, "stats", "total_keys_evicted"):
        flood(wire, start)
        start += PIPELINE
    wire.close()
    for _ in range(20):
        wait_until(lambda: isinstance(node.ask("ADDJOB", "other", "x" * 10_000, 0), bytes))
    assert info_value(node, "jobs", "registered_jobs") >= 20
    wait_until(lambda: info_value(node, "jobs", "registered_jobs") == 20)  # eve's have ended
    before = count(node)
    assert before > 1000
    node.stop()
    node = again(disque_server, *options)
    assert count(node) == before
    assert free_all(node) == before
    assert count(node) == 0
    node.kill()
    node = again(disque_server, *options)
    assert count(node) == 0
    assert info_value(node, "jobs", "registered_jobs") == 20


def test_a_key_is_freed_on_all_nodes(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    words = ("UNIQUE", "k", "FOR", YEAR)
    first = add(nodes[0], *words)
    assert nodes[1].ask("QDELKEY", "my.q", "k") == 0
    nodes[0].ask("ACKJOB", first)
    wait_until(lambda: all(node.ask("SHOW", first) is None for node in nodes))
    assert [add(node, *words) for node in nodes] == [first] * 3
    assert nodes[1].ask("QDELKEY", "my.q", "k") == 1
    wait_until(lambda: all(count(node) == 0 for node in nodes))
    second = add(nodes[2], *words)
    assert second != first
    nodes[2].ask("ACKJOB", second)
    nodes[0].kill()
    wait_until(lambda: str(nodes[1].ask("QDELKEY", "my.q", "k")).startswith("NOUNIQ"))
