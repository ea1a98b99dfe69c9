"""Nodes whose files may not grow, by a limit of the process, go on with the jobs that they have."""

import resource
from pathlib import Path

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_cluster import live_cluster

TOO_LARGE = "MISCONF Errors writing to the AOF file: File too large"
MB = 1 << 20
UNLIMITED = resource.RLIM_INFINITY


def limit(node: LiveNode, size: int) -> None:
    """Limit the files of ``node`` to ``size`` bytes, as ``ulimit -f`` does."""
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (size, UNLIMITED))


def start(factory: NodeFactory, where: Path, policy: str, most: int = 0) -> LiveNode:
    words = ["--appendonly", "yes", "--appendfsync", policy]
    if most:
        node = factory(*words, cwd=where)
        limit(node, most)
    else:
        node = factory(*words, "--auto-aof-rewrite-percentage", "0", cwd=where)
    wait_until(lambda: node.info("persistence")["loading"] == "0")
    return node


def add(wire: Wire, count: int, *options: str | int) -> list[bytes]:
    ids = [wire("ADDJOB", "q", "x" * 100, 0, *options) for _ in range(count)]
    assert all(isinstance(id, bytes) for id in ids)
    return ids  # type: ignore[return-value]


def held(wire: Wire) -> set[bytes]:
    found = wire("JSCAN", "BUSYLOOP")
    assert isinstance(found, list)
    return set(found[1])


def take(wire: Wire, count: int) -> list[bytes]:
    jobs = wire("GETJOB", "NOHANG", "COUNT", count, "FROM", "q")
    return [job[1] for job in jobs] if isinstance(jobs, list) else []


@pytest.mark.parametrize("policy", ["always", "everysec"])
@pytest.mark.parametrize("end", ["room", "stop", "kill"])
def test_a_file_that_may_not_grow_stops_adding_and_not_working(
    disque_server: NodeFactory, tmp_path: Path, policy: str, end: str
) -> None:
    node = start(disque_server, tmp_path, policy)
    wire = node.wire()
    (once,) = add(wire, 1, "RETRY", 0)
    often = add(wire, 400, "RETRY", 600)
    limit(node, (tmp_path / "disque.aof").stat().st_size)
    refused = wire("ADDJOB", "q", "x", 0, "DELAY", 600)
    assert str(refused) == wire.error("PING")
    assert str(refused).startswith(TOO_LARGE)
    done = take(wire, 100)
    assert done == often[:100]
    assert wire("ACKJOB", *done) == 100
    (returned,) = take(wire, 1)
    assert wire("NACK", returned) == 1
    assert wire("QLEN", "q") == 301
    info = node.info("persistence")
    assert int(info["aof_buffer_length"]) > 100 * 40
    if end == "room":
        limit(node, UNLIMITED)
        wait_until(lambda: wire("PING") == b"PONG")
        assert node.info("persistence")["aof_buffer_length"] == "0"
    if end == "stop":
        assert node.stop() == 0  # a new file has room below the limit
    else:
        node.kill()
    node = start(disque_server, tmp_path, policy)
    wire = node.wire()
    left = held(wire) & {once, *often}
    assert left == {once, *often} - (set() if end == "kill" else set(done))
    found: set[bytes] = set()
    while jobs := take(wire, 100):
        assert found.isdisjoint(jobs)
        found.update(jobs)
    # After the kill, the progress file still says that clients have some of them.
    assert found & {once, *often} == {once, *often} - set(done)


def test_a_file_at_its_limit_is_rewritten_once_that_makes_room(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = start(disque_server, tmp_path, "no", 24 * MB)
    wire = node.wire()
    for _ in range(2):
        added: set[bytes] = set()
        while isinstance(reply := wire("ADDJOB", "q", "x" * 10_000, 0), bytes):
            added.add(reply)
        assert str(reply).startswith(TOO_LARGE)
        assert node.info("persistence")["aof_disk_full"] == "1"
        assert node.info("persistence")["aof_buffer_length"] == "0"  # there is a reserve
        while jobs := take(wire, 100):
            assert wire("ACKJOB", *jobs) == len(jobs)
            added.difference_update(jobs)
        assert not added
        wait_until(lambda: wire("PING") == b"PONG")


def test_in_a_cluster_the_others_remember_what_it_could_not_write(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        node = cluster[2]
        wire, other = node.wire(), cluster[0].wire()
        ids = add(wire, 200, "RETRY", 600, "REPLICATE", 3)
        limit(node, (node.directory / "disque.aof").stat().st_size)
        done: set[bytes] = set()
        for _ in range(4):
            jobs = take(wire, 25)
            done.update(jobs)
            assert wire("ACKJOB", *jobs) == len(jobs)
        wait_until(lambda: cluster[0].priorities()[node.id] == 100)
        # The others have taken jobs from it, or wait for their retry time.
        while isinstance(jobs := other("GETJOB", "TIMEOUT", 1000, "COUNT", 20, "FROM", "q"), list):
            taken = {job[1] for job in jobs}
            assert taken.isdisjoint(done)
            done.update(taken)
            assert other("ACKJOB", *taken) == len(taken)
        assert done == set(ids)
        node.kill()
        node.start()
        assert node.ask("GETJOB", "TIMEOUT", 3000, "FROM", "q") is None
        cluster.wait_empty()
