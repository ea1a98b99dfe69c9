"""How long a node serves nobody, seen from outside with PINGs, and from inside its loop."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tools.bench.load import PING, ask, dial
from tools.bench.workers import Worker, worker

WATCH = Path(__file__).with_name("watch")
FIELDS = 5
"""The longest iteration of the loop in wall and CPU time, the longest garbage collection in CPU
time, all in ns; the number of collections, and of objects that they freed."""
EVERY_SECONDS = 0.0005
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Stops:
    """The observations in one step. Times are in ms: ``gap`` is the longest wait of a PING,
    ``wall`` and ``cpu`` the longest iteration of the node's loop, ``collector`` its longest
    collection."""

    gap: float
    wall: float
    cpu: float
    collector: float
    collections: int
    freed: int


class Watch:
    """Reads the results of the watcher inside one server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(8 * FIELDS))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._figures = memoryview(self._map).cast("q")

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """``command`` with the watcher enabled."""
        path = os.pathsep.join(filter(None, (str(WATCH), os.environ.get("PYTHONPATH"))))
        return ("env", f"PYTHONPATH={path}", f"WATCH_FILE={self._path}", *command)

    def reset(self) -> None:
        """Start again."""
        for index in range(FIELDS):
            self._figures[index] = 0

    def read(self, gap: float = 0.0) -> Stops:
        """The observations since the last reset; ``gap`` (ms) comes from outside."""
        wall, cpu, collector, collections, freed = self._figures.tolist()
        return Stops(gap, wall / MS, cpu / MS, collector / MS, collections, freed)

    def close(self) -> None:
        """Close the file."""
        self._figures.release()
        self._map.close()


@contextmanager
def watches(count: int) -> Iterator[list[Watch]]:
    """Watches for ``count`` servers."""
    with tempfile.TemporaryDirectory(prefix="bench-watch-") as directory, ExitStack() as stack:
        found = [Watch(Path(directory, f"node-{number}")) for number in range(count)]
        for watch in found:
            stack.callback(watch.close)
        yield found


def pinger(port: int) -> AbstractContextManager[Worker]:
    """Sends PINGs to the server at ``port`` until the block ends; ``ask`` returns the longest wait
    since the last call (ms). It runs in its own process, because the one that fills the server is
    busy.
    """
    return worker("what PINGs", _ping, port)


def _ping(pipe: Connection, port: int) -> None:
    worst = 0.0
    with dial(port) as sock:
        sock.settimeout(600.0)
        while True:
            began = time.perf_counter()
            ask(sock, PING[0])
            worst = max(worst, time.perf_counter() - began)
            if pipe.poll():
                pipe.recv()
                pipe.send(worst * 1000)
                worst = 0.0
            time.sleep(EVERY_SECONDS)
