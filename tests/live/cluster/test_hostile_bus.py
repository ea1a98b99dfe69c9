"""Packets that no node of ours would send do no lasting harm to real nodes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.protocol.bus import (
    BINDINGS,
    EXTENDED,
    PAUSES,
    POLICIES,
    SCHEDULES,
    PacketWriter,
)
from disque_trio.protocol.fields import pack_fields, pack_number
from tests.support.fake_peer import bus_wire
from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster

KINDS = (POLICIES, SCHEDULES, BINDINGS, PAUSES)
KIND = re.compile(rb"^(policy|schedule|binding|pause)", re.MULTILINE)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, 3) as found:
        yield found


def deletion(clock: int, node: bytes, now: int) -> bytes:
    """An entry that looks like a harmless deletion."""
    return pack_fields(
        [
            (1, b"x y"),
            (2, pack_number(clock)),
            (3, node),
            (4, b""),
            (13, pack_number(now)),
        ]
    )


def attack(node: Member, sender: bytes, entries: list[bytes]) -> None:
    """Send ``entries`` of each kind to ``node``, as if its member ``sender`` did."""
    packets = PacketWriter(sender, 1)
    packets.extensions = EXTENDED
    before = int(node.info("stats")["shared_changes_refused"])
    wire = bus_wire(node)
    wire.send(*[packets.fields(kind, [(1, one) for one in entries]) for kind in KINDS])
    refused = len(KINDS) * len(entries)
    wait_until(lambda: int(node.info("stats")["shared_changes_refused"]) == before + refused)
    wire.close()


def set_everything(node: Member, name: str) -> None:
    """Change something of each kind that all nodes share."""
    wait_until(lambda: node.ask("QSET", name, "TTL", 300) == b"OK")
    assert node.ask("CRON", "SET", name, "@every 1d", name, "body") == b"OK"
    assert node.ask("BIND", f"topic.{name}", name) == b"OK"
    assert node.ask("PAUSE", name, "in", "bcast") == b"in"


def knows_everything(node: Member, name: str) -> bool:
    return (
        node.ask("QGET", name) == [b"name", name.encode(), b"ttl", 300]
        and node.ask("CRON", "GET", name) is not None
        and [f"topic.{name}".encode(), name.encode()] in node.ask("BINDINGS")  # type: ignore[operator]
        and node.ask("PAUSE", name, "state") == b"in"
    )


def test_after_poisoned_packets_all_nodes_start_again_and_everything_can_be_set(
    cluster: LiveCluster,
) -> None:
    set_everything(cluster[0], "before")
    ids = cluster.ids
    now = int(cluster[0].ask("TIME")[0]) * 1000  # type: ignore[index]
    poison = [
        deletion(1, b"\n" + b"z" * 39, now),  # its line in the file would be two
        deletion(2**48, b"f" * 40, now),  # it would be the end of the logical clock
    ]
    for node, sender in zip(cluster, [*ids[1:], ids[0]], strict=True):
        attack(node, sender, poison)
    set_everything(cluster[1], "during")
    for node in cluster:
        for name in ("before", "during"):
            wait_until(lambda node=node, name=name: knows_everything(node, name))  # type: ignore[misc]
    for node in cluster:
        node.kill()
    for node in cluster:
        node.start()
        assert node.info("queues")["shared_lines_skipped"] == "0"
    cluster.wait_joined()
    set_everything(cluster[2], "after")
    for node in cluster:
        for name in ("before", "during", "after"):
            wait_until(lambda node=node, name=name: knows_everything(node, name))  # type: ignore[misc]


def test_a_node_gets_what_a_damaged_line_said_from_the_others(cluster: LiveCluster) -> None:
    set_everything(cluster[0], "q")
    for node in cluster:
        wait_until(lambda node=node: knows_everything(node, "q"))  # type: ignore[misc]
    node = cluster[2]
    node.stop()
    damaged: dict[Path, bytes] = {}
    for path in node.directory.glob("nodes.conf.*"):
        damaged[path] = KIND.sub(rb"\1!", path.read_bytes())
        path.write_bytes(damaged[path])
    assert len(damaged) == 4
    node.start()
    assert int(node.info("queues")["shared_lines_skipped"]) >= 4
    wait_until(lambda: knows_everything(node, "q"))
    for path, text in damaged.items():
        assert path.with_name(f"{path.name}.damaged-1").read_bytes() == text
        assert path.name in node.log.read_text()
