"""The rounds of a comparison: every server in turn, again and again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from tools.bench.compare.client import Batches, Client
from tools.bench.compare.instance import Instance, running
from tools.bench.compare.subjects import LEVELS, Level, Subject
from tools.bench.load import Load, LoadError, percentile, run
from tools.bench.workloads import bodies

SETTLE_SECONDS = 30.0
POLL_SECONDS = 0.005
WARM_UP = 4
# Of each client, on an average. The first is not timed.
LEAST_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. A measurement ends after ``jobs`` jobs or ``seconds``, with whole
    batches, and with at least two for each client."""

    subjects: Sequence[Subject]
    levels: Sequence[Level] = LEVELS
    pipelines: Sequence[int] = (1, 16)
    clients: int = 50
    rounds: int = 3
    jobs: int = 100_000
    seconds: float = 3.0
    size: int = 100
    directory: Path | None = None
    say: Callable[[str], None] = lambda text: None


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. Times are in seconds: ``cpu`` is that of all processes of the server,
    ``own_cpu`` the generator's; the percentiles are of the time that a batch's life takes."""

    subject: str
    level: Level
    pipeline: int
    round: int
    jobs: int
    seconds: float
    cpu: float
    own_cpu: float
    p50: float
    p99: float
    p999: float

    @property
    def rate(self) -> float:
        """Jobs a second that went through their whole lives."""
        return self.jobs / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of the server for one job, in microseconds."""
        return self.cpu / self.jobs * 1e6


def rounds(plan: Plan) -> list[Result]:
    """Measures every subject that has the level, each started anew in every round, so that what
    else the machine does falls on all of them. Raises ServerError when one does not work."""
    found: list[Result] = []
    for number in range(plan.rounds):
        for level in plan.levels:
            for subject in plan.subjects:
                if subject.lacks(level) is None:
                    plan.say(f"round {number + 1}, {level}: {subject.title}")
                    found += _measured(plan, subject, level, number)
    return found


def _measured(plan: Plan, subject: Subject, level: Level, number: int) -> Iterator[Result]:
    client = subject.client(plan.size, level)
    with running(
        subject.title,
        lambda directory: subject.recipe(directory, level),
        client.prepare,
        plan.directory,
    ) as instance:
        for pipeline in plan.pipelines:
            try:
                yield _measure(plan, subject, client, instance, (level, pipeline, number))
            except (LoadError, OSError) as error:
                raise instance.failure(f"{level}, pipelined by {pipeline}: {error}") from error


def _measure(
    plan: Plan,
    subject: Subject,
    client: Client,
    instance: Instance,
    setting: tuple[Level, int, int],
) -> Result:
    level, pipeline, number = setting
    least = plan.clients * pipeline * LEAST_BATCHES
    _work(plan, client, instance, pipeline, least * WARM_UP)
    work = _work(plan, client, instance, pipeline, max(least, plan.jobs))
    times = sorted(one for one in work.times if not math.isnan(one))
    return Result(
        subject=subject.key,
        level=level,
        pipeline=pipeline,
        round=number,
        jobs=len(work.times) * pipeline,
        seconds=work.load.seconds,
        cpu=work.cpu,
        own_cpu=work.load.own_cpu,
        p50=percentile(times, 0.5),
        p99=percentile(times, 0.99),
        p999=percentile(times, 0.999),
    )


@dataclass(slots=True)
class _Work:
    """What the generator saw, the times of the batches and the CPU time of the server, in
    seconds."""

    load: Load
    times: list[float]
    cpu: float


def _work(plan: Plan, client: Client, instance: Instance, pipeline: int, jobs: int) -> _Work:
    """Leads so many jobs through their lives and looks that none of them is left."""
    new = bodies(plan.size)
    prepared = [list(islice(new, pipeline)) for _ in range(jobs // pipeline)]
    times: list[float] = []
    with ExitStack() as stack:
        socks = []
        for worker in range(plan.clients):
            socks.append(client.connect(instance.port, worker, pipeline))
            stack.callback(client.close, socks[-1])
        before = instance.cpu_seconds()
        least = plan.clients * LEAST_BATCHES
        batches = until(time.perf_counter() + plan.seconds, least, prepared)
        scripts = [client.lives(worker, batches, times) for worker in range(plan.clients)]
        load = run(socks, scripts)
        cpu = instance.cpu_seconds() - before
    _wait_for_the_end(client, instance.port)
    return _Work(load, times, cpu)


def until(deadline: float, least: int, prepared: Sequence[Sequence[bytes]]) -> Batches:
    """The batches until the deadline (time.perf_counter), but ``least`` of them in any case."""
    for number, batch in zip(count(), prepared, strict=False):
        if number >= least and time.perf_counter() > deadline:
            return
        yield batch


def _wait_for_the_end(client: Client, port: int) -> None:
    """Servers that do not answer an acknowledge need not have seen all of them yet."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while left := client.unfinished(port):
        if time.monotonic() > deadline:
            raise LoadError(f"{left} jobs have not ended")
        time.sleep(POLL_SECONDS)
