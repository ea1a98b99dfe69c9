"""bananaq processes, and the Redis servers that keep their events."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import hiredis

from disque_trio.resp.command import encode_command
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS, LiveNode, Wire, free_port, wait_until
from tests.support.redis_server import RedisServer, plain_client

STATS = ("total", "inprogress", "redo", "done", "available", "consumers")


class Daemon(LiveNode):
    """A running bananaq.

    Attributes:
        options: of its command line, besides address and directory.
        kind: of its store.
    """

    def __init__(
        self,
        port: int,
        process: "subprocess.Popen[bytes]",
        log: Path,
        options: Sequence[str],
        kind: str,
    ) -> None:
        super().__init__(port, process, log)
        self.options = list(options)
        self.kind = kind

    def answers(self) -> bool:
        """Whether it answers PONG. Its port is reserved, so nobody else listens there."""
        try:
            return self.ask("PING") == b"PONG"
        except (OSError, EOFError):
            return False

    def ready(self, seconds: float = HANG_SECONDS) -> bool:
        """Wait until it serves; returns False if it ended instead."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            if self.answers():
                return True
            time.sleep(0.01)
        return False

    def resp3(self) -> Wire:
        """A new RESP3 connection."""
        wire = self.wire()
        wire("HELLO", "3")
        return wire

    def hang_up(self) -> None:
        """Close all connections made with ``wire``."""
        for wire in self._wires:
            wire.close()
        self._wires.clear()

    def restart(self, *more: str, wait: bool = True) -> None:
        """Restart it with the same address and directory, after it has ended."""
        assert self.process.poll() is not None
        self.hang_up()
        again = spawn(self.directory, self.port, [*self.options, *more], self.kind)
        self.process = again.process
        if wait:
            assert self.ready(), self.log.read_text()

    def status(self, queue: bytes | str, group: bytes | str) -> dict[str, int]:
        """The counts of a group of a queue."""
        found = self.ask("QSTATUS", queue, "GROUPS", group)
        return stats_of(found)


def stats_of(status: object, queue: int = 0, group: int = 0) -> dict[str, int]:
    """The counts of one group of one queue in a reply to QSTATUS."""
    assert isinstance(status, list)
    flat = status[queue][1][2 * group + 1]
    names = [name.decode() if isinstance(name, bytes) else name for name in flat[::2]]
    return dict(zip(names, flat[1::2], strict=True))


def spawn(
    directory: Path,
    port: int,
    options: Sequence[str],
    kind: str = "embedded",
    env: Mapping[str, str] | None = None,
) -> Daemon:
    """Start a daemon in ``directory`` without waiting for it; its output goes to a file there."""
    log = directory / "bananaq.log"
    arguments = ["--listen-addr", f"127.0.0.1:{port}", "--dir", str(directory), *options]
    environ = {**os.environ, **(env or {})}
    with log.open("ab") as output:
        process = start_command(
            "bananaq", *arguments, cwd=directory, stdout=output, stderr=output, env=environ
        )
    return Daemon(port, process, log, options, kind)


def launch(directory: Path, *options: str, kind: str = "embedded") -> Daemon:
    """Start a daemon in ``directory`` on a free port, and wait until it serves."""
    directory.mkdir(exist_ok=True)
    for _ in range(5):
        daemon = spawn(directory, free_port(), options, kind)
        if daemon.ready():
            return daemon
        daemon.close()
        if "in use" not in daemon.log.read_text():
            break
    raise RuntimeError(f"bananaq did not start: {daemon.log.read_text()}")


def refused(directory: Path, *options: str) -> tuple[int, str]:
    """Start a daemon that cannot start; returns its exit status and output."""
    daemon = spawn(directory, free_port(), options)
    try:
        status = daemon.process.wait(HANG_SECONDS)
    finally:
        daemon.close()
    return status, daemon.log.read_text()


def redis_options(server: RedisServer, prefix: str) -> list[str]:
    """The options for keeping events in ``server``."""
    address = f"127.0.0.1:{server.port}"
    return ["--store", "redis", "--redis-addr", address, "--redis-prefix", prefix]


class RedisCluster:
    """Three Redis nodes that share the slots, with files in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.servers: list[RedisServer] = []
        for n in range(3):
            (directory / f"redis-{n}").mkdir()
            self.servers.append(RedisServer(directory / f"redis-{n}", "--cluster-enabled", "yes"))

    def start(self) -> None:
        """Start the nodes, and wait until all slots are served."""
        for server in self.servers:
            server.start()
        first = self.servers[0]
        for n, server in enumerate(self.servers):
            with plain_client(server.port) as client:
                begin, end = 16384 * n // 3, 16384 * (n + 1) // 3 - 1
                client.execute_command("CLUSTER ADDSLOTSRANGE", begin, end)
                if n:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", first.port)
        for server in self.servers:
            wait_until(lambda server=server: self._serves(server))

    def _serves(self, server: RedisServer) -> bool:
        with plain_client(server.port) as client:
            info = client.execute_command("CLUSTER INFO")
            text = info.decode() if isinstance(info, bytes) else str(info)
            rows = client.execute_command("CLUSTER NODES")
            ok = "cluster_state:ok" in text or "'cluster_state': 'ok'" in text
            return ok and len(rows if isinstance(rows, dict) else rows.splitlines()) == 3

    def keys(self) -> list[int]:
        """The number of keys on each node."""
        sizes = []
        for server in self.servers:
            with plain_client(server.port) as client:
                sizes.append(int(client.dbsize()))
        return sizes

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


class Given:
    """An event in a reply: ``id`` and ``body``; the parts of the id are ``added`` and ``ends`` (µs
    since the epoch), and ``delivery``."""

    def __init__(self, reply: object) -> None:
        assert isinstance(reply, list), reply
        self.id: bytes = reply[0]
        self.body: bytes = reply[1]
        assert len(reply) == 2
        parts = [int(part) for part in self.id.split(b"_")]
        self.added = parts[0]
        self.ends = parts[1]
        self.delivery = parts[2] if len(parts) == 3 else 1

    @property
    def base(self) -> bytes:
        """The id without the delivery number."""
        return b"%d_%d" % (self.added, self.ends)


def pipeline(wire: Wire, requests: Sequence[Sequence[bytes | str | int]]) -> list[object]:
    """Send all requests at once and return their replies."""
    wire.raw(b"".join(pack(*request) for request in requests))
    return [wire.read() for _ in requests]


def pack(*args: bytes | str | int) -> bytes:
    """An encoded request."""
    return encode_command(args)


def drain(wire: Wire, queue: bytes | str, group: bytes | str) -> Iterator[Given]:
    """Take and acknowledge all events available to a group."""
    while True:
        replies = pipeline(wire, [("QGET", queue, group, "EX", 0)] * 50)
        for reply in replies:
            assert not isinstance(reply, hiredis.ReplyError), reply
            if reply is None:
                return
            yield Given(reply)


def now_us() -> int:
    """µs since the epoch."""
    return time.time_ns() // 1000


def waiting(daemon: LiveNode) -> int:
    """The number of clients waiting in the daemon."""
    return int(daemon.info("clients")["blocked_clients"])
