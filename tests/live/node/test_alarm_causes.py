"""Each condition of a node begins by its real cause and ends with it, in INFO and in the log. Those
that need other nodes are in ``tests/live/cluster/test_alarms.py``, more in ``test_health.py``."""

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.node.test_checksums import covers_all, flip
from tests.live.node.test_paging import ON as PAGING
from tests.live.node.test_paging import fill
from tests.live.node.test_paging_faults import fill_until_refused
from tests.support import ROOT
from tests.support.alarms import begun, kinds, over
from tests.support.harness import (
    LiveNode,
    NodeFactory,
    Wire,
    free_port,
    start_process,
    wait_for_ping,
    wait_until,
)
from tests.support.live_helpers import add_job
from tests.support.several import Start
from tests.support.small_disk import fill_disk, small_disk
from tests.support.tls import all_certificates, tls_options

AOF = ("--appendonly", "yes", "--appendfsync", "always")
NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 64) as where:
        yield where


def limit_files(pid: int, size: int) -> None:
    """Let a process make files of at most ``size`` bytes."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_file_that_cannot_be_written(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    id = add_job(wire, "q", "x" * 100_000)  # so that there is room for the log
    limit_files(node.process.pid, (node.directory / "disque.aof").stat().st_size)
    assert wire("ACKJOB", id) == 1
    line = begun(node, "file-write")
    assert (line.severity, "File too large" in line.cause) == ("critical", True)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, NO_LIMIT)
    over(node, "file-write")
    add_job(wire, "q", "z")


def test_a_disk_with_little_space(disque_server: NodeFactory, disk: Path) -> None:
    ballast = disk / "ballast"
    node = disque_server(*AOF, cwd=disk)
    assert kinds(node) == []
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(bytes(free - (4 << 20)))
    line = begun(node, "disk-short")
    assert line.severity == "warning"
    assert "of 64 MiB are free" in line.cause
    assert isinstance(node.ask("ADDJOB", "q", "x", 0), bytes)
    ballast.unlink()
    over(node, "disk-short")


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[LiveNode, Path]]:
    """A node whose fsyncs last as long as there is a file with this path."""
    hold, log = tmp_path / "hold", tmp_path / "log"
    hook = ROOT / "tests" / "support" / "held_disk"
    paths = [str(hook), *filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HOLD_SYNC": str(hold)}
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "disque_trio.server",
                "--port",
                str(port),
                "--appendonly",
                "yes",
            ],
            cwd=tmp_path,
            env=environ,
            stdout=output,
            stderr=output,
        )
    node = LiveNode(port, process, log)
    try:
        assert wait_for_ping(node)
        yield node, hold
    finally:
        hold.unlink(missing_ok=True)
        node.close()


def priority(node: LiveNode) -> int:
    """Its own, in HELLO."""
    reply = node.ask("HELLO")
    assert isinstance(reply, list)
    return int(reply[2][3])


def test_a_disk_that_is_slow(held: tuple[LiveNode, Path]) -> None:
    node, hold = held
    hold.touch()
    add_job(node.wire(), "q", "x")
    assert "fsync" in begun(node, "disk-slow").cause
    assert priority(node) == 10
    hold.unlink()
    over(node, "disk-slow")
    assert priority(node) == 1


def test_a_rewrite_that_fails(disque_server: NodeFactory, disk: Path) -> None:
    node = disque_server(*AOF, cwd=disk)
    wire = node.wire()
    for _ in range(10):
        add_job(wire, "q", "x" * 1_000_000)
    ballast = fill_disk(disk)
    os.truncate(ballast, ballast.stat().st_size - (4 << 20))  # no room for a second file
    wire("BGREWRITEAOF")
    assert begun(node, "rewrite").severity == "warning"
    ballast.unlink()
    wire("BGREWRITEAOF")
    over(node, "rewrite")


def test_checksums_that_cannot_be_written(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    add_job(wire, "q", "x")
    sums = node.directory / "disque.aof.sums"
    wait_until(sums.exists)
    assert wire("CONFIG", "SET", "appendonly", "no") == b"OK"
    sums.unlink()
    sums.mkdir()
    assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"
    begun(node, "checksums")
    sums.rmdir()
    over(node, "checksums")


def test_a_damaged_file(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    for number in range(100):
        add_job(node.wire(), "q", f"body {number}")
    assert node.stop() == 0
    path = node.directory / "disque.aof"
    flip(path, path.read_bytes().index(b"body 61"), 3)
    node = disque_server(*AOF, cwd=node.directory)
    assert "damaged in 1 place" in begun(node, "damaged").cause
    wait_until(lambda: covers_all(path))  # it was made again
    assert node.stop() == 0
    assert kinds(disque_server(*AOF, cwd=node.directory)) == []


def test_jobs_that_cannot_go_to_disk(disque_server: NodeFactory, tmp_path: Path) -> None:
    with small_disk(tmp_path / "pages", 1) as pages:
        node = disque_server(*PAGING, cwd=tmp_path)
        wire = node.wire()
        fill_until_refused(wire)
        line = begun(node, "pages-write")
        assert (line.severity, "No space left" in line.cause) == ("critical", True)
        reply = wire("GETJOB", "COUNT", 1000, "FROM", "q")
        assert isinstance(reply, list)
        wire("ACKJOB", *[job[1] for job in reply])
        subprocess.run(["mount", "-o", "remount,size=64m", str(pages)], check=True)
        over(node, "pages-write")
        node.close()


def test_memory_that_is_short_or_full_on_a_node_alone(disque_server: NodeFactory) -> None:
    node = disque_server()
    wire = node.wire()
    add_job(wire, "q", "x" * 80_000)
    used = int(node.info("memory")["used_memory"])
    assert wire("CONFIG", "SET", "maxmemory", used * 100 // 80) == b"OK"
    assert begun(node, "memory-refuses").severity == "critical"
    assert wire("CONFIG", "SET", "maxmemory", used * 100 // 97) == b"OK"
    assert begun(node, "memory-full").severity == "critical"
    over(node, "memory-refuses")
    assert wire("CONFIG", "SET", "maxmemory", "0") == b"OK"
    over(node, "memory-full")


class Slowed:
    """Lets a process run for a small part of the time, as a context.

    Attributes:
        part: s that it runs, of some 0.2 s.
    """

    def __init__(self, pid: int) -> None:
        self.part = 0.02
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._stop_and_go)

    def _stop_and_go(self) -> None:
        while not self._ended.is_set():
            os.kill(self._pid, signal.SIGSTOP)
            self._ended.wait(0.2)
            os.kill(self._pid, signal.SIGCONT)
            self._ended.wait(self.part)

    def __enter__(self) -> "Slowed":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def test_a_file_that_takes_long_to_load(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF[:2])
    fill(node.wire(), 100_000)
    node.kill()
    node = start_process(node.directory, node.port, *AOF[:2], "--port", str(node.port))
    try:
        with Slowed(node.process.pid) as slowed:
            assert wait_for_ping(node)
            slowed.part = 0.004  # it loads now, and looks at itself once a second
            assert begun(node, "loading").severity == "warning"
        over(node, "loading")
    finally:
        node.close()


def without_progress(factory: NodeFactory) -> tuple[LiveNode, Wire, bytes]:
    """A node that does not know where its only job was, with a connection, and the id of it."""
    node = factory(*AOF)
    id = add_job(node.wire(), "q", "body", "RETRY", 600)
    node.kill()
    (node.directory / "disque.aof.progress").unlink()
    node = factory(*AOF, cwd=node.directory)
    return node, node.wire(), id.encode()


def test_jobs_that_wait_for_their_retry_time_after_a_start(disque_server: NodeFactory) -> None:
    node, wire, id = without_progress(disque_server)
    assert "1 job" in begun(node, "not-queued").cause
    assert wire("ENQUEUE", id) == 1
    over(node, "not-queued")


def test_a_certificate_that_has_expired(disque_server: NodeFactory, tmp_path: Path) -> None:
    certificates = all_certificates(tmp_path)
    node = disque_server(*tls_options(certificates, free_port(), own="expired"))
    assert begun(node, "certificate-expired").severity == "critical"
    wire = node.wire()
    for ending in ("pem", "key"):
        good = (certificates / f"ours.{ending}").read_bytes()
        (certificates / f"expired.{ending}").write_bytes(good)
    assert wire("CONFIG", "SET", "tls-cert-file", str(certificates / "expired.pem")) == b"OK"
    over(node, "certificate-expired")
    assert kinds(node) == ["certificate-ends"]


def test_an_event_log_that_cannot_be_written(
    disque_server: NodeFactory, disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "node").mkdir()
    events = ("--event-log", "yes", "--event-log-dir", str(disk / "events"))
    node = disque_server(*events, cwd=tmp_path / "node")
    wire = node.wire()
    ballast = fill_disk(disk)

    def has_failed() -> bool:
        for _ in range(20):
            add_job(wire, "q", "x")
        return "event-log" in kinds(node)

    wait_until(has_failed)
    assert begun(node, "event-log").severity == "warning"
    ballast.unlink()
    over(node, "event-log")
    node.close()


def test_a_door_that_is_open_to_strangers(disque_server: NodeFactory) -> None:
    node = disque_server("--bind", "0.0.0.0", "--protected-mode", "no")
    wait_until(lambda: kinds(node).count("open-door") == 2)  # for clients, and for the bus
    assert node.ask("CONFIG", "SET", "requirepass", "secret") == b"OK"
    wire = node.wire()
    assert wire("AUTH", "secret") == b"OK"
    wait_until(lambda: b"alarms:1" in bytes(wire("INFO", "alarms")))  # type: ignore[call-overload]


def test_a_process_that_hangs(several: Start) -> None:
    server = several()
    pid = server.pid(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        line = begun(server.nodes[0], "process-down")
        assert (line.severity, line.about) == ("critical", "1")
    finally:
        os.kill(pid, signal.SIGCONT)
    over(server.nodes[0], "process-down")
