"""bananaq as a process: its supervisor, access, and limits."""

import os
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import hiredis
import pytest

from packages.bananaq.tests.support.banana_daemons import Daemon, Given, pack, pipeline, spawn
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import HANG_SECONDS, Wire, free_port, wait_until

pytestmark = pytest.mark.live

MB = 1024 * 1024


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket to which a daemon reports its state."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(HANG_SECONDS)
        yield notify


def hear(supervisor: socket.socket, start: str) -> None:
    """Wait for a message that starts with this text."""
    while not supervisor.recv(4096).decode().startswith(start):
        pass


def test_a_supervisor_is_notified_of_start_life_and_end(
    tmp_path: Path, supervisor: socket.socket
) -> None:
    (tmp_path / "d").mkdir()
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
    daemon = spawn(tmp_path / "d", free_port(), [], env=environment)
    try:
        hear(supervisor, "READY=1")
        assert daemon.ask("PING") == b"PONG"
        hear(supervisor, "WATCHDOG=1")
        assert daemon.stop() == 0
        hear(supervisor, "STOPPING=1")
    finally:
        daemon.close()


@pytest.mark.pure
def test_a_password_is_required(run_bananaq: DaemonFactory) -> None:
    (daemon := run_bananaq("embedded")).stop()
    daemon.restart("--requirepass", "secret", wait=False)
    wait_until(lambda: connects("127.0.0.1", daemon.port))
    wire = daemon.wire()
    for request in (("QADD", "q", "60", "b"), ("QGET", "q", "g"), ("QSTATUS",), ("PING",)):
        assert wire.error(*request).startswith("NOAUTH")
    assert "invalid password" in wire.error("AUTH", "wrong")
    assert wire("AUTH", "secret") == b"OK"
    assert isinstance(wire("QADD", "q", 60, "b"), bytes)
    third = daemon.wire()
    assert isinstance(third("HELLO", "3", "AUTH", "default", "secret"), dict | list)
    assert Given(third("QGET", "q", "g")).body == b"b"


def connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=HANG_SECONDS).close()
    except OSError:
        return False
    return True


def other_address() -> str:
    """Return an address of this machine other than loopback, if there is one."""
    out = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout
    return next((word for word in out.split() if "." in word and word[:4] != "127."), "")


def test_without_a_password_only_this_machine_is_served(run_bananaq: DaemonFactory) -> None:
    address = other_address()
    if not address:
        pytest.skip("this machine has no address but loopback")
    (daemon := run_bananaq("embedded")).stop()
    daemon.restart("--listen-addr", f":{daemon.port}")
    assert daemon.ask("PING") == b"PONG"
    # As if from elsewhere: to the address that other machines would use.
    outside = Wire(socket.create_connection((address, daemon.port), timeout=HANG_SECONDS))
    reply = outside("PING")
    outside.close()
    if reply != b"PONG":  # the address may count as local
        assert isinstance(reply, hiredis.ReplyError)
        assert str(reply).startswith("DENIED")


def test_one_client_too_many_gets_an_error(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--maxclients", "3")
    wires = [daemon.wire()]
    wait_until(lambda: len(clients(wires[0])) == 1)  # those of the start have disconnected
    wires += [daemon.wire() for _ in range(2)]
    assert [wire("PING") for wire in wires] == [b"PONG"] * 3
    more = daemon.wire()
    reply = more.read()
    assert isinstance(reply, hiredis.ReplyError)
    assert "max number of clients" in str(reply)
    assert more.closed()
    wires[0].close()
    wait_until(daemon.answers)


def test_with_full_memory_events_are_refused_but_delivered(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--maxmemory", "2mb")
    wire = daemon.wire()
    added = 0
    while isinstance(reply := wire("QADD", "q", 60, "x" * 10_000), bytes):
        added += 1
        assert added < 1000
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply).startswith("OOM")
    assert added > 100
    assert wire.error("QLPUSH", "q", "id", "body").startswith("OOM")
    assert wire.error("QADD", "q", 60, "b", "NOBLOCK").startswith("OOM")
    event = Given(wire("QGET", "q", "g"))
    assert wire("QWORKING", "q", "g", event.id) == 1
    assert wire("QACK", "q", "g", event.id, "REDO") == 1
    assert wire("QACK", "q", "g", Given(wire("QGET", "q", "g")).id) == 1
    assert wire("QNOTIFY", "g", 0, "q") == b"q"
    assert daemon.status("q", "g")["total"] == added
    assert wire("QFLUSH", "q") == b"OK"
    # The memory is released in steps.
    wait_until(lambda: isinstance(wire("QADD", "q", 60, "x" * 10_000), bytes))
    wait_until(lambda: int(daemon.info("memory")["used_memory"]) < 100_000)
    assert daemon.status("q", "g")["total"] == 1


def test_memory_is_released_when_events_end(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded")
    wire = daemon.wire()
    empty = int(daemon.info("memory")["used_memory"])
    pipeline(wire, [("QADD", f"q{n % 10}", 4, "x" * 1000) for n in range(2000)])
    pipeline(wire, [("QGET", f"q{n % 10}", f"g{n % 3}", "EX", n % 2) for n in range(1000)])
    assert int(daemon.info("memory")["used_memory"]) > 2_000_000
    wait_until(lambda: int(daemon.info("memory")["used_memory"]) <= empty)
    assert wire("QSTATUS") == []
    assert daemon.info("events")["events"] == "0"
    assert daemon.info("stats")["total_events_expired"] == "2000"


def test_a_client_that_does_not_read_is_disconnected(run_bananaq: DaemonFactory, kind: str) -> None:
    daemon = run_bananaq(kind, "--client-output-buffer-limit", "normal 8mb 0 0")
    slow, control = daemon.wire(), daemon.wire()
    slow("QADD", "q", 60, "x" * MB)
    slow.raw(pack("QRPEEK", "q") * 40)
    wait_until(lambda: len(clients(control)) == 1)
    assert slow.closed()
    assert Given(control("QGET", "q", "g")).body == b"x" * MB


def clients(control: Wire) -> list[bytes]:
    lines = control("CLIENT", "LIST")
    assert isinstance(lines, bytes)
    return lines.splitlines()


def test_arguments_that_are_too_long_are_refused(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--proto-max-bulk-len", "1kb")
    wire = daemon.wire()
    assert isinstance(wire("QADD", "q", 60, "x" * 1024), bytes)
    wire.raw(b"*4\r\n$4\r\nQADD\r\n$1\r\nq\r\n$2\r\n60\r\n$1025\r\n")
    assert "invalid bulk length" in str(wire.read())
    assert wire.closed()
    assert daemon.status("q", "g")["total"] == 1


def test_idle_clients_are_disconnected_and_waiting_ones_are_not(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--timeout", "1")
    idle, waiter = daemon.wire(), daemon.wire()
    waiter.send("QGET", "q", "g", "BLOCK", 60)
    started = time.monotonic()
    assert idle.closed()
    assert time.monotonic() - started > 0.5
    daemon.ask("QADD", "q", 60, "body")
    assert Given(waiter.read()).body == b"body"


@pytest.mark.pure
def test_a_unix_socket_is_served(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--unixsocket", "banana.sock")
    path = daemon.directory / "banana.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.path.relpath(path))
        wire = Wire(sock)
        assert isinstance(wire("QADD", "q", 60, "body"), bytes)
    assert Given(daemon.ask("QGET", "q", "g")).body == b"body"
    assert daemon.stop() == 0
    assert not path.exists()


def test_excess_background_operations_are_refused(
    run_bananaq: DaemonFactory,
) -> None:
    daemon: Daemon = run_bananaq("redis", "--bg-qadd-pool-size", "1")
    wire = daemon.wire()
    replies = pipeline(wire, [("QADD", "q", 60, n, "NOBLOCK") for n in range(2000)])
    refused = [reply for reply in replies if isinstance(reply, hiredis.ReplyError)]
    assert all(str(reply).startswith("ERR ") and "busy" in str(reply) for reply in refused)
    stored = len(replies) - len(refused)
    wait_until(lambda: daemon.status("q", "g")["total"] == stored)
    assert refused
    assert wire("QADD", "q", 60, "again", "NOBLOCK") == b"OK"


def test_a_full_disk_is_reported_and_confirmed_events_are_kept(
    run_bananaq: DaemonFactory,
) -> None:
    daemon = run_bananaq("embedded", "--appendfsync", "always")
    wire, blocked = daemon.wire(), daemon.wire()
    confirmed = [wire("QADD", "q", 60, "first")]
    blocked.send("QGET", "other", "g", "BLOCK", 20)
    wait_until(lambda: daemon.status("other", "g")["consumers"] == 1)
    limit_files(daemon, (daemon.directory / "bananaq.aof").stat().st_size + 10)
    # The event may exist nevertheless, but this is not confirmed to anybody.
    assert wire.error("QADD", "other", 60, "body").startswith("MISCONF")
    reply = blocked.read()
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply).startswith("MISCONF")
    assert wire.error("QADD", "q", 60, "body", "NOBLOCK").startswith("MISCONF")
    assert wire.error("QGET", "q", "g").startswith("MISCONF")
    assert daemon.status("q", "g")["total"] == 1
    limit_files(daemon, resource.RLIM_INFINITY)
    wait_until(lambda: not isinstance(wire("QFLUSH", "other"), hiredis.ReplyError))
    confirmed.append(wire("QADD", "q", 60, "second"))
    held = Given(wire("QGET", "q", "g"))
    daemon.kill()
    daemon.restart()
    wire = daemon.wire()
    assert wire("QACK", "q", "g", held.id) == 1
    assert [Given(wire("QGET", "q", "new")).id for _ in range(2)] == confirmed
    assert wire("QGET", "q", "new") is None


def limit_files(daemon: Daemon, size: int) -> None:
    """Let the daemon write no file larger than ``size``, as if the disk were full."""
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
