"""The append-only file is compacted while the node serves; nothing is lost whatever happens."""

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until

AOF = ("--appendonly", "yes", "--appendfsync", "everysec")
BODY = "x" * 2000
STARTED = b"Background append only file rewriting started"


def aof(node: LiveNode) -> Path:
    return node.log.parent / "disque.aof"


def held(wire: Wire) -> set[bytes]:
    """Return the IDs of all jobs of the node, once it has loaded them."""
    wait_until(lambda: wire("PING") == b"PONG")
    reply = wire("JSCAN", "BUSYLOOP")
    assert isinstance(reply, list)
    return set(reply[1])


def fill(wire: Wire, jobs: int, body: str = BODY) -> None:
    """Add ``jobs`` jobs and acknowledge half of them."""
    for start in range(0, jobs, 500):
        count = min(500, jobs - start)
        for _ in range(count):
            wire.send("ADDJOB", "q", body, 0, "RETRY", 300)
        ids = [wire.read() for _ in range(count)]
        assert all(isinstance(id, bytes) for id in ids)
        ended = [id for id in ids[::2] if isinstance(id, bytes)]
        assert wire("ACKJOB", *ended) == len(ended)


def status(node: LiveNode) -> str:
    """Return how the last rewrite ended, or "running"."""
    info = node.info("persistence")
    if info["aof_rewrite_in_progress"] == "1" or info["aof_rewrite_scheduled"] == "1":
        return "running"
    return info["aof_last_bgrewrite_status"]


def rewriter(node: LiveNode) -> int | None:
    """Return the PID of the process that compacts for ``node``."""
    children = Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children")
    for thread in children.parent.parent.iterdir():
        for pid in (thread / "children").read_text().split():
            try:
                if b"disque_trio.aof.compact" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
            except FileNotFoundError:
                continue
    return None


def rewrite(node: LiveNode) -> None:
    """Send BGREWRITEAOF, and wait until the file is compacted."""
    assert node.wire()("BGREWRITEAOF") == STARTED
    wait_until(lambda: status(node) != "running")
    assert status(node) == "ok"


def start_rewrite(node: LiveNode) -> int:
    """Send BGREWRITEAOF; suspend the process that compacts and return its PID."""
    found: list[int] = []

    def look() -> bool:
        if status(node) != "running":  # also if one ended before it was seen
            assert node.wire()("BGREWRITEAOF") == STARTED
        pid = rewriter(node)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                found.append(pid)
        return bool(found)

    wait_until(look)
    return found[0]


def leftovers(node: LiveNode) -> list[str]:
    names = [p.name for p in node.log.parent.iterdir() if p.name.startswith("disque.aof.")]
    beside = ("disque.aof.lock", "disque.aof.progress", "disque.aof.sums")
    return [name for name in names if name not in beside]


class Producer:
    """Adds jobs, acknowledges some, and records the replies."""

    def __init__(self, node: LiveNode, seed: int) -> None:
        self.confirmed: set[bytes] = set()
        self.doubtful: set[bytes] = set()
        self.acked: set[bytes] = set()
        self._wire = node.wire()
        self._dice = random.Random(seed)
        self._end = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        wire = self._wire
        try:
            while not self._end:
                id = wire("ADDJOB", "p", "y" * self._dice.randrange(200), 0, "RETRY", 300)
                assert isinstance(id, bytes)
                self.confirmed.add(id)
                if self._dice.random() < 0.4:
                    self.doubtful.add(id)
                    assert wire("ACKJOB", id) == 1
                    self.acked.add(id)
        except (EOFError, OSError):
            pass

    def stop(self) -> None:
        self._end = True
        self._thread.join()

    def check(self, there: set[bytes]) -> None:
        """Check that ``there`` has all confirmed jobs and none that was acknowledged."""
        assert self.confirmed - self.doubtful <= there
        assert not self.acked & there


@contextmanager
def producing(node: LiveNode, seed: int = 1) -> Iterator[Producer]:
    producer = Producer(node, seed)
    try:
        yield producer
    finally:
        producer.stop()


@pytest.mark.pure
def test_a_process_compacts_the_file_under_load_and_nothing_is_lost(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    fill(node.wire(), 4000)
    with producing(node) as producer:
        for _ in range(3):
            rewrite(node)
        goal = len(producer.confirmed) + 50
        wait_until(lambda: len(producer.confirmed) > goal)
    rewrite(node)
    before = held(node.wire())
    assert aof(node).read_bytes().count(b"LOADJOB") == len(before)
    assert leftovers(node) == []
    producer.check(before)
    node.kill()
    assert held(disque_server(*AOF, cwd=node.log.parent).wire()) == before


def test_jobs_that_have_expired_are_left_out(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    wire("ADDJOB", "q", BODY, 0, "TTL", 1)
    kept = wire("ADDJOB", "q", "kept", 0)
    wait_until(lambda: held(wire) == {kept})
    rewrite(node)
    assert aof(node).stat().st_size < 400


def test_the_file_is_compacted_by_itself_when_it_has_grown(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF, "--auto-aof-rewrite-min-size", "1mb")
    wire = node.wire()
    fill(wire, 1000)
    wait_until(lambda: int(node.info("persistence")["aof_last_rewrite_time_sec"]) >= 0)
    assert node.info("persistence")["aof_last_bgrewrite_status"] == "ok"


def test_a_killed_rewriter_leaves_the_file_whole_and_the_next_one_works(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    fill(wire, 3000)
    size = aof(node).stat().st_size
    for moment in (0.0, 0.05, 0.1, 0.2):
        pid = start_rewrite(node)
        whole = aof(node).read_bytes()  # another one may have ended before this one was seen
        os.kill(pid, signal.SIGCONT)
        time.sleep(moment)
        with suppress(ProcessLookupError):  # it had ended
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: status(node) != "running")
        if status(node) == "ok":
            break
        assert aof(node).read_bytes() == whole
        assert leftovers(node) == []
        assert wire("PING") == b"PONG"
    wire("ADDJOB", "q", "another", 0)
    before = held(wire)
    rewrite(node)
    assert aof(node).stat().st_size < 0.6 * size
    node.kill()
    assert held(disque_server(*AOF, cwd=node.log.parent).wire()) == before


def test_a_node_killed_during_a_rewrite_loses_nothing_and_takes_the_rewriter_with_it(
    disque_server: NodeFactory,
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    node = disque_server(*AOF)
    fill(node.wire(), 3000)
    base = held(node.wire())
    for attempt in range(6):
        with producing(node, seed + attempt) as producer:
            pid = start_rewrite(node)
            os.kill(pid, signal.SIGCONT)
            time.sleep(dice.random() * 0.3)
            node.kill()
        node = disque_server(*AOF, cwd=node.log.parent)
        there = held(node.wire())
        assert base <= there
        producer.check(there)
        base = there
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}/cmdline").exists())
        assert leftovers(node) == []


def test_a_full_disk_leaves_the_file_whole_and_the_node_serving(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    fill(wire, 2000)
    pid = start_rewrite(node)
    whole = aof(node).read_bytes()
    # The result is at least half as large as the file. The limit applies to that process only.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (len(whole) // 4, len(whole) // 4))
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: status(node) == "err")
    assert aof(node).read_bytes() == whole
    assert leftovers(node) == []
    id = wire("ADDJOB", "q", "taken", 0)
    assert isinstance(id, bytes)
    before = held(wire)
    assert status(node) == "err"
    rewrite(node)
    node.kill()
    assert held(disque_server(*AOF, cwd=node.log.parent).wire()) == before


def test_compacting_makes_room_on_a_disk_that_has_become_full(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    fill(wire, 1000)
    size = aof(node).stat().st_size
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (size + 50, -1))
    assert wire.error("ADDJOB", "q", "not confirmed", 0).startswith("MISCONF ")
    assert node.info("persistence")["aof_last_write_status"] == "err"
    wire("BGREWRITEAOF")
    wait_until(lambda: node.info("persistence")["aof_last_write_status"] == "ok")
    id = wire("ADDJOB", "q", "confirmed", 0)
    assert isinstance(id, bytes)
    before = held(wire)
    node.kill()
    assert held(disque_server(*AOF, cwd=node.log.parent).wire()) == before


def test_flushing_during_a_rewrite_ends_it(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    fill(wire, 500)
    pid = start_rewrite(node)
    assert wire("DEBUG", "FLUSHALL") == b"OK"
    assert aof(node).stat().st_size == 0
    id = wire("ADDJOB", "q", "new", 0)
    wait_until(lambda: status(node) == "ok")
    assert not Path(f"/proc/{pid}").exists()
    assert leftovers(node) == []
    node.kill()
    assert held(disque_server(*AOF, cwd=node.log.parent).wire()) == {id}


def test_switching_the_file_off_during_a_rewrite_ends_it(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    fill(wire, 500)
    pid = start_rewrite(node)
    whole = aof(node).read_bytes()
    assert wire("CONFIG", "SET", "appendonly", "no") == b"OK"
    wait_until(lambda: status(node) != "running")
    assert not Path(f"/proc/{pid}").exists()
    assert leftovers(node) == []
    wire("ADDJOB", "q", "in memory", 0)
    assert aof(node).read_bytes() == whole
    before = held(wire)
    assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"
    wait_until(lambda: node.info("persistence")["aof_state"] == "on")
    node.kill()
    assert held(disque_server(*AOF, cwd=node.log.parent).wire()) == before


def test_stopping_during_a_rewrite_does_not_wait_for_it(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    fill(wire, 500)
    before = held(wire)
    pid = start_rewrite(node)
    assert node.stop() == 0
    assert not Path(f"/proc/{pid}").exists()
    assert leftovers(node) == []
    assert held(disque_server(*AOF, cwd=node.log.parent).wire()) == before


def test_a_rewrite_goes_on_while_another_is_asked_for(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    fill(node.wire(), 500)
    pid = start_rewrite(node)
    assert "already in progress" in node.wire().error("BGREWRITEAOF")
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: status(node) == "ok")
