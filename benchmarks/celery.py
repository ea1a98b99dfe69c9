"""The cost of a Celery task over Disque, compared with its Redis transport.

A program sends empty tasks one after the other, and a worker runs them; with --results the program
then gets their results. CPU time per task is measured for the program, the worker with its
processes, and the server. Ratios compare measurements next to each other in time; the table shows
the median of the rounds, and the range.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.push import Worker
from tools.bench import load
from tools.bench.cli import Findings, grouped, middle, option, ratio, say, table, words
from tools.bench.load import LoadError
from tools.bench.servers import (
    DISQUE_COMMAND,
    HOST,
    Server,
    disque_server,
    family_cpu_seconds,
    redis_server,
)

PAGE = "../packages/integrations/docs/celery.md"
SECTION = "celery"
POOLS = ("prefork", "threads", "solo")
WARM_UP = 50  # tasks
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    rounds: int = option(3, "how often everything is measured", quick=1)
    tasks: int = option(3_000, "a measurement", quick=100)
    pool: str = option("prefork", "pool of the worker", choices=POOLS)
    concurrency: int = option(2, "concurrency of the worker")
    results: bool = option(False, "also get the results")
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: ``rate`` in tasks per second, the others in CPU µs per task."""

    transport: str
    rate: float
    program: float
    worker: float
    server: float

    @property
    def cpu(self) -> float:
        """The sum of all."""
        return self.program + self.worker + self.server


def run(plan: Plan) -> Findings:
    """Measures both transports in turn."""
    samples: list[Sample] = []
    for number in range(plan.rounds):
        say(f"round {number + 1}")
        samples.append(_measure(plan, partial(disque_server, command=plan.server)))
        samples.append(_measure(plan, redis_server))
    return Findings(report(samples), samples)


def _measure(plan: Plan, start: Callable[[], AbstractContextManager[Server]]) -> Sample:
    with start() as server, server.blamed():
        url = f"{server.kind}://{HOST}:{server.port}"
        with _worker(plan, url) as worker:
            from benchmarks.celery_app import program

            with program(url, url if plan.results else None) as app:
                _drive(app, WARM_UP, plan.results)
                _wait(server)
                before = _clocks(server, worker)
                began = time.perf_counter()
                _drive(app, plan.tasks, plan.results)
                _wait(server)
                seconds = time.perf_counter() - began
                spent = [b - a for a, b in zip(before, _clocks(server, worker), strict=True)]
                return Sample(
                    server.name, plan.tasks / seconds, *[1e6 * cpu / plan.tasks for cpu in spent]
                )


def _clocks(server: Server, worker: subprocess.Popen[bytes]) -> list[float]:
    return [time.process_time(), family_cpu_seconds([worker.pid]), server.cpu_seconds()]


def _drive(app: Any, count: int, results: bool) -> None:
    task = app.tasks["nothing"]
    sent = [task.delay(number) for number in range(count)]
    if results:
        for result in sent:
            result.get(timeout=60)


def _wait(server: Server) -> None:
    """Waits until all tasks have run and are acknowledged."""
    with load.dial(server.port) as sock:
        connection = Worker(sock)
        left = _left_in_redis if server.kind == "redis" else _left_in_disque
        server.wait(lambda: left(connection) == 0, "tasks are left")


def _left_in_redis(connection: Worker) -> object:
    queued, in_hand = (
        connection.execute(b"LLEN", b"celery"),
        connection.execute(b"HLEN", b"unacked"),
    )
    return queued or in_hand


def _left_in_disque(connection: Worker) -> object:
    stat = connection.execute(b"QSTAT", b"celery", b"FULL")
    if not isinstance(stat, list):
        raise LoadError(f"the node answered {stat!r}")
    return stat[stat.index(b"len") + 1] or stat[stat.index(b"jobs-in-hand") + 1]


@contextmanager
def _worker(plan: Plan, url: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.celery_app", "worker"]
    command += ["--pool", plan.pool, "--concurrency", str(plan.concurrency), "-l", "error"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    environment = {**os.environ, "BROKER": url, "BACKEND": url if plan.results else ""}
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield worker
        finally:
            worker.terminate()
            try:
                worker.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def report(samples: list[Sample]) -> str:
    """The table."""
    by_transport = grouped(samples, lambda sample: sample.transport)
    redis = by_transport["redis"]
    rows = [
        [
            name,
            middle(some, lambda sample: sample.rate),
            *ratio(some, redis, lambda sample: sample.rate),
            middle(some, lambda sample: sample.program),
            middle(some, lambda sample: sample.worker),
            middle(some, lambda sample: sample.server),
            middle(some, lambda sample: sample.cpu),
            *ratio(some, redis, lambda sample: sample.cpu),
        ]
        for name, some in by_transport.items()
    ]
    titles = ["transport", "tasks/s", "ratio", "(range)", "CPU us a task: program", "worker"]
    return table([*titles, "server", "all", "ratio", "(range)"], rows)
