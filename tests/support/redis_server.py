"""A real redis-server for tests, and a client that retries nothing."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
import trio
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.harness import HANG_SECONDS, free_port

REDIS_SERVER = os.environ.get("PRESSURE_REDIS_SERVER", "/usr/bin/redis-server")
"""Another server, such as valkey-server, to run the tests on."""


def plain_client(port: int) -> "redis.Redis":
    """A client that does not retry commands."""
    return redis.Redis(
        port=port,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        socket_timeout=HANG_SECONDS,
        protocol=2,
    )


def server_version() -> tuple[int, ...]:
    """The version of the redis-server for the tests."""
    done = subprocess.run([REDIS_SERVER, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"v=(\d+)\.(\d+)", done.stdout)
    assert found is not None
    return tuple(map(int, found.groups()))


class RedisServer:
    """redis-server on a free port, with its files in ``directory``."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.config: Path | None = None

    def start(self) -> None:
        """Start it, on its previous port if there is one."""
        for _ in range(5):
            port = self.port or free_port()
            command = [REDIS_SERVER, *([str(self.config)] if self.config else [])]
            command += ["--port", str(port), "--bind", "127.0.0.1"]
            command += ["--dir", str(self.directory), *self.options]
            if not self.config:
                command += ["--save", ""]
            with (self.directory / "redis.log").open("ab") as log:
                self.process = subprocess.Popen(command, stdout=log, stderr=log)
            if self._answers(port):
                self.port = port
                return
            self.stop()
        raise RuntimeError("redis-server did not start")

    def _answers(self, port: int) -> bool:
        assert self.process is not None
        deadline = time.monotonic() + HANG_SECONDS
        with plain_client(port) as client:
            while self.process.poll() is None and time.monotonic() < deadline:
                try:
                    return bool(client.ping())
                except redis.RedisError:
                    time.sleep(0.01)
        return False

    def stop(self) -> None:
        """Kill it (SIGKILL)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(HANG_SECONDS)


@contextmanager
def hung(server: RedisServer) -> Iterator[None]:
    """Suspend the server during the block."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


async def until(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    """Wait until ``condition()`` is true; it may ask Redis. Fails after ``seconds``."""
    with trio.move_on_after(seconds):
        while not condition():
            await trio.sleep(0.01)
        return
    raise AssertionError(f"not within {seconds} s")


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[str]:
    """The port of a Redis that the test has for itself."""
    server = RedisServer(tmp_path)
    server.start()
    yield str(server.port)
    server.stop()
