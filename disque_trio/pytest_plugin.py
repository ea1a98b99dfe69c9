"""pytest fixtures for programs that use a node: ``disque_node`` and ``disque_url``.

pytest finds them if disque-trio is installed. Each test gets its own node, unless pytest's setting
``disque_scope = session`` makes all tests share one.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from disque_trio.respclient.randomness import RANDOM

_PORTS = range(11_000, 22_000)  # their bus ports, 10,000 above, are not given to clients either
_BUS = 10_000
_SECONDS = 30.0
"""Seconds that a node may take to start, and to end."""


@dataclass(frozen=True, slots=True)
class DisqueNode:
    """A node in a process of its own.

    Attributes:
        host, port: where it listens.
        directory: its working directory.
        log: the file with its output.
        process: the process. A test may kill it; it is not restarted.
    """

    host: str
    port: int
    directory: Path
    log: Path
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        """The URL of the node, for ``Disque``."""
        return f"disque://{self.host}:{self.port}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting ``disque_scope``."""
    parser.addini(
        "disque_scope",
        "how long the node of disque_node lives: function or session",
        default="function",
    )


def _scope(fixture_name: str, config: pytest.Config) -> str:
    scope: str = config.getini("disque_scope")
    return scope


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]
def disque_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DisqueNode]:
    """A running node on a free port of this machine. It ends with the test."""
    node = _start(tmp_path_factory.mktemp("disque"))
    yield node
    node.process.terminate()
    try:
        node.process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        node.process.kill()
        node.process.wait()


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]
def disque_url(disque_node: DisqueNode) -> str:
    """The URL of ``disque_node``."""
    return disque_node.url


def _start(directory: Path) -> DisqueNode:
    """Start a node. Raises RuntimeError with the node's output if that fails."""
    log = directory / "node.log"
    for _ in range(5):  # another program may take the port first
        port = _free_port()
        command = [sys.executable, "-m", "disque_trio.server", "--port", str(port)]
        command += ["--bind", "127.0.0.1", "--dir", str(directory)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output)
        node = DisqueNode("127.0.0.1", port, directory, log, process)
        if _answers(node):
            return node
    raise RuntimeError(f"the node did not start: {log.read_text()}")


def _free_port() -> int:
    while True:
        port = RANDOM.choice(_PORTS)
        try:
            for number in (port, port + _BUS):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port


def _answers(node: DisqueNode) -> bool:
    """Wait until the node answers. Returns False if it ended, or took too long and was killed."""
    own = f"process_id:{node.process.pid}\r\n".encode()
    deadline = time.monotonic() + _SECONDS
    while node.process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((node.host, node.port), 1) as probe:
            probe.sendall(b"INFO server\r\n")
            if own in probe.recv(1 << 16):  # and not another program's node
                return True
        time.sleep(0.01)
    node.process.kill()
    node.process.wait()
    return False
