"""How long a node does not serve anybody: seen from outside by PINGs, and from inside its loop.

python -m tools.bench.stops PORT     # the client that PINGs; used by the classes here
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.bench.load import PING, ask

WATCH = Path(__file__).with_name("watch")
FIELDS = 5
"""Longest stretch of the loop by the clock and in CPU time, longest collection in CPU time, all in
ns; then how many collections there were, and how many objects they freed."""
EVERY_SECONDS = 0.0005
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Stops:
    """What was seen in one step. Times in ms: ``gap`` is the longest that a PING waited, ``wall``
    and ``cpu`` the longest stretch of the node's loop, ``collector`` its longest collection."""

    gap: float
    wall: float
    cpu: float
    collector: float
    collections: int
    freed: int


class Watch:
    """What the watcher inside of one server says."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(8 * FIELDS))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._figures = memoryview(self._map).cast("q")

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """``command`` with the watcher in it."""
        path = os.pathsep.join(filter(None, (str(WATCH), os.environ.get("PYTHONPATH"))))
        return ("env", f"PYTHONPATH={path}", f"WATCH_FILE={self._path}", *command)

    def reset(self) -> None:
        """Begin anew."""
        for index in range(FIELDS):
            self._figures[index] = 0

    def read(self, gap: float = 0.0) -> Stops:
        """What was seen since the last reset; ``gap`` (ms) is what was seen from outside."""
        wall, cpu, collector, collections, freed = self._figures.tolist()
        return Stops(gap, wall / MS, cpu / MS, collector / MS, collections, freed)

    def close(self) -> None:
        """Let go of the file."""
        self._figures.release()
        self._map.close()


@contextmanager
def watches(count: int) -> Iterator[list[Watch]]:
    """Watches for so many servers."""
    with tempfile.TemporaryDirectory(prefix="bench-watch-") as directory:
        found = [Watch(Path(directory, f"node-{number}")) for number in range(count)]
        try:
            yield found
        finally:
            for watch in found:
                watch.close()


class Pinger:
    """A process that PINGs a server all the time. It has a process of its own, since what fills
    the server is busy itself."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def longest(self) -> float:
        """The longest that a PING waited since the last call, ms."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"\n")
        stdin.flush()
        return float(json.loads(stdout.readline()))


@contextmanager
def pinger(port: int) -> Iterator[Pinger]:
    """PINGs the server at ``port`` until the block ends."""
    command = [sys.executable, "-m", "tools.bench.stops", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            running = Pinger(process)
            running.longest()  # it is connected
            yield running
        finally:
            process.kill()


def _ping(port: int) -> None:
    os.set_blocking(0, False)
    worst = 0.0
    with socket.create_connection(("127.0.0.1", port), 600.0) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            began = time.perf_counter()
            ask(sock, PING)
            worst = max(worst, time.perf_counter() - began)
            with contextlib.suppress(BlockingIOError):
                asked = os.read(0, 100)
                if not asked:
                    return
                print(json.dumps(worst * 1000), flush=True)
                worst = 0.0
            time.sleep(EVERY_SECONDS)


if __name__ == "__main__":
    _ping(int(sys.argv[1]))
