"""The cost of a pushed job, compared with requesting each job.

One worker with one connection either requests each job with GETJOB and ends it with ACKJOB, waiting
for each reply, or consumes the queue (CONSUME) and ends each job as it arrives. The jobs are added
before it begins. Ratios compare measurements next to each other in time; the table shows the median
of the rounds, and the range.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import hiredis

from disque_trio.respclient.blocking import BlockingConnection
from tools.bench import load
from tools.bench.cli import Findings, grouped, middle, option, ratio, say, size, table, words
from tools.bench.dialects import encode
from tools.bench.load import LoadError
from tools.bench.scripts import SERIAL_DIGITS, bodies
from tools.bench.servers import DISQUE_COMMAND, Server, disque_server

PAGE = "performance-details.md"
SECTION = "push"
PORTION = 1_000  # jobs added at a time
QUEUE = b"bench"
ASKED = "GETJOB, ACKJOB"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    rounds: int = option(5, "how often everything is measured", quick=1)
    jobs: int = option(30_000, "a measurement", quick=500)
    credits: tuple[int, ...] = option((1, 10, 100), "unacknowledged jobs that a worker may have")
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: ``rate`` in jobs per second, ``cpu`` in µs of the node per job."""

    way: str
    rate: float
    cpu: float


class Worker(BlockingConnection):
    """A connection that processes jobs."""

    def read(self) -> Any:
        reply = super().read()
        if isinstance(reply, hiredis.ReplyError):
            raise LoadError(f"the node answered: {reply}")
        return reply

    def adds(self, jobs: int, size: int) -> None:
        """Adds ``jobs`` jobs."""
        new = islice(bodies(size), jobs)
        while portion := list(islice(new, PORTION)):
            adds = [encode(b"ADDJOB", QUEUE, body, b"0") for body in portion]
            self.sock.sendall(b"".join(adds))
            for _ in portion:
                self.read()

    def asks(self, jobs: int) -> None:
        """Takes and ends ``jobs`` jobs one by one."""
        for _ in range(jobs):
            reply: Any = self.execute(b"GETJOB", b"FROM", QUEUE)
            if not isinstance(reply, list) or self.execute(b"ACKJOB", reply[0][1]) != 1:
                raise LoadError(f"a job was answered with {reply!r}")

    def consumes(self, jobs: int, credit: int) -> None:
        """Ends ``jobs`` jobs as they are pushed."""
        self.sock.sendall(encode(b"CONSUME", QUEUE, b"CREDIT", b"%d" % credit))
        acked = -1  # the first reply is CONSUME's
        while acked < jobs:
            acks: list[bytes] = []
            for reply in self.read_all():
                if isinstance(reply, hiredis.PushNotification):
                    acks.append(encode(b"ACKJOB", reply[2]))
                elif isinstance(reply, hiredis.ReplyError):
                    raise LoadError(f"the node answered: {reply}")
                else:
                    acked += 1
            if acks:
                self.sock.sendall(b"".join(acks))
        if self.execute(b"CONSUME", b"STOP") != 0:
            raise LoadError("not all jobs were ended")


def run(plan: Plan) -> Findings:
    """Measures all ways in turn."""
    samples: list[Sample] = []
    with disque_server(command=plan.server) as server, server.blamed():
        for number in range(plan.rounds):
            say(f"round {number + 1}")
            samples += _round(plan, server)
    return Findings(report(samples), samples)


def _round(plan: Plan, server: Server) -> Iterator[Sample]:
    """One measurement of each way."""
    with _worker(server) as worker:
        yield _measure(plan, server, ASKED, lambda: worker.asks(plan.jobs))
        for credit in plan.credits:

            def consume(credit: int = credit) -> None:
                worker.consumes(plan.jobs, credit)

            yield _measure(plan, server, pushed(credit), consume)


@contextmanager
def _worker(server: Server) -> Iterator[Worker]:
    with load.dial(server.port) as sock:
        worker = Worker(sock)
        worker.execute(b"HELLO", b"3")
        yield worker


def _measure(plan: Plan, server: Server, way: str, work: Callable[[], None]) -> Sample:
    with _worker(server) as producer:
        producer.adds(plan.jobs, plan.size)
    cpu, start = server.cpu_seconds(), time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return Sample(way, plan.jobs / seconds, 1e6 * (server.cpu_seconds() - cpu) / plan.jobs)


def pushed(credit: int) -> str:
    """The name of this way."""
    return f"CONSUME CREDIT {credit}, ACKJOB"


def report(samples: list[Sample]) -> str:
    """The table."""
    by_way = grouped(samples, lambda sample: sample.way)
    asked = by_way[ASKED]
    rows = [
        [
            way,
            middle(some, lambda sample: sample.rate),
            *ratio(some, asked, lambda sample: sample.rate),
            middle(some, lambda sample: sample.cpu, 1),
            *ratio(some, asked, lambda sample: sample.cpu),
        ]
        for way, some in by_way.items()
    ]
    titles = [
        "one connection",
        "jobs/s",
        "ratio",
        "(range)",
        "node CPU us a job",
        "ratio",
        "(range)",
    ]
    return table(titles, rows)
