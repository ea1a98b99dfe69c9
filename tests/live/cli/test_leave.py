"""``disque cluster leave``: a real node gives everything away, and is forgotten."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.harness import HANG_SECONDS, LiveNode, Wire, wait_until
from tests.support.live_cluster import LiveCluster, live_cluster
from tests.support.live_helpers import add_job

LEAVES = 2


def leave(node: LiveNode, *arguments: str, status: int = 0) -> tuple[str, str]:
    done = run_command("disque", "-p", str(node.port), "cluster", "leave", *arguments, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, 3) as cluster:
        yield cluster


def fill(wire: Wire) -> set[str]:
    """Add jobs of all kinds, each to be delivered within a few seconds."""
    added = {add_job(wire, "q", "x" * 100, "REPLICATE", 1 + n % 3) for n in range(300)}
    added |= {add_job(wire, "q", "x", "REPLICATE", 1, "DELAY", 2) for _ in range(20)}
    added |= {add_job(wire, "q", "x", "REPLICATE", 1, "RETRY", 0) for _ in range(20)}
    added |= {add_job(wire, "q", "x", "REPLICATE", 1, "UNIQUE", f"u{n}") for n in range(20)}
    added |= {add_job(wire, "q", "x", "REPLICATE", 1, "GROUP", f"g{n % 3}") for n in range(20)}
    return added


def all_taken(wire: Wire, count: int) -> list[str]:
    """Take and acknowledge ``count`` jobs, and what there is besides in a second."""
    found: list[str] = []
    while True:
        wait = HANG_SECONDS * 1000 if len(found) < count else 1_000
        reply = wire("GETJOB", "TIMEOUT", int(wait), "COUNT", 100, "FROM", "q")
        if not isinstance(reply, list):
            return found
        ids = [id.decode() for _, id, _ in reply]
        wire("ACKJOB", *ids)
        found += ids


def test_nothing_is_lost_or_done_twice_when_a_node_leaves_for_good(cluster: LiveCluster) -> None:
    node, other = cluster[LEAVES], cluster[0]
    added = fill(node.wire())
    name = f"127.0.0.1:{node.port}"
    assert leave(other, name, "--stop")[0] == f"{name} has left, and is stopped\n"
    assert node.process.wait(HANG_SECONDS) == 0
    wait_until(lambda: b"cluster_known_nodes:2" in bytes(other.ask("CLUSTER", "INFO")))
    found = all_taken(other.wire(), len(added))
    assert sorted(found) == sorted(added)


def test_a_node_stays_after_all_if_it_takes_too_long(cluster: LiveCluster) -> None:
    node = cluster[LEAVES]
    add_job(node.wire(), "q", "x", "REPLICATE", 1)
    for other in cluster[:LEAVES]:
        other.ask("CLUSTER", "LEAVING", "yes")
    wait_until(lambda: bytes(node.ask("CLUSTER", "NODES")).count(b"leaving") == LEAVES)
    for stays, leaving in (((), b"yes"), (("--or-stay",), b"no")):
        _, told = leave(node, "--wait", "0.3", *stays, status=1)
        assert "still has 1 job" in told
        assert node.ask("CLUSTER", "LEAVING") == leaving
    assert bytes(node.ask("CLUSTER", "INFO")).count(b"cluster_known_nodes:3")


def test_a_node_that_is_alone_or_unknown_does_not_leave(shared_node: LiveNode) -> None:
    assert "no other node" in leave(shared_node, status=1)[1]
    assert "none of the nodes" in leave(shared_node, "127.0.0.9:1", status=1)[1]
    assert shared_node.ask("CLUSTER", "LEAVING") == b"no"


def test_what_is_left_is_told_as_json(cluster: LiveCluster) -> None:
    node = cluster[LEAVES]
    printed, _ = leave(node, "--json")
    told = json.loads(printed)
    assert told == {
        "node": f"127.0.0.1:{node.port}",
        "id": bytes(node.ask("CLUSTER", "MYID")).decode(),
        "stopped": False,
    }


def test_two_nodes_leave_at_once(cluster: LiveCluster) -> None:
    stays, *leaving = cluster
    added = fill(leaving[0].wire()) | fill(leaving[1].wire())
    failed: list[str] = []

    def one_leaves(node: LiveNode) -> None:
        command = ("disque", "-p", str(node.port), "cluster", "leave", "--stop")
        done = run_command(*command, text=True)
        if done.returncode:
            failed.append(done.stderr)

    threads = [threading.Thread(target=one_leaves, args=(node,)) for node in leaving]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    wait_until(lambda: b"cluster_known_nodes:1" in bytes(stays.ask("CLUSTER", "INFO")))
    assert sorted(all_taken(stays.wire(), len(added))) == sorted(added)
