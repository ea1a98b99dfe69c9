"""A node, or two, under load and under watch: the processes of one measurement."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from tools.bench.latency.generator import Order, Result, order_text, read_result
from tools.bench.latency.histogram import Histogram
from tools.bench.latency.pauses import Span, Watched, judge
from tools.bench.load import Exchange, Script, connections, run
from tools.bench.servers import GENERATOR_CPUS, SERVER_CPUS, Server, ServerError
from tools.bench.workloads import Disque, encode

ROOT = Path(__file__).resolve().parents[3]
HELD = b"held"
PIPELINE = 64  # while jobs are added that are just to be there
LONGEST_WAIT = 120.0


class Times(TypedDict):
    """A histogram as it is printed."""

    counts: dict[str, int]
    worst: float


class Seen(TypedDict):
    """What the process that watches a node prints."""

    times: Times
    short: float
    pauses: list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run found: the load, what the watchers saw, and the CPU time of the nodes (s)."""

    order: Order
    load: Result
    watched: Watched
    cpu: float


class Stage:
    """Running nodes: ``adds`` is the one that jobs are added to, ``takes`` that where they are
    taken, maybe the same."""

    def __init__(self, adds: Server, takes: Server, clients: int, size: int, seed: int) -> None:
        self.adds = adds
        self.takes = takes
        self._clients = clients
        self._size = size
        self._seed = seed

    def peak(self, seconds: float) -> float:
        """Cycles a second when each client begins the next as soon as it can."""
        with self._load(self._order(0, seconds)) as process:
            return self._result(process).rate

    def measure(self, rate: float, seconds: float) -> Measurement:
        """Offers ``rate`` cycles a second."""
        order = self._order(rate, seconds)
        with self.measuring(order) as found:
            pass
        return found[0]

    @contextmanager
    def measuring(self, order: Order) -> Iterator[list[Measurement]]:
        """Load as ``order`` says while the block does its part; the end of the block waits for
        the load's. The list has the measurement then."""
        found: list[Measurement] = []
        with self._watchers() as (nodes, machine):
            before = self._cpu()
            with self._load(order) as process:
                yield found
                load = self._result(process)
            cpu = self._cpu() - before
            stalls: list[Span] = json.loads(_ended(machine))["stalls"]
            watched = [_watched(json.loads(_ended(node)), stalls) for node in nodes]
        # Of two nodes the one that was away for longer.
        worst = max(watched, key=lambda one: one.longest_own)
        found.append(Measurement(order, load, worst, cpu))

    def order(self, rate: float, seconds: float) -> Order:
        """The load at ``rate``."""
        return self._order(rate, seconds)

    def fill(self, jobs: int, until: float = 0.0) -> float:
        """Adds ``jobs`` jobs to a queue of their own. With ``until`` they all expire then (s since
        the epoch), and are not queued again before. Returns how long that took, s."""
        shape = Disque(self._size).added
        body = b"y" * self._size

        def batches() -> Script:
            for start in range(0, jobs, PIPELINE):
                count = min(PIPELINE, jobs - start)
                words = [b"ADDJOB", HELD, body, b"0"]
                if until:
                    left = max(1, int(until) - int(time.time()))
                    words += [b"RETRY", b"%d" % (left + 3600), b"TTL", b"%d" % left]
                yield Exchange(encode(*words) * count, shape, count)

        with connections(self.adds.port, 1) as socks:
            return run(socks, [batches()]).seconds

    def ask(self, *words: bytes) -> bytes:
        """One command on a connection of its own; the reply as it comes, but for errors."""
        with socket.create_connection(("127.0.0.1", self.adds.port), LONGEST_WAIT) as sock:
            sock.sendall(encode(*words))
            reply = sock.recv(1 << 16)
            head, _, rest = reply.partition(b"\r\n")
            while head.startswith(b"$") and len(rest) < int(head[1:]):
                rest += sock.recv(1 << 16)
        if head.startswith(b"-"):
            raise self.adds.failure(head.decode())
        return rest or head

    def info(self, section: bytes, field: bytes) -> bytes:
        """A field of INFO."""
        found = re.search(rb"^%b:([^\r]*)" % field, self.ask(b"INFO", section), re.MULTILINE)
        if found is None:
            raise self.adds.failure(f"INFO says no {field.decode()}")
        return found[1]

    def _order(self, rate: float, seconds: float) -> Order:
        return Order(
            self.adds.port, self.takes.port, rate, seconds, self._clients, self._size, self._seed
        )

    def _servers(self) -> list[Server]:
        return [self.adds] if self.adds is self.takes else [self.adds, self.takes]

    def _cpu(self) -> float:
        return sum(server.cpu_seconds() for server in self._servers())

    @contextmanager
    def _load(self, order: Order) -> Iterator[subprocess.Popen[str]]:
        with _process("generator", stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(order_text(order, GENERATOR_CPUS, not GENERATOR_CPUS & SERVER_CPUS))
            process.stdin.close()
            process.stdin = None
            yield process

    def _result(self, process: subprocess.Popen[str]) -> Result:
        text, problem = process.communicate()
        if process.returncode != 0:
            raise self.takes.failure(problem.strip())
        return read_result(text)

    @contextmanager
    def _watchers(
        self,
    ) -> Iterator[tuple[list[subprocess.Popen[str]], subprocess.Popen[str]]]:
        ours, theirs = str(min(GENERATOR_CPUS)), str(min(SERVER_CPUS))
        with _process("watch", "machine", theirs) as machine:
            nodes = []
            try:
                for server in self._servers():
                    words = ("node", str(server.port), str(server.process.pid), ours)
                    nodes.append(_start("watch", *words))
                for process in (machine, *nodes):
                    assert process.stdout is not None
                    if process.stdout.readline() != "watching\n":
                        raise ServerError("a watching process has failed")
                yield nodes, machine
            finally:
                for process in nodes:
                    _end(process)


def _start(module: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", f"tools.bench.latency.{module}", *arguments),
        cwd=ROOT,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


@contextmanager
def _process(
    module: str, *arguments: str, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    process = _start(module, *arguments, stdin=stdin)
    try:
        yield process
    finally:
        _end(process)


def _ended(process: subprocess.Popen[str]) -> str:
    """What a watching process has found, as it prints it."""
    process.send_signal(signal.SIGTERM)
    text, problem = process.communicate()
    if process.returncode != 0:
        raise ServerError(f"a watching process has failed: {problem.strip()}")
    return text


def _watched(data: Seen, stalls: Sequence[Span]) -> Watched:
    times = Histogram.from_data(data["times"]["counts"], data["times"]["worst"])
    return Watched(times, data["short"], judge(data["pauses"], stalls))
