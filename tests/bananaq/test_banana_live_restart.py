"""What is there after bananaq ended, in good order or not, and after a Redis did."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import hiredis
import pytest
from banana_daemons import (
    Daemon,
    Given,
    RedisServer,
    drain,
    now_us,
    pack,
    pipeline,
    refused,
    spawn,
)
from banana_fixtures import DaemonFactory
from harness import Wire, free_port, wait_until

pytestmark = pytest.mark.live

LATE = 1_000_000  # µs after a deadline on a busy machine
WAYS = [
    ("embedded", "always", "stop"),
    ("embedded", "always", "kill"),
    ("embedded", "everysec", "stop"),
    ("embedded", "everysec", "kill"),
    ("redis", "always", "stop"),
    ("redis", "always", "kill"),
]


class Books:
    """A queue in which everything is that can be, and what was told of it.

    Attributes:
        held: what groups have and did not acknowledge. acked: what they did. left: by group, how
            many events were never given.
    """

    def __init__(self, wire: Wire, queue: str) -> None:
        self.queue = queue
        self.held: dict[str, list[Given]] = {}
        self.acked: dict[str, list[Given]] = {}
        pipeline(wire, [("QADD", queue, 300, n) for n in range(200)])
        # Is over before anything else happens, and the group has had it.
        wire("QADD", queue, "0.3", "short")
        for n in range(3):
            wire("QLPUSH", queue, f"own{n}", f"pushed{n}")
        wire("QRPUSH", queue, "front", "first")
        for group, count in (("g", 60), ("h", 150), ("okq", 20)):
            events = [Given(wire("QGET", queue, group, "EX", 60)) for _ in range(count)]
            for event in events[: count // 2]:
                if group != "okq" or event.body != b"first":
                    assert wire("QACK", queue, group, event.id) == 1
            self.acked[group] = events[: count // 2]
            self.held[group] = events[count // 2 :]
        assert wire("QACK", queue, "front") == 1
        # Given twice: only the second may acknowledge it.
        for group in ("g", "h"):
            event = self.held[group].pop(0)
            assert wire("QACK", queue, group, event.id, "REDO") == 1
            again = Given(wire("QGET", queue, group, "EX", 60))
            assert again.id == event.id + b"_2"
            self.held[group].append(again)
        self.redo = self.held["g"].pop(0)
        assert wire("QACK", queue, "g", self.redo.id, "REDO") == 1
        # Given for a short time: comes again after it, also if nobody was there then.
        self.short = Given(wire("QGET", queue, "k", "EX", "1.0"))
        self.short_until = now_us() + 1_000_000
        self.status = wire("QSTATUS", queue)
        self.last = Given([wire("QADD", queue, 300, "last"), b""])

    def check(self, daemon: Daemon) -> None:
        """All of it is still so."""
        wire, queue = daemon.wire(), self.queue
        deliveries = [Given(wire("QGET", queue, "k", "EX", 60)) for _ in range(3)]
        if now_us() < self.short_until:
            assert self.short.base not in {event.base for event in deliveries}
            again = Given(wire("QGET", queue, "new", "EX", 60))  # another group is free
            assert again.id == self.short.base
        for group, events in self.acked.items():
            for event in events:
                assert wire("QACK", queue, group, event.id) == 0
        redone = Given(wire("QGET", queue, "g", "EX", 60))
        assert redone.id == self.redo.base + b"_2"
        for group, events in self.held.items():
            twice = events[-1]
            if twice.delivery == 2:
                assert wire("QACK", queue, group, twice.base) == 0
            assert [wire("QACK", queue, group, event.id) for event in events] == [1] * len(events)
        duplicate = wire("QLPUSH", queue, "own1", "again")
        assert isinstance(duplicate, hiredis.ReplyError)
        new = Given([wire("QADD", queue, 300, "new"), b""])
        assert new.added > self.last.added
        had = {event.base for event in self.acked["g"] + self.held["g"]} | {redone.base}
        rest = [event.base for event in drain(wire, queue, "g")]
        assert len(rest) == len(set(rest))
        assert not set(rest) & had
        bodies = {event.body for event in drain(wire, queue, "of all")}
        assert bodies == {
            *(b"%d" % n for n in range(200)),
            b"pushed0", b"pushed1", b"pushed2", b"first", b"last", b"new",
        }  # fmt: skip
        assert len(rest) + len(had) == len(bodies)
        missed = [event for event in deliveries if event.base == self.short.base]
        while not missed:
            event = Given(wire("QGET", queue, "k", "EX", 60, "BLOCK", 5))
            if event.base == self.short.base:
                assert self.short_until - 100_000 <= now_us() < self.short_until + LATE + 5_000_000
                missed.append(event)
        assert missed[0].delivery == 2


@pytest.mark.parametrize(("kind", "fsync", "end"), WAYS)
def test_what_was_confirmed_is_there_after_the_daemon_ended(
    run_bananaq: DaemonFactory, kind: str, fsync: str, end: str
) -> None:
    daemon = run_bananaq(kind, "--appendfsync", fsync)
    books = Books(daemon.wire(), "q")
    if end == "stop":
        assert daemon.stop() == 0
    else:
        daemon.kill()
    daemon.restart()
    status = daemon.ask("QSTATUS", "q", "GROUPS", "g", "h", "okq")
    assert isinstance(status, list)
    assert isinstance(books.status, list)
    names = (b"inprogress", b"redo", b"done")

    def some(status: list[list[list[list[bytes]]]], group: bytes) -> list[object]:
        rows = status[0][1]
        counts = rows[[bytes(name) for name in rows[::2]].index(group) * 2 + 1]  # type: ignore[arg-type]
        return [counts[counts.index(name) + 1] for name in names]

    for group in (b"g", b"h", b"okq"):
        before, after = some(books.status, group), some(status, group)
        # The event that is over by now may have been counted.
        assert after[:2] == before[:2]
        assert abs(after[2] - before[2]) <= 1  # type: ignore[operator]
    books.check(daemon)


@pytest.mark.parametrize(
    ("kind", "fsync"), [("embedded", "always"), ("embedded", "everysec"), ("redis", "always")]
)
def test_a_daemon_killed_under_load_has_what_it_confirmed(
    run_bananaq: DaemonFactory, kind: str, fsync: str
) -> None:
    daemon = run_bananaq(kind, "--appendfsync", fsync)
    added: list[bytes] = []
    acked: set[bytes] = set()
    enough = threading.Event()

    def produce() -> None:
        wire = daemon.wire()
        try:
            while True:
                wire.raw(b"".join(pack("QADD", "q", 300, f"body-{n}") for n in range(20)))
                for _ in range(20):
                    id = wire.read()
                    assert isinstance(id, bytes)
                    added.append(id)
                if len(added) > 1500:
                    enough.set()
        except (EOFError, OSError):
            pass

    def consume() -> None:
        wire = daemon.wire()
        try:
            while True:
                event = wire("QGET", "q", "g", "EX", 60, "BLOCK", 5)
                if event is not None and wire("QACK", "q", "g", Given(event).id) == 1:
                    acked.add(Given(event).id)
        except (EOFError, OSError):
            pass

    threads = [threading.Thread(target=target) for target in (produce, produce, consume)]
    for thread in threads:
        thread.start()
    assert enough.wait(30)
    daemon.kill()
    for thread in threads:
        thread.join(20)
    assert acked
    daemon.restart()
    wire = daemon.wire()
    everything = [event.base for event in drain(wire, "q", "new")]
    assert len(everything) == len(set(everything))
    assert set(added) <= set(everything)
    assert everything == sorted(everything)
    rest = {event.base for event in drain(wire, "q", "g")}
    assert not rest & acked
    assert len(rest) >= len(everything) - len(acked) - 2  # one was held, one not confirmed


def test_shutdown_ends_it_and_nothing_is_lost(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded")
    books = Books(daemon.wire(), "q")
    wire = daemon.wire()
    wire.send("SHUTDOWN", "REWRITE-AOF")
    assert wire.closed()
    assert daemon.process.wait(15) == 0
    daemon.restart()
    books.check(daemon)
    wire = daemon.wire()
    wire.send("SHUTDOWN")
    assert wire.closed()
    assert daemon.process.wait(15) == 0


def test_with_a_redis_there_is_no_file_to_compact(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("redis")
    wire = daemon.wire()
    assert "Redis" in wire.error("BGREWRITEAOF")
    assert "Redis" in wire.error("SHUTDOWN", "REWRITE-AOF")
    assert list(daemon.directory.glob("*.aof")) == []
    waiter = daemon.wire()
    waiter.send("QGET", "q", "g", "BLOCK", 60)
    wait_until(lambda: daemon.status("q", "g")["consumers"] == 1)
    wire.send("SHUTDOWN")
    assert wire.closed()
    assert daemon.process.wait(15) == 0
    daemon.restart()
    assert daemon.status("q", "g")["consumers"] == 0


def test_a_file_compacted_under_load_has_everything(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--auto-aof-rewrite-percentage", "0")
    books = Books(daemon.wire(), "q")
    wire = daemon.wire()
    pipeline(wire, [("QADD", "other", 300, "x" * 50)] * 8_000)
    file = daemon.directory / "bananaq.aof"
    for _ in range(7_000):
        wire.send("QGET", "other", "gone", "EX", 0)
    for _ in range(7_000):
        wire.read()
    before = file.stat().st_ino
    assert isinstance(wire("BGREWRITEAOF"), bytes)
    added: list[object] = []
    acked: list[Given] = []
    held: list[Given] = []
    while file.stat().st_ino == before or len(added) < 500:
        replies = pipeline(
            wire,
            [("QADD", "more", 300, "body"), ("QGET", "more", "g"), ("QGET", "more", "h")] * 20,
        )
        added += replies[::3]
        for event in map(Given, replies[1::3]):
            assert wire("QACK", "more", "g", event.id) == 1
            acked.append(event)
        held += map(Given, replies[2::3])
    daemon.kill()
    daemon.restart()
    books.check(daemon)
    wire = daemon.wire()
    assert [event.base for event in drain(wire, "more", "new")] == added
    assert list(drain(wire, "more", "g")) == []
    assert list(drain(wire, "more", "h")) == []
    replies = pipeline(wire, [("QACK", "more", "h", event.id) for event in held])
    assert replies == [1] * len(held)
    assert len(list(drain(wire, "other", "gone"))) == 1_000


def test_a_file_that_grows_is_compacted_by_itself(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--auto-aof-rewrite-min-size", "100kb")
    wire = daemon.wire()
    file = daemon.directory / "bananaq.aof"
    before = file.stat().st_ino
    wire("QADD", "q", 300, "stays")
    while file.stat().st_ino == before:
        pipeline(wire, [("QADD", "q", "0.001", "goes")] * 500)
    daemon.kill()
    daemon.restart()
    assert [event.body for event in drain(daemon.wire(), "q", "g")] == [b"stays"]


def test_without_a_file_events_end_with_the_daemon(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--appendonly", "no")
    daemon.ask("QADD", "q", 300, "body")
    assert daemon.stop() == 0
    daemon.restart()
    assert daemon.ask("QGET", "q", "g") is None


def filled(run_bananaq: DaemonFactory) -> tuple[Daemon, Path]:
    """A daemon that was killed, and its file."""
    daemon = run_bananaq("embedded")
    pipeline(daemon.wire(), [("QADD", "q", 300, f"body-{n}") for n in range(100)])
    daemon.kill()
    return daemon, daemon.directory / "bananaq.aof"


def test_a_file_with_its_end_cut_off_is_taken_if_wanted(run_bananaq: DaemonFactory) -> None:
    daemon, file = filled(run_bananaq)
    data = file.read_bytes()
    file.write_bytes(data[:-3])
    status, text = refused(daemon.directory, "--aof-load-truncated", "no")
    assert status == 1
    assert "bananaq.aof" in text
    daemon.restart()
    wire = daemon.wire()
    wire("QADD", "q", 300, "new")
    daemon.kill()
    daemon.restart("--aof-load-truncated", "no")
    bodies = [event.body for event in drain(daemon.wire(), "q", "g")]
    assert bodies == [*(b"body-%d" % n for n in range(99)), b"new"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b"body-50", b"body-5\n\n\n"),
        lambda data: data.replace(b"*", b"?", 51),
        lambda data: data[:1000] + b"\x00" * 100 + data[1100:],
        lambda data: data + b"*2\r\n$6\r\nNOSUCH\r\n$1\r\nx\r\n",
    ],
)
def test_a_file_that_is_damaged_is_refused(
    run_bananaq: DaemonFactory, damage: Callable[[bytes], bytes]
) -> None:
    daemon, file = filled(run_bananaq)
    data = damage(file.read_bytes())
    file.write_bytes(data)
    status, text = refused(daemon.directory)
    assert status == 1
    assert "cannot start" in text
    assert "bananaq.aof" in text
    assert "Traceback" not in text
    assert file.read_bytes() == data


def test_clients_are_told_that_the_file_is_being_read(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded")
    wire = daemon.wire()
    for _ in range(3):
        pipeline(wire, [("QADD", "q", 300, "body")] * 10_000)
    daemon.kill()
    daemon.restart(wait=False)
    wait_until(lambda: connects(daemon), 20)
    wire = daemon.wire()
    told = 0
    while isinstance(reply := wire("QSTATUS", "q", "GROUPS", "g"), hiredis.ReplyError):
        assert str(reply).startswith("LOADING")
        assert isinstance(wire("INFO"), bytes)
        told += 1
    assert told
    assert daemon.status("q", "g")["total"] == 30_000


def connects(daemon: Daemon) -> bool:
    try:
        daemon.wire()
    except OSError:
        return False
    return True


@pytest.fixture
def own_daemon(run_bananaq: DaemonFactory, own_redis: RedisServer) -> Iterator[Daemon]:
    """A daemon on a Redis of its own that keeps its data."""
    return run_bananaq("redis", redis=own_redis)


def test_a_redis_that_goes_and_comes_again_has_lost_nothing(
    own_daemon: Daemon, own_redis: RedisServer
) -> None:
    daemon = own_daemon
    wire = daemon.wire()
    books = Books(wire, "q")
    blocked, told = daemon.wire(), daemon.wire()
    blocked.send("QGET", "other", "g", "BLOCK", 20)
    told.send("QNOTIFY", "g", 20, "other")
    wait_until(lambda: daemon.status("other", "g")["consumers"] == 2)
    own_redis.stop()
    for request in (
        ("QADD", "q", "60", "body"),
        ("QGET", "q", "g"),
        ("QACK", "q", "g", "1_2"),
        ("QNOTIFY", "g", "0", "q"),
        ("QSTATUS",),
        ("QSTATUS", "q"),
        ("QFLUSH", "q"),
        ("QRPOP", "q"),
    ):
        started = now_us()
        assert wire.error(*request).startswith("ERR server-side error: ")
        assert now_us() - started < 3_000_000
    assert wire("QADD", "q", 60, "nobody hears", "NOBLOCK") == b"OK"
    assert wire("PING") == b"PONG"
    own_redis.start()
    wait_until(lambda: isinstance(wire("QSTATUS", "q"), list), 20)
    books.check(daemon)
    for waiter in (blocked, told):
        # Told of the failure, or still there and served.
        waiter.sock.setblocking(True)
    wire("QADD", "other", 60, "one")
    wire("QADD", "other", 60, "two")
    got = blocked.read()
    assert isinstance(got, hiredis.ReplyError) or Given(got).body == b"one"
    assert isinstance(heard := told.read(), hiredis.ReplyError) or heard == b"other"
    assert blocked("QNOTIFY", "g", 5, "other") == b"other"


def test_a_redis_killed_under_load_has_what_was_confirmed(
    own_daemon: Daemon, own_redis: RedisServer
) -> None:
    daemon = own_daemon
    added: list[bytes] = []
    acked: list[bytes] = []
    over = threading.Event()
    failed: list[str] = []

    def produce() -> None:
        wire = daemon.wire()
        while not over.is_set():
            for reply in pipeline(wire, [("QADD", "q", 300, "body")] * 20):
                if isinstance(reply, bytes):
                    added.append(reply)
                else:
                    failed.append(str(reply))
        wire.close()

    def consume() -> None:
        wire = daemon.wire()
        while not over.is_set():
            reply = wire("QGET", "q", "g", "EX", 60, "BLOCK", "0.2")
            if isinstance(reply, hiredis.ReplyError):
                failed.append(str(reply))
            elif reply is not None and wire("QACK", "q", "g", Given(reply).id) == 1:
                acked.append(Given(reply).id)
        wire.close()

    threads = [threading.Thread(target=target) for target in (produce, consume, consume)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            count = len(added)
            wait_until(lambda count=count: len(added) > count + 300 and acked, 20)
            own_redis.stop()
            own_redis.start()
            count = len(acked)
            wait_until(lambda count=count: len(acked) > count + 20, 20)
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
    assert failed
    assert all(text.startswith("ERR server-side error: ") for text in failed)
    wire = daemon.wire()
    everything = [event.base for event in drain(wire, "q", "new")]
    assert everything == sorted(set(everything))
    assert set(added) <= set(everything)
    assert len(acked) == len(set(acked))
    rest = {event.base for event in drain(wire, "q", "g")}
    assert not rest & set(acked)


def test_a_daemon_starts_before_its_redis(
    run_bananaq: DaemonFactory, own_redis: RedisServer
) -> None:
    own_redis.stop()
    daemon = run_bananaq("redis", redis=own_redis)
    wire = daemon.wire()
    assert wire.error("QADD", "q", 60, "body").startswith("ERR server-side error: ")
    waiter = daemon.wire()
    assert isinstance(waiter("QGET", "q", "g", "BLOCK", 20), hiredis.ReplyError)
    own_redis.start()
    wait_until(lambda: isinstance(wire("QADD", "q", 60, "body"), bytes), 20)
    assert Given(wire("QGET", "q", "g", "BLOCK", 5)).body == b"body"


def test_what_cannot_be_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert refused(tmp_path / "d", "--store", "paper")[0] == 2
    assert refused(tmp_path / "d", "--no-such-option", "1")[0] == 2
    first = spawn(tmp_path / "d", free_port(), [])
    try:
        assert first.ready()
        (tmp_path / "e").mkdir()
        second = spawn(tmp_path / "e", first.port, [])
        try:
            assert second.process.wait(20) == 1
            assert "cannot start" in second.log.read_text()
            assert "Traceback" not in second.log.read_text()
        finally:
            second.close()
    finally:
        first.close()
