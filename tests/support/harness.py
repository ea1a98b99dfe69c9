"""Real nodes in processes of their own, and raw connections to them."""

import fcntl
import os
import random
import re
import signal
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import hiredis
import pytest

from disque_trio.resp.command import encode_command
from tests.support.fork_server import NODE, Process, start_server

HANG_SECONDS = 60.0  # a limit that only bounds a hang; machines are busy
BUS_OFFSET = 10_000
PORTS = range(10_000, 20_000)
SLICES = 20
_given: deque[int] = deque(maxlen=100)  # by free_port


@cache
def _own_ports() -> range:
    """Ports that no other process of tests on this machine takes meanwhile: between the look
    whether a port is free and the start of a node that listens on it another one could come. The
    lock is kept as long as this process lives."""
    size = len(PORTS) // SLICES
    for number in range(SLICES):
        path = Path(tempfile.gettempdir(), f"disque-trio-ports-{number}-{os.getuid()}.lock")
        lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return PORTS[number * size : (number + 1) * size]
    return PORTS


def free_port() -> int:
    """A TCP port for clients that nobody listens on, and neither on that of the bus that goes with
    it; both are below the range of outgoing connections. No port comes twice within the last few:
    nobody may listen yet on that which was given just now."""
    for _ in range(200):
        port = random.choice(_own_ports())
        if port in _given:
            continue
        with socket.socket() as probe, socket.socket() as bus_probe:
            try:
                probe.bind(("127.0.0.1", port))
                bus_probe.bind(("127.0.0.1", port + BUS_OFFSET))
            except OSError:
                continue
            _given.append(port)
            return port
    raise RuntimeError("no free port")


def wait_until(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    """Wait until ``condition()`` is true; fails the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {condition}")
        time.sleep(0.005)


class Wire:
    """A plain connection that shows replies as hiredis reads them; errors are values."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(HANG_SECONDS)
        self._reader = hiredis.Reader()

    def send(self, *args: bytes | str | int) -> None:
        """Send one request."""
        self.sock.sendall(encode_command(args))

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def read(self) -> object:
        """The next reply. Raises EOFError when the node closed the connection."""
        while True:
            reply = self._reader.gets()
            if reply is not False:
                return reply
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError("the node closed the connection")
            self._reader.feed(data)

    def __call__(self, *args: bytes | str | int) -> object:
        """Send a request and return its reply."""
        self.send(*args)
        return self.read()

    def error(self, *args: bytes | str | int) -> str:
        """Send a request that has to fail and return the error's text."""
        reply = self(*args)
        assert isinstance(reply, hiredis.ReplyError), reply
        return str(reply)

    def closed(self) -> bool:
        """Wait for the node to close the connection; replies before that are dropped."""
        try:
            while True:
                self.read()
        except EOFError:
            return True

    def close(self) -> None:
        self.sock.close()


class LiveNode:
    """A node in a process of its own.

    Attributes:
        port: for clients. directory: where it works. log: the file that has its output.
    """

    host = "127.0.0.1"

    def __init__(self, port: int, process: Process, log: Path) -> None:
        self.port = port
        self.process = process
        self.log = log
        self.directory = log.parent
        self._wires: list[Wire] = []

    def wire(self) -> Wire:
        """A new connection."""
        wire = Wire(socket.create_connection((self.host, self.port), timeout=HANG_SECONDS))
        self._wires.append(wire)
        return wire

    def info(self, section: str) -> dict[str, str]:
        """The fields of a section of INFO."""
        wire = self.wire()
        text = wire("INFO", section)
        wire.close()
        assert isinstance(text, bytes)
        return dict(re.findall(r"^(\w+):(.*?)\r?$", text.decode(), re.MULTILINE))

    def ask(self, *args: bytes | str | int) -> object:
        """The reply to one request, over a connection of its own."""
        wire = self.wire()
        try:
            return wire(*args)
        finally:
            wire.close()
            self._wires.remove(wire)

    def cluster_nodes(self) -> list[list[str]]:
        """The words of each line of CLUSTER NODES: id, address, flags, two times, link."""
        text = self.ask("CLUSTER", "NODES")
        assert isinstance(text, bytes)
        return [line.split() for line in text.decode().splitlines()]

    def sees(self, count: int) -> bool:
        """Whether it is connected to all others in a cluster of ``count`` nodes, all of them
        well."""
        lines = self.cluster_nodes()
        return len(lines) == count and all(
            words[5] == "connected" and words[2] in ("myself", "noflags") for words in lines
        )

    def stop(self) -> int:
        """End it in good order (SIGTERM); returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_SECONDS)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.process.kill()
        self.process.wait(HANG_SECONDS)

    def close(self) -> None:
        """Leave nothing behind."""
        for wire in self._wires:
            wire.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANG_SECONDS)


# What tests do with nodes, and no client of a node of default settings may.
TRUSTING = ("--enable-debug-command", "local", "--enable-protected-configs", "local")


def trusting(arguments: Sequence[str]) -> list[str]:
    """``arguments`` for a node, with which clients of this machine may use DEBUG and set
    everything, unless these say otherwise."""
    file = [*arguments[:1]] if arguments and not arguments[0].startswith("--") else []
    return [*file, *TRUSTING, *arguments[len(file) :]]


NodeFactory = Callable[..., LiveNode]
ClusterFactory = Callable[..., list[LiveNode]]


def start_process(directory: Path, port: int, *arguments: str) -> LiveNode:
    """Start a node in ``directory`` without waiting for it; its output goes to a file there."""
    log = directory / f"node-{port}.log"
    with log.open("wb") as output:
        process = start_server(NODE, trusting(arguments), directory, output.fileno())
    return LiveNode(port, process, log)


def join(nodes: list[LiveNode], seconds: float = HANG_SECONDS) -> None:
    """Make one cluster of ``nodes``, and wait until each is connected to each."""

    def knows(node: LiveNode, other: LiveNode) -> bool:
        return any(words[1] == f"{other.host}:{other.port}" for words in node.cluster_nodes())

    def joined(node: LiveNode) -> bool:
        # A node that has no time for so long that a handshake is given up is met once more, be it
        # that it does not know the first one, or the first one does not know it.
        for other in nodes[1:]:
            if not (knows(nodes[0], other) and knows(other, nodes[0])):
                assert nodes[0].ask("CLUSTER", "MEET", other.host, other.port) == b"OK"
        return node.sees(len(nodes))

    for node in nodes:
        wait_until(partial(joined, node), seconds)


def wait_for_ping(node: LiveNode) -> bool:
    """Whether ``node`` answers; False when its process ended or it takes too long."""
    deadline = time.monotonic() + HANG_SECONDS
    while node.process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection((node.host, node.port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                if probe.recv(1) in (b"+", b"-"):
                    return True
        except OSError:
            time.sleep(0.01)
    if node.process.poll() is None:
        node.process.kill()
    node.process.wait(HANG_SECONDS)
    return False
