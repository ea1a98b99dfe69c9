"""Real nodes in their own processes, and raw connections to them."""

import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import hiredis
import pytest

from disque_trio.respclient.blocking import BlockingConnection, Reply
from tests.support import HANG_SECONDS
from tests.support.commands import start_command
from tools.ports import BUS_OFFSET, free_port, free_ports

__all__ = ["BUS_OFFSET", "HANG_SECONDS", "free_port", "free_ports"]  # besides what is defined here

DRIVER_SECONDS = 240.0
"""Ends what hangs where a driver of Spark starts. Such tests have longer time-outs of their own."""

_LOOKS = 20  # in the time that something has taken already
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05  # s between two looks


def wait_until(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    """Wait until ``condition()`` is true; fails the test after ``seconds``. Looking keeps servers
    and clients busy, so the longer it takes, the more rarely this looks."""
    start = time.monotonic()
    while not condition():
        waited = time.monotonic() - start
        if waited > seconds:
            pytest.fail(f"not within {seconds} s: {condition}")
        time.sleep(min(max(waited / _LOOKS, _SHORTEST_PAUSE), _LONGEST_PAUSE))


class Wire(BlockingConnection):
    """A plain connection that returns replies as hiredis reads them; errors are values."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.sock.settimeout(HANG_SECONDS)

    def raw(self, data: bytes) -> None:
        """Send raw bytes."""
        self.sock.sendall(data)

    def read(self) -> Reply:
        """The next reply. Raises EOFError if the node closed the connection."""
        try:
            return super().read()
        except ConnectionResetError as error:
            raise EOFError("the node closed the connection") from error

    def __call__(self, *args: bytes | str | int) -> object:
        """Send a request and return its reply."""
        return self.execute(*args)

    def error(self, *args: bytes | str | int) -> str:
        """Send a request that must fail, and return the text of the error."""
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


class LiveNode:
    """A node in its own process.

    Attributes:
        port: for clients. directory: its working directory. log: the file with its output.
    """

    host = "127.0.0.1"

    def __init__(self, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
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
        """The reply to one request, over a new connection."""
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
        """Whether it is connected to all others in a cluster of ``count`` healthy nodes."""
        lines = self.cluster_nodes()
        return len(lines) == count and all(
            words[5] == "connected" and words[2] in ("myself", "noflags") for words in lines
        )

    def stop(self) -> int:
        """End it cleanly (SIGTERM); returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_SECONDS)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.process.kill()
        self.process.wait(HANG_SECONDS)

    def close(self) -> None:
        """Clean up."""
        for wire in self._wires:
            wire.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANG_SECONDS)


# What tests do with nodes, but the default settings forbid.
TRUSTING = ("--enable-debug-command", "local", "--enable-protected-configs", "local")


def trusting(arguments: Sequence[str]) -> list[str]:
    """``arguments`` for a node, extended so that local clients may use DEBUG and change all
    settings, unless they say otherwise."""
    file = [*arguments[:1]] if arguments and not arguments[0].startswith("--") else []
    return [*file, *TRUSTING, *arguments[len(file) :]]


NodeFactory = Callable[..., LiveNode]
ClusterFactory = Callable[..., list[LiveNode]]


def start_process(directory: Path, port: int, *arguments: str) -> LiveNode:
    """Start a node in ``directory`` without waiting for it; its output goes to a file there."""
    log = directory / f"node-{port}.log"
    with log.open("wb") as output:
        process = start_command(
            "disque-server", *trusting(arguments), cwd=directory, stdout=output, stderr=output
        )
    return LiveNode(port, process, log)


PATIENT: Final = ("--cluster-node-timeout", "60000")
"""Options of the nodes of all clusters of the tests: none seems dead while it is only starved."""


def notice_deaths(nodes: Iterable[LiveNode]) -> None:
    """Let ``nodes``, which are patient, soon find out which others are dead. Their verdicts may be
    wrong until ``be_patient``."""
    for node in nodes:
        assert node.ask("CONFIG", "SET", "cluster-node-timeout", 2_000) == b"OK"


def be_patient(nodes: Iterable[LiveNode]) -> None:
    """End ``notice_deaths``."""
    for node in nodes:
        assert node.ask("CONFIG", "SET", "cluster-node-timeout", PATIENT[1]) == b"OK"


def join(nodes: list[LiveNode], seconds: float = HANG_SECONDS) -> None:
    """Make one cluster of ``nodes``, and wait until each is connected to each."""

    def knows(node: LiveNode, other: LiveNode) -> bool:
        return any(words[1] == f"{other.host}:{other.port}" for words in node.cluster_nodes())

    def joined(node: LiveNode) -> bool:
        # If a busy node lets a handshake time out, so that either node does not know the other,
        # meet it again.
        for other in nodes[1:]:
            if not (knows(nodes[0], other) and knows(other, nodes[0])):
                assert nodes[0].ask("CLUSTER", "MEET", other.host, other.port) == b"OK"
        return node.sees(len(nodes))

    for node in nodes:
        wait_until(partial(joined, node), seconds)


def wait_for_ping(node: LiveNode) -> bool:
    """Whether ``node`` answers; False if its process ended or it takes too long."""
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
