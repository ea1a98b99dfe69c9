"""Real nodes in processes of their own, and raw connections to them."""

import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import hiredis
import pytest

START_SECONDS = 20.0


def free_port() -> int:
    """A TCP port nobody listens on, below the range of outgoing connections."""
    for _ in range(200):
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
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
        self.sock.settimeout(20)
        self._reader = hiredis.Reader()

    def send(self, *args: bytes | str | int) -> None:
        """Send one request."""
        words = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self.sock.sendall(b"".join(parts))

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
    """A node in a process of its own."""

    host = "127.0.0.1"

    def __init__(self, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.port = port
        self.process = process
        self.log = log
        self._wires: list[Wire] = []

    def wire(self) -> Wire:
        """A new connection."""
        wire = Wire(socket.create_connection((self.host, self.port), timeout=20))
        self._wires.append(wire)
        return wire

    def info(self, section: str) -> dict[str, str]:
        """The fields of a section of INFO."""
        wire = self.wire()
        text = wire("INFO", section)
        wire.close()
        assert isinstance(text, bytes)
        return dict(re.findall(r"^(\w+):(.*?)\r?$", text.decode(), re.MULTILINE))

    def stop(self) -> int:
        """End it in good order (SIGTERM); returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.process.kill()
        self.process.wait(15)

    def close(self) -> None:
        """Leave nothing behind."""
        for wire in self._wires:
            wire.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(15)


NodeFactory = Callable[..., LiveNode]


def wait_for_ping(node: LiveNode) -> bool:
    """Whether ``node`` answers; False when its process ended or it takes too long."""
    deadline = time.monotonic() + START_SECONDS
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
    node.process.wait(5)
    return False
