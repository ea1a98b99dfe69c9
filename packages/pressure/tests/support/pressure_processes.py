"""The command ``pressure`` in separate processes, and plain commands to its Redis."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import TextIO
from unittest import mock

from disque_pressure.cli import main
from tests.support import PYTHONPATH
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS, Wire, wait_until

COMMAND = [sys.executable, "-m", "disque_pressure.__main__"]  # for a shell


class Redis:
    """Direct access to a Redis for tests.

    Attributes:
        port: its TCP port. prefix: of the keys of this test. wire: a connection to it.
    """

    def __init__(self, port: int, prefix: str, wire: Wire) -> None:
        self.port = port
        self.prefix = prefix
        self.wire = wire

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command that uses it."""
        return {
            **os.environ,
            "REDIS_PORT": str(self.port),
            "PRESSURE_PREFIX": self.prefix,
            "PYTHONPATH": PYTHONPATH,
        }

    def key(self, queue: str, suffix: str = "") -> str:
        """A key of a queue."""
        return f"{self.prefix}:{queue}{suffix}"

    def keys(self) -> object:
        """All keys of this test."""
        return self.wire("KEYS", f"{self.prefix}*")

    def ask(self, *words: str | int | bytes) -> object:
        """The reply to a command."""
        return self.wire(*words)

    def elements(self, queue: str) -> object:
        """The elements of a queue, oldest first."""
        found = self.wire("LRANGE", self.key(queue), 0, -1)
        assert isinstance(found, list)
        return found[::-1]

    def free(self, queue: str, role: str) -> bool:
        """Whether nobody holds a role."""
        return self.wire("LLEN", self.key(queue, f":{role}_free")) == 1

    def take_as_foreigner(self, queue: str, role: str, name: str) -> None:
        """Take a role like a different client, and die."""
        assert self.wire("RPOP", self.key(queue, f":{role}_free")) is not None
        self.wire("SET", self.key(queue, f":{role}"), name)


class Running:
    """A running command with pipes to and from it."""

    def __init__(self, redis: Redis, *arguments: str) -> None:
        self.process = start_command(
            "pressure",
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=redis.environment,
        )

    def send(self, data: bytes) -> None:
        """Write to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self) -> bytes:
        """Read a line of its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal; returns the exit status."""
        self.process.send_signal(number)
        return self.end()[0]

    def end(self) -> tuple[int, bytes, bytes]:
        """Wait for its end: status, and the rest of its output."""
        output, errors = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, output, errors

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def close(self) -> None:
        """Clean up."""
        self.process.kill()
        self.process.communicate()


def pressure(redis: Redis, *arguments: str, data: bytes = b"") -> tuple[int, bytes, str]:
    """Run a command to its end: exit status, output, standard error.

    It runs in this process, in a tenth of the time, with files as its standard streams.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(data)
        files[0].seek(0)
        for descriptor, file in enumerate(files):
            stack.callback(_restore, descriptor, os.dup(descriptor))
            os.dup2(file.fileno(), descriptor)
        stack.enter_context(redirect_stdout(stack.enter_context(_text(1))))
        stack.enter_context(redirect_stderr(stack.enter_context(_text(2))))
        stack.enter_context(mock.patch.dict(os.environ, redis.environment))
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = int(str(ended.code))
        sys.stdout.flush()
        sys.stderr.flush()
        found = []
        for file in files[1:]:
            file.seek(0)
            found.append(file.read())
    return status, found[0], found[1].decode()


def _text(descriptor: int) -> TextIO:
    return os.fdopen(descriptor, "w", closefd=False)


def _restore(descriptor: int, saved: int) -> None:
    os.dup2(saved, descriptor)
    os.close(saved)


def create(redis: Redis, queue: str, bound: int = 0) -> None:
    """Create a queue, faster than with a command."""
    key = redis.key(queue)
    redis.ask("SET", f"{key}:bound", bound)
    for token in ("producer_free", "consumer_free", "not_full"):
        redis.ask("LPUSH", f"{key}:{token}", 1)


def wait_for_length(redis: Redis, queue: str, length: int) -> None:
    """Wait until a queue has ``length`` elements."""
    wait_until(lambda: redis.ask("LLEN", redis.key(queue)) == length)
