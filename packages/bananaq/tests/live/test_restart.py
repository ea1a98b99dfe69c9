"""What is left after bananaq ended, cleanly or not."""

import threading
from pathlib import Path

import hiredis
import pytest

from packages.bananaq.tests.support.banana_books import Books
from packages.bananaq.tests.support.banana_daemons import (
    Daemon,
    Given,
    drain,
    pack,
    pipeline,
    refused,
    spawn,
)
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import HANG_SECONDS, free_port, wait_until

pytestmark = pytest.mark.live

WAYS = [
    ("embedded", "always", "kill"),
    ("embedded", "everysec", "stop"),
    ("embedded", "everysec", "kill"),
    ("redis", "always", "stop"),
    ("redis", "always", "kill"),
]


@pytest.mark.parametrize(("kind", "fsync", "end"), WAYS)
def test_confirmed_events_are_there_after_a_restart(
    run_bananaq: DaemonFactory, kind: str, fsync: str, end: str
) -> None:
    daemon = run_bananaq(kind, "--appendfsync", fsync)
    books = Books(daemon, "q")
    if end == "stop":
        assert daemon.stop() == 0
    else:
        daemon.kill()
    daemon.restart()
    for group, before in books.status.items():
        after = daemon.status("q", group)
        for name in ("inprogress", "redo"):
            assert after[name] == before[name]
        # An event that has expired by now may have been counted.
        assert abs(after["done"] - before["done"]) <= 1
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
    assert enough.wait(HANG_SECONDS)
    daemon.kill()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert acked
    daemon.restart()
    wire = daemon.wire()
    everything = [event.base for event in drain(wire, "q", "new")]
    assert len(everything) == len(set(everything))
    assert set(added) <= set(everything)
    assert everything == sorted(everything)
    rest = {event.base for event in drain(wire, "q", "g")}
    assert not rest & acked
    assert len(rest) >= len(everything) - len(acked) - 2  # one was held, one was unconfirmed


def test_shutdown_ends_it_and_nothing_is_lost(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded")
    books = Books(daemon, "q")
    wire = daemon.wire()
    wire.send("SHUTDOWN", "REWRITE-AOF")
    assert wire.closed()
    assert daemon.process.wait(HANG_SECONDS) == 0
    daemon.restart()
    books.check(daemon)
    wire = daemon.wire()
    wire.send("SHUTDOWN")
    assert wire.closed()
    assert daemon.process.wait(HANG_SECONDS) == 0


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
    assert daemon.process.wait(HANG_SECONDS) == 0
    daemon.restart()
    assert daemon.status("q", "g")["consumers"] == 0


def test_a_file_compacted_under_load_is_complete(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--auto-aof-rewrite-percentage", "0")
    books = Books(daemon, "q")
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


def test_a_growing_file_is_compacted_automatically(run_bananaq: DaemonFactory) -> None:
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
    """Return a killed daemon and its file."""
    daemon = run_bananaq("embedded")
    pipeline(daemon.wire(), [("QADD", "q", 300, f"body-{n}") for n in range(100)])
    daemon.kill()
    return daemon, daemon.directory / "bananaq.aof"


def test_a_truncated_file_is_accepted_if_configured(run_bananaq: DaemonFactory) -> None:
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


def test_a_damaged_file_is_refused(run_bananaq: DaemonFactory) -> None:
    daemon, file = filled(run_bananaq)
    whole = file.read_bytes()
    for data in (
        whole.replace(b"body-50", b"body-5\n\n\n"),
        whole.replace(b"*", b"?", 51),
        whole[:1000] + b"\x00" * 100 + whole[1100:],
        whole + b"*2\r\n$6\r\nNOSUCH\r\n$1\r\nx\r\n",
    ):
        file.write_bytes(data)
        status, text = refused(daemon.directory)
        daemon.log.unlink()
        assert status == 1
        assert "cannot start" in text
        assert "bananaq.aof" in text
        assert "Traceback" not in text
        assert file.read_bytes() == data


def test_clients_get_an_error_while_the_file_is_being_read(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded")
    wire = daemon.wire()
    for _ in range(3):
        pipeline(wire, [("QADD", "q", 300, "body")] * 10_000)

    def told() -> int:
        """Restart it; return how many errors a client gets that may be too late for them all."""
        daemon.kill()
        daemon.restart(wait=False)
        wait_until(lambda: connects(daemon))
        wire = daemon.wire()
        count = 0
        while isinstance(reply := wire("QSTATUS", "q", "GROUPS", "g"), hiredis.ReplyError):
            assert str(reply).startswith("LOADING")
            assert isinstance(wire("INFO"), bytes)
            count += 1
        assert daemon.status("q", "g")["total"] == 30_000
        return count

    wait_until(told)


def connects(daemon: Daemon) -> bool:
    try:
        daemon.wire()
    except OSError:
        return False
    return True


def test_invalid_options_and_a_used_port_prevent_the_start(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert refused(tmp_path / "d", "--store", "paper")[0] == 2
    assert refused(tmp_path / "d", "--no-such-option", "1")[0] == 2
    first = spawn(tmp_path / "d", free_port(), [])
    try:
        assert first.ready()
        (tmp_path / "e").mkdir()
        second = spawn(tmp_path / "e", first.port, [])
        try:
            assert second.process.wait(HANG_SECONDS) == 1
            assert "cannot start" in second.log.read_text()
            assert "Traceback" not in second.log.read_text()
        finally:
            second.close()
    finally:
        first.close()
