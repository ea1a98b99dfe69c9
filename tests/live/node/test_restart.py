"""RESTART: a new process takes over the jobs, queues, sockets and PID of the old one."""

import os
import random
import resource
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import hiredis
import pytest

from tests.support.commands import run_command, start_command
from tests.support.harness import (
    HANG_SECONDS,
    LiveNode,
    NodeFactory,
    Wire,
    free_port,
    wait_for_ping,
    wait_until,
)
from tests.support.live_helpers import pairs, unix_connection
from tests.support.supervisor import Supervisor

FILES = [("--appendonly", "no"), ("--appendonly", "yes", "--appendfsync", "always")]
both = pytest.mark.parametrize("options", FILES, ids=["off", "on"])

LONG = "x" * 30_000_000  # more than the kernel takes at once


def restart(wire: Wire) -> None:
    """Send RESTART, and wait until the old process has closed its clients."""
    wire.send("RESTART")
    with pytest.raises(EOFError):
        wire.read()
    wire.close()


def ready(node: LiveNode) -> Wire:
    """Return a connection to the node once it has loaded its jobs."""
    wire = node.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    return wire


def ids_of(reply: object) -> list[bytes]:
    return [job[1] for job in reply] if isinstance(reply, list) else []


def blocked(wire: Wire, queue: str) -> bool:
    """Return whether a client waits for jobs of ``queue``."""
    reply = wire("QSTAT", queue)
    return reply is not None and pairs(reply)["blocked"] == 1


def run_id(node: LiveNode) -> str:
    return node.info("server")["run_id"]


@pytest.mark.pure
@both
def test_queues_come_back_in_order_and_what_was_delivered_at_most_once_does_not(
    disque_server: NodeFactory, options: tuple[str, ...]
) -> None:
    node = disque_server(*options)
    wire = node.wire()
    before = run_id(node)
    queued = [wire("ADDJOB", "q", n, 0, "RETRY", n % 2 * 300) for n in range(20)]
    taken = ids_of(wire("GETJOB", "COUNT", 4, "FROM", "q"))
    assert taken == queued[:4]
    restart(wire)
    wire = ready(node)
    assert run_id(node) != before
    assert int(node.info("server")["process_id"]) == node.process.pid
    assert ids_of(wire("GETJOB", "NOHANG", "COUNT", 100, "FROM", "q")) == queued[4:]
    restart(wire)
    wire = ready(node)
    # At most once: all of them have been delivered by now.
    assert wire("GETJOB", "NOHANG", "FROM", "q") is None
    assert wire("SHOW", queued[5]) is not None
    assert wire("SHOW", queued[1]) is not None


@both
def test_jobs_keep_their_fields(disque_server: NodeFactory, options: tuple[str, ...]) -> None:
    node = disque_server(*options)
    wire = node.wire()
    nacked = wire("ADDJOB", "q", "nacked", 0, "TTL", 5000, "RETRY", 3)
    assert ids_of(wire("GETJOB", "FROM", "q")) == [nacked]
    assert wire("NACK", nacked) == 1
    assert ids_of(wire("GETJOB", "FROM", "q")) == [nacked]
    wait_until(lambda: wire("QLEN", "q") == 1)
    delayed = wire("ADDJOB", "d", "delayed", 0, "DELAY", 1000, "RETRY", 0)
    soon = wire("ADDJOB", "s", "soon", 0, "DELAY", 2, "RETRY", 0)
    shown = [pairs(wire("SHOW", id)) for id in (nacked, delayed)]
    assert shown[0]["additional-deliveries"] == 1
    restart(wire)
    wire = ready(node)
    for id, old in zip((nacked, delayed), shown, strict=True):
        new = pairs(wire("SHOW", id))
        for name in ("queue", "state", "ctime", "delay", "retry", "nacks", "body"):
            assert new[name] == old[name]
        assert new["additional-deliveries"] == old["additional-deliveries"]
        assert isinstance(old["ttl"], int)
        assert isinstance(new["ttl"], int)
        assert old["ttl"] - 200 <= new["ttl"] <= old["ttl"]
    assert ids_of(wire("GETJOB", "FROM", "s")) == [soon]


def test_jobs_stay_in_memory_only_if_the_file_is_off(disque_server: NodeFactory) -> None:
    node = disque_server()
    directory = node.log.parent
    wire = node.wire()
    id = wire("ADDJOB", "q", "body", 0)
    assert wire("PAUSE", "empty", "in") == b"in"
    restart(wire)
    wire = ready(node)
    assert wire("QLEN", "q") == 1
    assert wire("PAUSE", "empty", "state") == b"in"
    assert not (directory / "disque.aof").exists()
    node.kill()
    wire = disque_server(cwd=directory).wire()
    assert wire("SHOW", id) is None
    assert wire("PAUSE", "empty", "state") == b"none"


@pytest.mark.pure
def test_the_new_process_continues_the_file_if_it_is_on(disque_server: NodeFactory) -> None:
    node = disque_server("--appendonly", "yes")
    wire = node.wire()
    ids = [wire("ADDJOB", "q", n, 0, "RETRY", 1) for n in range(10)]
    once = wire("ADDJOB", "once", "body", 0, "RETRY", 0)
    late = wire("ADDJOB", "late", "body", 0, "RETRY", 600)
    assert wire("PAUSE", "q", "out") == b"out"
    restart(wire)
    wire = ready(node)
    assert wire("QLEN", "late") == 1
    assert wire("QLEN", "q") == 10
    assert wire("GETJOB", "NOHANG", "FROM", "q") is None
    assert wire("PAUSE", "q", "in", "out") == b"all"
    assert wire("PAUSE", "q", "out") == b"out"
    assert ids_of(wire("GETJOB", "FROM", "once")) == [once]
    ids.append(wire("ADDJOB", "q", "later", 0, "RETRY", 1))
    assert wire("ACKJOB", ids[0]) == 1
    node.kill()
    wire = disque_server("--appendonly", "yes", cwd=node.log.parent).wire()
    assert wire("QLEN", "late") == 1
    assert wire("SHOW", late) is not None
    wait_until(lambda: wire("QLEN", "q") == 10)
    assert wire("GETJOB", "NOHANG", "FROM", "once", "q") is None
    assert wire("PAUSE", "q", "none") == b"none"
    assert len(ids_of(wire("GETJOB", "COUNT", 20, "FROM", "q"))) == 10


@pytest.mark.pure
@both
def test_a_client_that_comes_during_the_restart_is_served(
    disque_server: NodeFactory, options: tuple[str, ...]
) -> None:
    node = disque_server(*options)
    wire = node.wire()
    for n in range(200):
        wire("ADDJOB", "q", n, 0)
    for _ in range(3):
        restart(wire)
        # The old process is gone and the new one is not up yet: the connection waits.
        wire = node.wire()
        reply = wire("ADDJOB", "q", "body", 0)
        while isinstance(reply, hiredis.ReplyError):
            assert str(reply).startswith("LOADING")
            reply = wire("ADDJOB", "q", "body", 0)
    assert wire("QLEN", "q") == 203
    assert node.process.poll() is None
    assert int(node.info("server")["process_id"]) == node.process.pid
    assert node.stop() == 0


def test_other_clients_get_their_replies_and_waits_end(disque_server: NodeFactory) -> None:
    node = disque_server()
    wire, waiting, big = node.wire(), node.wire(), node.wire()
    waiting.send("GETJOB", "FROM", "empty")
    wait_until(lambda: blocked(wire, "empty"))
    big.send("ECHO", LONG)
    wait_until(lambda: int(node.info("clients")["client_longest_output_list"]) > 0)
    wire.send("RESTART")
    assert big.read() == LONG.encode()
    with pytest.raises(EOFError):
        waiting.read()
    with pytest.raises(EOFError):
        wire.read()
    assert ready(node)("PING") == b"PONG"


def test_a_job_that_gets_due_during_the_restart_is_not_delivered_by_the_old_process(
    disque_server: NodeFactory,
) -> None:
    node = disque_server()
    wire, waiting, slow = node.wire(), node.wire(), node.wire()
    slow.send("ECHO", LONG)  # keeps the old process for two seconds
    wait_until(lambda: int(node.info("clients")["client_longest_output_list"]) > 0)
    id = wire("ADDJOB", "q", "body", 0, "DELAY", 2, "RETRY", 0)
    waiting.send("GETJOB", "FROM", "q")
    wait_until(lambda: blocked(wire, "q"))
    restart(wire)
    with pytest.raises(EOFError):
        waiting.read()
    assert ids_of(ready(node)("GETJOB", "FROM", "q")) == [id]


def test_the_new_process_reads_the_configuration_again(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    config = tmp_path / "disque.yaml"
    config.write_text("# mine\nhz: 20\n")
    node = disque_server("disque.yaml", "--maxclients", "50")
    wire = node.wire()
    config.write_text("# mine\nhz: 40\n")
    restart(wire)
    wire = ready(node)
    assert wire("CONFIG", "GET", "hz") == [b"hz", b"40"]
    assert wire("CONFIG", "GET", "maxclients") == [b"maxclients", b"50"]
    assert wire("CONFIG", "GET", "aof-enqueue-jobs-once") == [b"aof-enqueue-jobs-once", b"no"]
    assert config.read_text() == "# mine\nhz: 40\n"


def test_a_wrong_configuration_is_refused_while_the_node_still_runs(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    config = tmp_path / "disque.yaml"
    config.write_text("hz: 20\n")
    node = disque_server("disque.yaml")
    wire = node.wire()
    wire("ADDJOB", "q", "body", 0)
    config.write_text("hz: many\n")
    assert "hz" in wire.error("RESTART")
    config.write_text("appendfilename: other.aof\n")
    assert "appendfilename" in wire.error("RESTART")
    config.write_text("rename-command: {nonsense: other}\n")
    assert "nonsense" in wire.error("RESTART")
    config.write_text("hz: 20\n")
    assert wire("QLEN", "q") == 1
    restart(wire)
    assert ready(node)("QLEN", "q") == 1


def test_settings_from_standard_input_cannot_be_read_twice(tmp_path: Path) -> None:
    port = free_port()
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    process = start_command("disque-server", "-", cwd=tmp_path, **streams)
    assert process.stdin is not None
    process.stdin.write(f"port {port}\nbind 127.0.0.1\n".encode())
    process.stdin.close()
    node = LiveNode(port, process, tmp_path / "none")
    try:
        assert wait_for_ping(node)
        wire = node.wire()
        id = wire("ADDJOB", "q", "body", 0)
        assert "standard input" in wire.error("RESTART")
        assert ids_of(wire("GETJOB", "FROM", "q")) == [id]
    finally:
        node.close()


@both
def test_a_full_disk_is_reported_and_the_node_continues(
    disque_server: NodeFactory, options: tuple[str, ...]
) -> None:
    node = disque_server(*options)
    wire = node.wire()
    before = run_id(node)
    ids = {wire("ADDJOB", "q", "x" * 100, 0, "RETRY", 1) for _ in range(50)}
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (1000, -1))
    assert wire.error("RESTART") == "ERR Errors trying to RESTART. Check logs: File too large"
    assert wire("QLEN", "q") == 50
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    ids.add(wire("ADDJOB", "q", "later", 0, "RETRY", 1))
    assert run_id(node) == before
    others = {"disque.aof.lock", "disque.aof.sums"}
    names = {path.name for path in node.log.parent.glob("disque.aof*")} - others
    assert names == ({"disque.aof", "disque.aof.progress"} if "yes" in options else set())
    if "yes" in options:
        node.kill()
        node = disque_server(*options, cwd=node.log.parent)
        wire = node.wire()
        wait_until(lambda: wire("QLEN", "q") == 51)
    restart(wire)
    wire = ready(node)
    assert set(ids_of(wire("GETJOB", "COUNT", 100, "FROM", "q"))) == ids


def test_what_was_confirmed_with_a_failed_restart_is_in_the_old_file(
    disque_server: NodeFactory,
) -> None:
    node = disque_server("--appendonly", "yes")
    wire = node.wire()
    directory = node.log.parent
    (directory / "disque.aof").rename(directory / "old")
    (directory / "disque.aof").mkdir()  # the rename will fail
    wire.raw(b"ADDJOB q body 0\r\nRESTART\r\n")
    id = wire.read()
    assert isinstance(id, bytes)
    assert isinstance(wire.read(), hiredis.ReplyError)
    assert id in (directory / "old").read_bytes()
    assert wire("QLEN", "q") == 1


def test_a_unix_socket_is_kept_and_removed_by_the_last_process(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    path = tmp_path / "disque.sock"
    node = disque_server("--unixsocket", "disque.sock", "--unixsocketperm", "700")
    inode = path.stat().st_ino
    for _ in range(2):
        restart(unix_connection(path))
        wire = unix_connection(path)
        wait_until(lambda wire=wire: wire("PING") == b"PONG")
        wire.close()
    assert path.stat().st_ino == inode
    assert node.stop() == 0
    assert not path.exists()


def test_passed_sockets_are_told_from_those_of_the_node(tmp_path: Path) -> None:
    path = tmp_path / "own.sock"
    supervisor = Supervisor(tmp_path, str(tmp_path / "notify"))
    listener = socket.create_server(("127.0.0.1", free_port()))
    try:
        node = supervisor.start("--unixsocket", str(path), sockets=(listener,))
        supervisor.wait_for("READY=1")
        restart(node.wire())
        supervisor.wait_for("RELOADING=1\nMONOTONIC_USEC=")
        supervisor.wait_for("READY=1")
        restart(unix_connection(path))
        supervisor.wait_for("READY=1")
        wire = ready(node)
        # DEBUG RESTART only keeps the supervisor's socket.
        wire.send("DEBUG", "RESTART")
        assert wire.closed()
        supervisor.wait_for("READY=1")
        assert ready(node)("PING") == b"PONG"
        unix_connection(path).close()
        assert node.stop() == 0
        assert not path.exists()
        socket.create_connection(listener.getsockname()).close()  # still listening
    finally:
        supervisor.close()
        listener.close()


def test_a_node_in_the_background_stays_the_same_process(tmp_path: Path) -> None:
    port = free_port()
    pidfile = tmp_path / "disque.pid"
    options = f"--port {port} --bind 127.0.0.1 --daemonize yes --pidfile {pidfile} --logfile log"
    run_command("disque-server", *options.split(), cwd=tmp_path, check=True)

    number = int(pidfile.read_text())
    try:
        wire = Wire(socket.create_connection(("127.0.0.1", port), HANG_SECONDS))
        wire("ADDJOB", "q", "body", 0)
        restart(wire)
        wire.close()
        wire = Wire(socket.create_connection(("127.0.0.1", port), HANG_SECONDS))
        wait_until(lambda: wire("QLEN", "q") == 1)
        wire.close()
        assert int(pidfile.read_text()) == number
    finally:
        os.kill(number, signal.SIGTERM)
    wait_until(lambda: not pidfile.exists())


@pytest.mark.pure
@both
def test_under_load_nothing_confirmed_is_lost_and_nothing_at_most_once_comes_twice(
    disque_server: NodeFactory, options: tuple[str, ...]
) -> None:
    node = disque_server(*options)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    stop = threading.Event()
    confirmed: set[bytes] = set()
    delivered: list[bytes] = []
    once: list[bytes] = []
    refused: list[BaseException] = []

    def call(wire: Wire | None, *args: bytes | str | int) -> tuple[Wire | None, object]:
        """Send one request; return the connection and the reply, or None for both if it broke."""
        try:
            wire = wire or node.wire()
        except OSError as failure:
            refused.append(failure)
            stop.set()
            return None, None
        try:
            return wire, wire(*args)
        except (EOFError, OSError):
            wire.close()
            return None, None

    def produce(number: int) -> None:
        dice = random.Random(seed + number)
        wire: Wire | None = None
        while not stop.is_set():
            retry = dice.choice((0, 1))
            queue = "often" if retry else "once"
            wire, reply = call(wire, "ADDJOB", queue, "x" * dice.randrange(200), 0, "RETRY", retry)
            if isinstance(reply, bytes) and retry:
                confirmed.add(reply)

    def consume() -> None:
        wire: Wire | None = None
        while not stop.is_set():
            wire, reply = call(wire, "GETJOB", "TIMEOUT", 50, "COUNT", 5, "FROM", "often", "once")
            for queue, id, _ in reply if isinstance(reply, list) else []:
                (once if queue == b"once" else delivered).append(id)
                wire, _ = call(wire, "ACKJOB", id)

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(2)]
    threads += [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            goal = len(confirmed) + 100
            wait_until(lambda goal=goal: len(confirmed) > goal or stop.is_set())
            restart(ready(node))
        goal = len(confirmed) + 100
        wait_until(lambda: len(confirmed) > goal or stop.is_set())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not refused
    wire = ready(node)
    deadline = time.monotonic() + HANG_SECONDS
    while not confirmed <= set(delivered) and time.monotonic() < deadline:
        for id in ids_of(wire("GETJOB", "TIMEOUT", 100, "COUNT", 100, "FROM", "often")):
            delivered.append(id)
            wire("ACKJOB", id)
    once += ids_of(wire("GETJOB", "NOHANG", "COUNT", 100_000, "FROM", "once"))
    assert confirmed <= set(delivered)
    assert once
    assert len(once) == len(set(once))
