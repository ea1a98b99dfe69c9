"""Shared by the live and the interop tests: shared nodes, and ways to talk to them.

``shared_node`` and ``talk`` are fixtures; the conftest of a folder imports them.
"""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import run_command, start_command
from tests.support.harness import HANG_SECONDS, LiveNode, Wire, free_port, trusting, wait_for_ping

QUIT = b"*1\r\n$4\r\nQUIT\r\n"
JOB_ID = rb"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}"
ANY_ID = "D-00000000-" + "0" * 24 + "-05a1"


def spawn(arguments: list[str], port: int, directory: Path) -> LiveNode:
    """Start a server process with its output in a file, without waiting for it."""
    log = directory / f"node-{port}.log"
    with log.open("wb") as output:
        process = start_command(
            "disque-server", *trusting(arguments), cwd=directory, stdout=output, stderr=output
        )
    return LiveNode(port, process, log)


def start_node(directory: Path, *options: str, file: str | None = None) -> LiveNode:
    """Start a node on a free port of 127.0.0.1 and wait until it answers."""
    for _ in range(5):
        port = free_port()
        arguments = [] if file is None else [file]
        arguments += ["--port", str(port), "--bind", "127.0.0.1", *options]
        node = spawn(arguments, port, directory)
        if wait_for_ping(node):
            return node
    raise RuntimeError(f"the node did not start: {node.log.read_text()}")


def stop(node: LiveNode) -> None:
    """End it as systemd does."""
    assert node.stop() == 0


def kill(node: LiveNode) -> None:
    """Kill it (SIGKILL)."""
    node.kill()


def restart(node: LiveNode) -> None:
    """Have it start again by itself."""
    wire = node.wire()
    wire.send("RESTART")
    assert wire.closed()


def run_server(
    *arguments: str, text: str = "", cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run ``disque-server`` to its end, for calls that do not start a node."""
    return run_command("disque-server", *arguments, input=text, text=True, cwd=cwd)


@pytest.fixture(scope="session")
def session_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    """One node for all tests that do not change it permanently."""
    node = start_node(tmp_path_factory.mktemp("shared"))
    yield node
    node.close()


@pytest.fixture
def shared_node(session_node: LiveNode) -> Iterator[LiveNode]:
    """The session's node without jobs and queues, for tests that do not change settings. Detects a
    test that ends it."""
    wire = session_node.wire()
    assert wire("DEBUG", "FLUSHALL") == b"OK"
    yield session_node
    for used in session_node._wires:
        used.close()
    session_node._wires.clear()
    assert session_node.process.poll() is None, session_node.log.read_text()


@pytest.fixture
def talk(shared_node: LiveNode) -> Wire:
    """A connection to ``shared_node``."""
    return shared_node.wire()


def exchange(node: LiveNode, *requests: bytes) -> bytes:
    """Send bytes and then QUIT on a new connection; returns everything received before the OK."""
    with socket.create_connection((node.host, node.port), timeout=HANG_SECONDS) as sock:
        sock.sendall(b"".join(requests) + QUIT)
        answer = receive_all(sock)
    assert answer.endswith(b"+OK\r\n"), answer
    return answer[: -len(b"+OK\r\n")]


def receive_all(sock: socket.socket) -> bytes:
    """Everything until the other end closes."""
    parts: list[bytes] = []
    while True:
        try:
            data = sock.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            return b"".join(parts)
        parts.append(data)


def packed(*words: bytes | str | int) -> bytes:
    """An encoded request."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def add_job(wire: Wire, queue: str = "q", body: bytes | str = b"body", *options: str | int) -> str:
    """ADDJOB; returns the id."""
    id = wire("ADDJOB", queue, body, 0, *options)
    assert isinstance(id, bytes), id
    assert re.fullmatch(JOB_ID, id), id
    return id.decode()


def pairs(flat: object) -> dict[str, object]:
    """Alternating names and values, as a dict."""
    assert isinstance(flat, list)
    return {key.decode(): value for key, value in zip(flat[::2], flat[1::2], strict=True)}


def info_value(node: LiveNode, section: str, field: str) -> int:
    """A number in INFO."""
    return int(node.info(section)[field])


def unix_connection(path: Path) -> Wire:
    """A connection to a Unix socket.

    Raises:
        OSError: nobody listens there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(HANG_SECONDS)
    try:
        sock.connect(os.fspath(path))
    except OSError:
        sock.close()
        raise
    return Wire(sock)


def client_lines(wire: Wire) -> list[dict[str, str]]:
    """CLIENT LIST, with a dict for each client."""
    text = wire("CLIENT", "LIST")
    assert isinstance(text, bytes)
    return [
        dict(field.split("=", 1) for field in line.split(" "))
        for line in text.decode().splitlines()
    ]
