"""Nodes whose disk is full take no more jobs, and lose none."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_cluster import live_cluster
from tests.support.small_disk import small_disk

FULL = "MISCONF Errors writing to the AOF file: No space left on device"
ADD = b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$100\r\n" + b"x" * 100 + b"\r\n$1\r\n0\r\n"
BLOCK = 500


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 16) as where:
        yield where


def fill(wire: Wire) -> set[bytes]:
    """Add jobs until the disk is full; return the ids of those that were confirmed."""
    ids: set[bytes] = set()
    while True:
        wire.raw(ADD * BLOCK)
        replies = [wire.read() for _ in range(BLOCK)]
        ids.update(reply for reply in replies if isinstance(reply, bytes))
        errors = {str(reply) for reply in replies if not isinstance(reply, bytes)}
        if errors:
            assert all(error.startswith(FULL) for error in errors)
            return ids


def work(wire: Wire, most: int) -> set[bytes]:
    """Take and acknowledge up to ``most`` jobs; return their ids."""
    done: set[bytes] = set()
    while len(done) < most:
        jobs = wire("GETJOB", "NOHANG", "COUNT", min(1000, most - len(done)), "FROM", "q")
        if not jobs:
            break
        assert isinstance(jobs, list)
        ids = [job[1] for job in jobs]
        assert wire("ACKJOB", *ids) == len(ids)
        done.update(ids)
    return done


def take_the_rest(path: Path) -> None:
    """Fill the disk to the last page, as other programs do."""
    with path.open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4096))


def start(factory: NodeFactory, disk: Path, policy: str) -> LiveNode:
    return factory("--appendonly", "yes", "--appendfsync", policy, cwd=disk)


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_full_disk_stops_adding_and_not_working(
    disque_server: NodeFactory, disk: Path, policy: str
) -> None:
    node = start(disque_server, disk, policy)
    wire = node.wire()
    added = fill(wire)
    take_the_rest(disk / "ballast")
    assert node.info("persistence")["aof_disk_full"] == "1"
    assert node.info("persistence")["aof_last_write_status"] == "err"
    assert wire.error("PING").startswith(FULL)
    done = work(wire, len(added) // 2)
    taken = wire("GETJOB", "FROM", "q")
    assert isinstance(taken, list)
    id = taken[0][1]
    assert wire("WORKING", id)
    assert wire("NACK", id) == 1
    wait_until(lambda: node.info("persistence")["progress_file_pending"] == "0")
    node.kill()
    # What was acknowledged on the full disk was written.
    node = start(disque_server, disk, policy)
    wire = node.wire()
    wait_until(lambda: node.info("persistence")["loading"] == "0")
    assert wire.error("ADDJOB", "q", "x", 0).startswith(FULL)
    found = wire("JSCAN", "BUSYLOOP")
    assert isinstance(found, list)
    left = set(found[1])
    assert left == added - done
    # The progress file has a reserve, too: the node knows that nobody has them.
    assert work(wire, len(left)) == left
    # With room it recovers by itself.
    (disk / "ballast").unlink()
    wait_until(lambda: wire("PING") == b"PONG")
    assert isinstance(wire("ADDJOB", "q", "x", 0), bytes)


def test_a_disk_that_its_own_file_fills_has_room_again_once_the_jobs_are_done(
    disque_server: NodeFactory, disk: Path
) -> None:
    node = start(disque_server, disk, "everysec")
    wire = node.wire()
    for _ in range(2):
        added = fill(wire)
        assert work(wire, len(added)) == added
        wait_until(lambda: wire("PING") == b"PONG")


def test_producers_and_workers_of_a_cluster_go_on(tmp_path: Path, disk: Path) -> None:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        first, full = cluster[0], cluster[2]
        wire = full.wire()
        assert wire("CONFIG", "SET", "appendonly", "no") == b"OK"
        assert wire("CONFIG", "SET", "dir", str(disk)) == b"OK"
        assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"
        wait_until(lambda: full.info("persistence")["aof_state"] == "on")
        large = ("ADDJOB", "q", "x" * 50_000, 0, "REPLICATE", 1)
        held = 0
        while isinstance(reply := wire(*large), bytes):
            held += 1
        assert str(reply).startswith(FULL)
        wait_until(lambda: first.priorities()[full.id] == 100)
        other = first.wire()
        for _ in range(20):
            assert isinstance(other("ADDJOB", "other", "x", 0, "REPLICATE", 2), bytes)
        done = 0
        while done < held:
            jobs = other("GETJOB", "TIMEOUT", 5000, "FROM", "q")
            assert isinstance(jobs, list)
            assert other("ACKJOB", jobs[0][1]) == 1
            done += 1
