"""Measures each step of a job's life on one server under load."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from tools.bench.dialects import CRLF, DIALECTS, ConstantReply
from tools.bench.load import PING, Exchange, Load, Script, connections, percentile, run
from tools.bench.scripts import ack_batches, add_batches, bodies, cycle, portions, send, take
from tools.bench.servers import Server

Sockets = list[socket.socket]
Handles = list[list[bytes]]
"""The handles of the jobs that each connection took."""

FILL_PIPELINE = 64
FILL_PORTION = 50_000


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions of a step. ``held`` and ``idle``: jobs held and idle connections besides those
    of the load."""

    round: int
    pipeline: int
    clients: int
    held: int = 0
    idle: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of a step; ``command`` is its name on this server. Times are in seconds:
    ``cpu`` is the server's user and system time, ``own_cpu`` the generator's; percentiles are of a
    batch's latency."""

    server: str
    step: str
    command: str
    setting: Setting
    commands: int
    seconds: float
    cpu: float
    own_cpu: float
    p50: float
    p99: float
    p999: float
    worst: float

    @property
    def cpu_per_100k(self) -> float:
        """Server CPU seconds per 100,000 commands."""
        return self.cpu / self.commands * 100_000

    @property
    def rate(self) -> float:
        """Commands answered per second."""
        return self.commands / self.seconds


@dataclass(slots=True)
class _Step:
    """The sum of the runs of one step, and the server's CPU seconds in them."""

    loads: list[Load] = field(default_factory=list)
    cpu: float = 0.0

    def sample(self, bench: Bench, step: str, setting: Setting) -> Sample:
        latencies = sorted(chain.from_iterable(load.latencies for load in self.loads))
        return Sample(
            server=bench.server.name,
            step=step,
            command=bench.dialect.commands.get(step, step),
            setting=setting,
            commands=sum(load.commands for load in self.loads),
            seconds=sum(load.seconds for load in self.loads),
            cpu=self.cpu,
            own_cpu=sum(load.own_cpu for load in self.loads),
            p50=percentile(latencies, 0.5),
            p99=percentile(latencies, 0.99),
            p999=percentile(latencies, 0.999),
            worst=latencies[-1],
        )


class Bench:
    """Runs steps on one server. All methods raise ServerError, with the end of the server's log, if
    the server fails.

    Args:
        size: bytes of a job's body.
        meter: returns a value whose growth is the ``cpu`` of samples.
    """

    def __init__(
        self, server: Server, size: int, meter: Callable[[Server], float] = Server.cpu_seconds
    ) -> None:
        self.server = server
        self._meter = meter
        self.dialect = DIALECTS[server.kind](size)
        self._bodies = bodies(size)

    @contextmanager
    def connected(self, count: int) -> Iterator[Sockets]:
        """Keeps ``count`` connections open."""
        with self.server.blamed(), connections(self.server.port, count) as socks:
            yield socks

    def fill(self, jobs: int) -> None:
        """Adds jobs without measuring."""
        with self.connected(1) as socks:
            for count in portions(jobs, FILL_PORTION):
                self._add(_Step(), socks, count, FILL_PIPELINE)

    def drain(self, jobs: int) -> None:
        """Takes and ends jobs without measuring."""
        with self.connected(1) as socks:
            for count in portions(jobs, FILL_PORTION):
                handles = self._take(_Step(), socks, count, FILL_PIPELINE)
                self._ack(_Step(), socks, handles, FILL_PIPELINE)

    def steps(self, setting: Setting, jobs: int, portion: int | None = None) -> list[Sample]:
        """Measures adding, taking and acknowledging ``jobs`` jobs, ``portion`` at a time (default:
        all), so that at most that many come on top of the jobs held."""
        add, take, ack = _Step(), _Step(), _Step()
        with self.connected(setting.clients) as socks:
            for count in portions(jobs, portion or jobs):
                self._add(add, socks, count, setting.pipeline)
                handles = self._take(take, socks, count, setting.pipeline)
                self._ack(ack, socks, handles, setting.pipeline)
        self._expect_queued(setting.held)
        steps = {"add": add, "take": take, "ack": ack}
        return [step.sample(self, name, setting) for name, step in steps.items()]

    def pings(self, setting: Setting, commands: int) -> Sample:
        """Measures empty commands."""
        step = _Step()
        shape = ConstantReply(PING[1] + CRLF)
        batches = (
            Exchange(PING[0] * count, shape, count)
            for count in portions(commands, setting.pipeline)
        )
        with self.connected(setting.clients) as socks:
            self._run(step, socks, [send(batches) for _ in socks])
        return step.sample(self, "ping", setting)

    def cycles(self, setting: Setting, jobs: int) -> Sample:
        """Measures the whole lives of ``jobs`` jobs, three commands each."""
        step = _Step()
        adds = iter(add_batches(self.dialect, self._bodies, jobs, setting.pipeline))
        with self.connected(setting.clients) as socks:
            scripts = [cycle(self.dialect, worker, adds) for worker in range(len(socks))]
            self._run(step, socks, scripts)
        self._expect_queued(setting.held)
        return step.sample(self, "cycle", setting)

    def _add(self, step: _Step, socks: Sockets, jobs: int, pipeline: int) -> None:
        batches = iter(add_batches(self.dialect, self._bodies, jobs, pipeline))
        self._run(step, socks, [send(batches) for _ in socks])

    def _take(self, step: _Step, socks: Sockets, jobs: int, pipeline: int) -> Handles:
        counts = portions(jobs, pipeline)
        replies: list[list[bytes]] = [[] for _ in socks]
        workers = enumerate(replies)
        self._run(step, socks, [take(self.dialect, n, counts, mine) for n, mine in workers])
        handles = [list(chain.from_iterable(map(self.dialect.handles, mine))) for mine in replies]
        if len(set(chain.from_iterable(handles))) != jobs:
            raise self.server.failure("gave a job twice")
        return handles

    def _ack(self, step: _Step, socks: Sockets, handles: Handles, pipeline: int) -> None:
        batches = [ack_batches(self.dialect, n, mine, pipeline) for n, mine in enumerate(handles)]
        self._run(step, socks, map(send, batches))

    def _run(self, step: _Step, socks: Sockets, scripts: Iterable[Script]) -> None:
        before = self._meter(self.server)
        step.loads.append(run(socks, scripts))
        step.cpu += self._meter(self.server) - before

    def _expect_queued(self, jobs: int) -> None:
        """Checks that all work is done: the queue is as long as before."""
        with self.server.blamed():
            length = self.dialect.unfinished(self.server.port)
        if length != jobs:
            raise self.server.failure(f"has {length} jobs when {jobs} should be queued")
